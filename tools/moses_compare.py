#!/usr/bin/env python3
"""Compares `mae tokenize`, `detokenize` and `normalize` with sacremoses (0.2.0) on texts of one's own.

    pip install sacremoses==0.2.0
    python tools/moses_compare.py --mae target/release/mae de:news.de fr:talks.fr zh:help.zh [--show 3]

Each argument is a language and a text with one sentence a line. The table has a row for each: lines, and lines that are
equal after tokenising, tokenising with dashes split, detokenising those tokens, and normalising. The exit status is 1 if
a line differs; --show prints the first differences.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer


def ours(mae, command, lang, lines, *flags):
    text = "".join(line + "\n" for line in lines).encode()
    run = subprocess.run([mae, command, "-l", lang, *flags], input=text, capture_output=True, check=True)
    out = run.stdout.decode().split("\n")[:-1]
    assert len(out) == len(lines), (command, lang, len(out), len(lines))
    return out


def detokenized(detokenizer, line):
    try:
        return detokenizer.detokenize(line.split())
    except TypeError:  # sacremoses stops at a Czech contraction before a dash and `li`.
        return None


def compare(mae, lang, lines, show):
    tokenizer, detokenizer, normalizer = MosesTokenizer(lang), MosesDetokenizer(lang), MosesPunctNormalizer(lang)
    tokens = [" ".join(tokenizer.tokenize(line)) for line in lines]
    rows = {
        "tokens": (ours(mae, "tokenize", lang, lines), tokens),
        "dashes": (
            ours(mae, "tokenize", lang, lines, "-a"),
            [" ".join(tokenizer.tokenize(line, aggressive_dash_splits=True)) for line in lines],
        ),
        "text": (ours(mae, "detokenize", lang, tokens), [detokenized(detokenizer, line) for line in tokens]),
        "normal": (ours(mae, "normalize", lang, lines), [normalizer.normalize(line) for line in lines]),
    }
    counts = []
    for name, (found, expected) in rows.items():
        differ = [i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1] and pair[1] is not None]
        counts.append(len(lines) - len(differ))
        for i in differ[:show]:
            print(f"{lang} {name}, line {i + 1}: {lines[i]!r}\n  ours   {found[i]!r}\n  theirs {expected[i]!r}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mae", default="target/release/mae", help="the program")
    parser.add_argument("--lines", type=int, default=None, help="read only so many lines of each text")
    parser.add_argument("--show", type=int, default=0, help="differences to print for each language and step")
    parser.add_argument("texts", nargs="+", metavar="LANG:FILE")
    args = parser.parse_args()
    print(f"{'':5}{'lines':>8}{'tokens':>8}{'dashes':>8}{'text':>8}{'normal':>8}")
    wrong = 0
    for text in args.texts:
        lang, path = text.split(":", 1)
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        # A carriage return at the end of a line is no part of it, for either program.
        lines = [line.rstrip("\r") for line in lines if line][: args.lines]
        counts = compare(args.mae, lang, lines, args.show)
        wrong += sum(len(lines) - count for count in counts)
        print(f"{lang:5}{len(lines):>8}" + "".join(f"{count:>8}" for count in counts), flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
