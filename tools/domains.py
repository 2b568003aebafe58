#!/usr/bin/env python3
"""Prepares the data of the study `domains`: several corpora in one text form, with a domain for each sentence.

    tools/domains.py OUT NAME=TRAIN,VALID,TEST ... [--mae PROGRAM] [--cap 60000] [--valid 250] [--test 1000] [--merges 16000]

TRAIN, VALID and TEST are prefixes: PREFIX.de and PREFIX.en, or with .zst after it, cased and untokenised. NAME~=... takes
text that is already lower-cased Moses tokens. Needs the program `mae`, and `zstd` for compressed files.

Writes OUT/{train,valid,test}.{de,en,domain} and OUT/data-bin with ids, codes and the domains of valid and test.
"""
import argparse
import os
import random
import shutil
import subprocess

LANGUAGES = ["de", "en"]


def lines(prefix, language):
    path = f"{prefix}.{language}"
    if os.path.exists(path):
        data = open(path, "rb").read()
    else:
        data = subprocess.run(["zstd", "-dc", path + ".zst"], check=True, stdout=subprocess.PIPE).stdout
    return data.decode().rstrip("\n").split("\n")


def read(prefix, most, mae, tokenised):
    """The first pairs of a corpus as lower-cased Moses tokens, without empty, long and one-sided ones."""
    sides = []
    for language in LANGUAGES:
        text = lines(prefix, language)[: 2 * most]
        if not tokenised:
            done = subprocess.run([mae, "tokenize", "-l", language], check=True, stdout=subprocess.PIPE,
                                  input="\n".join(text).encode() + b"\n")
            text = done.stdout.decode().rstrip("\n").split("\n")
        sides.append([" ".join(line.lower().split()) for line in text])
    assert len(sides[0]) == len(sides[1]), prefix
    kept = []
    for pair in zip(*sides):
        counts = [len(side.split()) for side in pair]
        if min(counts) > 0 and max(counts) <= 100 and max(counts) <= 3 * min(counts) + 3:
            kept.append(pair)
    return kept[:most]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("domains", nargs="+", metavar="NAME=TRAIN,VALID,TEST")
    parser.add_argument("--mae", default="mae")
    parser.add_argument("--cap", type=int, default=60000, help="training pairs of a domain, at most")
    parser.add_argument("--valid", type=int, default=250, help="development pairs of a domain")
    parser.add_argument("--test", type=int, default=1000, help="test pairs of a domain")
    parser.add_argument("--merges", type=int, default=16000)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    sets = {"train": [], "valid": [], "test": []}
    for domain in args.domains:
        name, prefixes = domain.split("=", 1)
        tokenised = name.endswith("~")
        name = name.rstrip("~")
        counts = []
        for (split, found), prefix, most in zip(sets.items(), prefixes.split(","), [args.cap, args.valid, args.test]):
            pairs = read(prefix, most, args.mae, tokenised)
            found.extend((*pair, name) for pair in pairs)
            counts.append(f"{len(pairs)} {split}")
        print(f"{name}: {', '.join(counts)}")
    # No sentence of the development or test sets is trained on.
    held_out = {pair[side] for split in ["valid", "test"] for pair in sets[split] for side in [0, 1] if pair[side].count(" ") > 5}
    sets["train"] = [pair for pair in sets["train"] if pair[0] not in held_out and pair[1] not in held_out]
    random.Random(1).shuffle(sets["train"])
    for split, pairs in sets.items():
        for column, ending in enumerate([*LANGUAGES, "domain"]):
            with open(f"{args.out}/{split}.{ending}", "w") as file:
                file.writelines(pair[column] + "\n" for pair in pairs)
    prefix = [f"{args.out}/{split}" for split in sets]
    subprocess.run([args.mae, "preprocess", "-s", "de", "-t", "en", "--trainpref", prefix[0], "--validpref", prefix[1], "--testpref",
                    prefix[2], "--bpe", str(args.merges), "--destdir", f"{args.out}/data-bin"], check=True)
    for split in ["valid", "test"]:
        shutil.copy(f"{args.out}/{split}.domain", f"{args.out}/data-bin/{split}.domain")


if __name__ == "__main__":
    main()
