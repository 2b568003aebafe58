#!/usr/bin/env python3
"""Writes crates/eval/src/unicode.rs: the numbers, punctuation marks and symbols of Unicode, as ranges.

    python tools/unicode_classes.py [--out crates/eval/src/unicode.rs]

Needs the regex package, because sacreBLEU's international tokeniser asks it what a character is.
"""

import argparse
import pathlib

import regex

CLASSES = [
    ("N", "NUMBERS", "is_number", "Numbers: digits, letters and other characters that stand for one (`\\p{N}`)."),
    ("P", "PUNCTUATION", "is_punctuation", "Punctuation marks (`\\p{P}`)."),
    ("S", "SYMBOLS", "is_symbol", "Symbols: of mathematics, of currencies, modifiers and others (`\\p{S}`)."),
]

HEAD = """\
//! What a character is, of the general categories that mteval's international tokeniser distinguishes.
//!
//! Written by `tools/unicode_classes.py` with the regex package {version}; not to be edited by hand.
"""

LOOKUP = """
fn contains(ranges: &[(u32, u32)], c: char) -> bool {
    let after = ranges.partition_point(|&(first, _)| first <= u32::from(c));
    after > 0 && u32::from(c) <= ranges[after - 1].1
}
"""


def ranges(category: str) -> list[tuple[int, int]]:
    """The first and last characters of every run of the category."""
    found = []
    pattern = regex.compile(rf"\p{{{category}}}")
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000 or not pattern.match(chr(code)):
            continue
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


def table(name: str, category: str) -> str:
    lines, line = [], "   "
    for first, last in ranges(category):
        entry = f" ({first:#x}, {last:#x}),"
        if len(line) + len(entry) > 110:
            lines.append(line)
            line = "   "
        line += entry
    body = "\n".join([*lines, line])
    return f"\n#[rustfmt::skip]\nconst {name}: &[(u32, u32)] = &[\n{body}\n];\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="crates/eval/src/unicode.rs", type=pathlib.Path)
    args = parser.parse_args()
    text = HEAD.format(version=regex.__version__)
    for _, name, function, doc in CLASSES:
        text += f"\n/// {doc}\npub(crate) fn {function}(c: char) -> bool {{\n    contains({name}, c)\n}}\n"
    text += LOOKUP
    for category, name, _, _ in CLASSES:
        text += table(name, category)
    args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
