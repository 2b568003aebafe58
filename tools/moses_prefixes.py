#!/usr/bin/env python3
"""Writes crates/data/src/moses/prefixes.txt: the non-breaking prefixes of all languages of sacremoses (0.2.0).

    pip install sacremoses==0.2.0 && python tools/moses_prefixes.py

Comments and doubles are left out, and prefixes with a blank inside, which no token equals.
"""

import textwrap
from importlib.metadata import distribution
from pathlib import Path

from sacremoses.corpus import NonbreakingPrefixes
from sacremoses.tokenize import MosesTokenizer

HEAD = """\
# Abbreviations that keep their period, by language; made by tools/moses_prefixes.py, do not edit.
#
# A section [xx] lists those of the language xx that always keep it, [xx numbers] those that keep it before a number.
#
# Origin: the lists of the Moses toolkit (https://github.com/moses-smt/mosesdecoder, scripts/share/nonbreaking_prefixes),
# as the Python package sacremoses 0.2.0 (https://github.com/hplt-project/sacremoses) distributes them under the
# licence below. Moses itself is under the LGPL 2.1; the maintainer of sacremoses relicensed his port, lists included, in
# 2020, after asking Moses' developers (https://github.com/hplt-project/sacremoses/pull/93). The Czech list has data of
# Daniel Naber's LanguageTool and of the Czech Wiktionary.
#
"""


def licence():
    dist = distribution("sacremoses")
    paths = [file for file in dist.files if file.name == "LICENSE"]
    return "".join(f"# {line}".rstrip() + "\n" for line in paths[0].read_text().splitlines())


def main():
    text = HEAD + licence()
    codes = sorted(set(NonbreakingPrefixes().available_langs.values()))
    for code in codes:
        tokenizer = MosesTokenizer(code)
        numbers = set(tokenizer.NUMERIC_ONLY_PREFIXES)
        always = set(tokenizer.NONBREAKING_PREFIXES) - numbers
        for name, words in ((code, always), (f"{code} numbers", numbers)):
            words = sorted(word for word in words if word and len(word.split()) == 1)
            if words:
                lines = textwrap.wrap(" ".join(words), 118, break_long_words=False, break_on_hyphens=False)
                text += f"\n[{name}]\n" + "\n".join(lines) + "\n"
    path = Path(__file__).parent.parent / "crates/data/src/moses/prefixes.txt"
    path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
