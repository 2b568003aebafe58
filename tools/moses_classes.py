#!/usr/bin/env python3
"""Writes crates/data/src/moses/classes.rs: the character sets that sacremoses (0.2.0) tells letters and numbers by.

    pip install sacremoses==0.2.0 && python tools/moses_classes.py

They are those of an older Unicode, with a few marks more, so the standard library's cannot stand in for them.
"""

import sys
import unicodedata
from pathlib import Path

from sacremoses.tokenize import MosesDetokenizer, MosesTokenizer, perluniprops

HEAD = """//! Sets of characters as sorted runs, made by `tools/moses_classes.py`; do not edit.

/// First, last and step: `(first, last, 2)` is every other character.
pub(super) type Run = (u32, u32, u32);
"""


def runs(chars):
    """Greedy runs of step 1 or 2."""
    codes = sorted(set(map(ord, chars)) - {10})
    out = []
    for code in codes:
        if out and out[-1][2] in (0, code - out[-1][1]) and code - out[-1][1] <= 2:
            out[-1] = (out[-1][0], code, code - out[-1][1])
        else:
            out.append((code, code, 0))
    return [(first, last, step or 1) for first, last, step in out]


def table(name, what, chars):
    rows = ", ".join(f"(0x{a:x}, 0x{b:x}, {step})" for a, b, step in runs(chars))
    return f"\n/// {what}\n#[rustfmt::skip]\npub(super) static {name}: &[Run] = &[\n{fill(rows)}\n];\n"


def fill(text, width=112):
    lines, line = [], ""
    for item in text.split("), "):
        item = item if item.endswith(")") else item + ")"
        if len(line) + len(item) + 2 > width:
            lines.append("    " + line.rstrip())
            line = ""
        line += item + ", "
    return "\n".join(lines + ["    " + line.rstrip()])


def main():
    alpha, full = set(MosesDetokenizer.IsAlpha), set(MosesTokenizer.IsAlpha)
    digits = set(MosesTokenizer.IsAlnum) - full
    decimal = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) == "Nd"]
    text = HEAD
    text += table("ALPHA", "Letters.", alpha)
    text += table("MARKS", "Viramas and nuktas, which the tokeniser counts as letters and the detokeniser does not.", full - alpha)
    text += table("DIGITS", "Alphanumeric characters that are no letters.", digits)
    text += table("NUMBERS", "Numbers of every kind.", MosesTokenizer.IsN)
    text += table("LOWER", "Lower-case letters.", MosesTokenizer.IsLower)
    text += table("CURRENCY", "Currency symbols.", MosesTokenizer.IsSc)
    text += table("DECIMAL", "Decimal digits, Python's `\\d`.", decimal)
    han, hangul, hiragana, katakana = (
        set("".join(perluniprops.chars(name))) - full for name in ("Han", "Hangul", "Hiragana", "Katakana")
    )
    text += table("HAN", "Ideographs that are letters in Chinese and Japanese.", han)
    text += table("KANA", "Hiragana, katakana and marks that are letters in Japanese.", (hiragana | katakana) - han)
    text += table("HANGUL", "Syllables that are letters in Korean.", hangul)
    path = Path(__file__).parent.parent / "crates/data/src/moses/classes.rs"
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
