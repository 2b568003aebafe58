#!/usr/bin/env python3
"""Makes the golden files in fixtures/bpe with the subword-nmt package (0.3.8).

    pip install subword-nmt==0.3.8 && python tools/bpe_golden.py

corpus.{de,en} come from a small grammar with a fixed seed, plus a few hand-made lines with the hard cases: runs of one
letter, no-break spaces, double spaces, a literal `</w>`, accents, emoji, backslashes. Codes are learned on both sides
jointly; both sides and a text of unseen words are segmented, with and without a vocabulary threshold, and with
glossaries; pieces are counted.
"""

import argparse
import io
import random
from collections import Counter
from pathlib import Path

from subword_nmt import apply_bpe, get_vocab, learn_bpe

MERGES = 300
THRESHOLD = 8

NUMBERS = [
    ("one", "eins"), ("two", "zwei"), ("three", "drei"), ("four", "vier"), ("seven", "sieben"), ("eleven", "elf"),
    ("thirteen", "dreizehn"), ("seventeen", "siebzehn"), ("twenty-three", "dreiundzwanzig"), ("forty", "vierzig"),
    ("seventy-seven", "siebenundsiebzig"), ("ninety", "neunzig"),
]
NOUNS = [
    ("houses", "Häuser"), ("mice", "Mäuse"), ("bicycles", "Fahrräder"), ("keys", "Schlüssel"), ("streets", "Straßen"),
    ("evenings", "Abende"), ("sentences", "Sätze"), ("translations", "Übersetzungen"), ("boxes", "Schachteln"),
]
VERBS = [("there are", "es gibt"), ("we have", "wir haben"), ("I see", "ich sehe"), ("they counted", "sie zählten")]

HARD = [
    ("aaa aaaa aaaaa aa a", "bbbb bbb bb bbbbbb"),
    ("  two  spaces and a tail ", "zwei\u00a0geschützte\u00a0Leerzeichen und 10\u00a0000 10\u00a0000 Zeilen"),
    ("a literal </w> and a</w>b", "ein <unk> \\n \\ (.*) $"),
    ("", "naïve café 😀😀 漢字 漢字"),
    ("don ' t @@ me", "z . B . &apos; &quot;"),
]

UNSEEN = [
    "seventy-three mouse housekeepings zählbar Übersetzungsstraße",
    "unübersetzbar xyzzy 漢字漢 😀 aaaaaaaa bbbbbbb a b </w>",
    "  leading and trailing  ",
    "",
    "10\u00a0000\u00a0Häuser c</w> \\\\ a@@ b@@",
]


GLOSSARIES = ["sieben", r"<\w+>", "Mäuse|Häuser", "z"]
GLOSSED = [
    "sieben siebensieben xsiebeny zsieben <num> <num>mäuse <num>sieben<x>z Mäuse aMäuseb Häuser MäuseHäuser zz",
    "Mäusefalle Gasthäuser Häuserblock z az",
]


def corpus(lines=120, seed=20):
    rng = random.Random(seed)
    pairs = list(HARD)
    for _ in range(lines):
        parts = [rng.choice(VERBS), rng.choice(NUMBERS), rng.choice(NOUNS)]
        pairs.append(tuple(" ".join(words) for words in zip(*parts)))
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def learn(texts):
    counts = Counter()
    for lines in texts:
        for line in lines:
            counts.update(word for word in line.strip("\r\n ").split(" ") if word)
    out = io.StringIO()
    learn_bpe.learn_bpe([f"{word} {n}" for word, n in counts.items()], out, MERGES, is_dict=True)
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--out", type=Path, default=here / "fixtures" / "bpe")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    def write(name, text):
        (out / name).write_text(text, encoding="utf-8", newline="")

    en, de = corpus()
    codes = learn([en, de])
    write("codes", codes)
    bpe = apply_bpe.BPE(io.StringIO(codes))
    texts = {"corpus.en": en, "corpus.de": de, "unseen": UNSEEN}
    for name, lines in texts.items():
        write(name, "".join(line + "\n" for line in lines))
        write(f"{name}.bpe", "".join(bpe.process_line(line + "\n") for line in lines))

    pieces = Counter(piece for line in en + de for piece in bpe.process_line(line).strip("\r\n ").split(" ") if piece)
    vocabulary = "".join(f"{piece} {n}\n" for piece, n in sorted(pieces.items(), key=lambda item: -item[1]))
    write("pieces", vocabulary)
    allowed = apply_bpe.read_vocabulary(io.StringIO(vocabulary), THRESHOLD)
    rare = apply_bpe.BPE(io.StringIO(codes), vocab=allowed)
    glossed = apply_bpe.BPE(io.StringIO(codes), glossaries=GLOSSARIES)
    lines = UNSEEN + de[:30] + GLOSSED
    write("glossaries", "".join(line + "\n" for line in lines))
    write("glossaries.bpe", "".join(glossed.process_line(line + "\n") for line in lines))
    counted = io.StringIO()
    get_vocab.get_vocab([bpe.process_line(line) for line in de], counted)
    write("corpus.de.vocab", counted.getvalue())
    for name in ("corpus.de", "unseen"):
        write(f"{name}.bpe.threshold{THRESHOLD}", "".join(rare.process_line(line + "\n") for line in texts[name]))


if __name__ == "__main__":
    main()
