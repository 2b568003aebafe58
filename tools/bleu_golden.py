#!/usr/bin/env python3
"""Writes fixtures/bleu/*.tsv, what crates/eval/src/bleu is tested against.

    python tools/bleu_golden.py --multi-bleu PATH/TO/multi-bleu.perl [--out fixtures/bleu]

Needs the sacrebleu package and Moses' scripts/generic/multi-bleu.perl (with Perl), which are asked for the
right answers. The sentences are made up here; the noise on them comes from a fixed seed. Four files:

    segments.tsv  hypothesis, first reference, second reference
    tokens.tsv    a line, its 13a tokens
    compounds.tsv a line, the same with compounds split by Perl
    scores.tsv    which tool, settings, segments from and to, score (as exact as a double), printed line

In all of them, backslash, tab, newline and carriage return are written as \\\\, \\t, \\n and \\r.
"""

import argparse
import math
import pathlib
import random
import subprocess
import tempfile

from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

SENTENCES = """\
The committee published its 2,345-page report on 12.05.2014, and nobody read it.
Prices rose by 3.5% in March (from $1,200.50 to $1,242.52), the bank said.
"I don't think so," she said; "but ask again in 5-6 days."
Die Verhandlungen wurden am 3. Oktober fortgesetzt, teilte das Ministerium mit.
Der Kläger fordert 1.000.000,00 Euro – mehr als je zuvor – und eine Entschuldigung.
Das Straßenfest in der Größe von früher gibt es nicht mehr, sagt Frau Öztürk.
A state-of-the-art system/tool costs about 10-15 USD @ 24/7 availability [sic].
We met at 9 a.m. in the U.S. embassy, i.e. before the talks had even begun.
R&amp;D spending is &lt;5% of revenue &gt; last year&apos;s &quot;target&quot;.
He wrote: if a<b && c>d then x_1 = {y | z} ~ `ls` \\ 2^10 #tag.
東京では、2020年に3.5万人が参加した。とても良かった！
这个系统在1,000个句子上测试,结果是98.5%。
한국어 문장은 띄어쓰기가 있습니다. 정말로요?
Η ΟΔΟΣ ΕΙΝΑΙ ΜΑΚΡΙΑ, είπε ο ΣΟΦΟΣ στις 10:30.
İstanbul'da DIŞ hava 25°C … “çok güzel” dedi‚ değil mi?
the the the the the the the
Yes.
No, no, no, no!
A quick brown fox jumps over the lazy dog near the river bank at dawn.
Two plus two is four, and four plus four is eight, and so on and so forth.
""".splitlines()

ODD = [
    "\u00a0", "\u2009", "\u3000", "\u200b", "\u0085", "\u2028", "\x1c", "\x1f", "\x0b", "\r", "\t", "ẞ", "１２",
    "٣٤", "e\u0301", "🙂", "&quot;", "&amp;lt;", "&#39;", "<skipped>", "1,234.56", ".5", "5.", "3-", "--", "...",
    ".,", "1.a", "a,1", "@-@", "9.,9", "ﬁ", "ǅ",
]  # fmt: skip

EXTRA_TOKENS = [
    "", " ", ".", ",", "-", "1-", "-1", "1-2-3", "1.2.3", "1,2,", ",,", "..1", "1..", "a..b", ".-.", "1.-2", "'", "a'b",
    "hyphen-\nated line", "two\nlines", "ends in newline\n", "<skip<skipped>ped>", "&amp;amp;", "&amp;quot;", "&ampx",
    "\u00a0x.\u00a0", "x.\u2028y,\x1c", "1\u0660.\u0660", "é.é,é", "?!:;()[]{}<>|\\/~^`@#$%&*+=_\"",
]  # fmt: skip


COMPOUNDS = [
    "", "-", "a-b", "a-b-c", "ab-cd-ef", "ä-ö-ü", "a-ö-c", "a--b", "a---b", "ab--cd", " -a a- - ", "a -b", "a- b", "a-\tb",
    "a\u00a0-\u00a0b", "1-2 3-4-5 6-7", "state-of-the-art systems", "E-Mail-Adresse und U-Bahn", "-a-b-", "日-本-語", "–-–",
]  # fmt: skip


def noisy(line: str, rng: random.Random, level: float) -> str:
    """Drops, doubles, swaps, recases and decorates words."""
    words = []
    for word in line.split(" "):
        draw = rng.random() / level
        if draw < 0.05:
            continue
        if draw < 0.10:
            words.append(word)
        elif draw < 0.15 and words:
            words.insert(len(words) - 1, word)
            continue
        elif draw < 0.20:
            word = word.swapcase()
        elif draw < 0.25:
            word += rng.choice(ODD)
        elif draw < 0.28:
            words.append(rng.choice(ODD))
        words.append(word)
    ends = [""] * 6 + [" ", "  ", "\t", "\u00a0"]
    return rng.choice(ends) + " ".join(words) + rng.choice(ends)


def segments() -> list[tuple[str, str, str]]:
    rng = random.Random(2014)
    rows = []
    for level in (0.5, 1.5):
        rows += [(noisy(s, rng, level), noisy(s, rng, 0.1), noisy(s, rng, 1.0)) for s in SENTENCES]
    good, other = SENTENCES[0], SENTENCES[18]
    rows += [("", good, other), (good, "", good), ("", "", ""), (" ", other, ""), (good, other, good)]
    rows += [("a b c", "a b c", "a b"), ("a b c", "a b", "a b c d"), ("x y z", "a b c", "d"), ("a", "a", "a a")]
    return rows


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def sacrebleu_row(rows, start, end, tok, lc, smooth, eff, nrefs):
    method, _, value = smooth.partition(":")
    metric = BLEU(
        lowercase=lc == "lc", force=True, tokenize=tok, smooth_method=method,
        smooth_value=float(value) if value else None, effective_order=eff == "eff",
    )  # fmt: skip
    part = rows[start:end]
    refs = [[row[1] for row in part]]
    if nrefs == "2":
        refs.append([row[2] for row in part])
    elif nrefs == "var":
        refs.append([row[2] if i % 2 == 0 else None for i, row in enumerate(part)])
    score = metric.corpus_score([row[0] for row in part], refs)
    line = score.format(width=1, signature=str(metric.get_signature()))
    return ["sacrebleu", tok, lc, smooth, eff, nrefs, str(start), str(end), repr(score.score), line], score


def fairseq_row(rows, start, end):
    """fairseq/scoring/bleu.py, Scorer.result_string, on the counts of white-space words."""
    _, score = sacrebleu_row(rows, start, end, "none", "mixed", "none", "no", "1")
    precisions = [c / t if t else 0 for c, t in zip(score.counts, score.totals)]
    brevity = min(1, math.exp(1 - score.ref_len / score.sys_len))
    bleu = brevity * math.exp(sum(math.log(p) if p > 0 else -math.inf for p in precisions) / 4) * 100
    line = "BLEU4 = {:2.2f}, {:2.1f}/{:2.1f}/{:2.1f}/{:2.1f} (BP={:.3f}, ratio={:.3f}, syslen={}, reflen={})".format(
        bleu, *(100 * p for p in precisions), brevity, score.sys_len / score.ref_len, score.sys_len, score.ref_len
    )
    return ["fairseq", "none", "mixed", "none", "no", "1", str(start), str(end), repr(bleu), line]


def split_compounds(text: bytes) -> bytes:
    """What Tensor2Tensor's get_ende_bleu.sh and fairseq's compound_split_bleu.sh do to a tokenised text."""
    command = ["perl", "-ple", r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"]
    return subprocess.run(command, input=text, capture_output=True, check=True).stdout


def multi_bleu_row(script, rows, start, end, lc, nrefs, prepare=bytes, tool="multi-bleu"):
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / name for name in ("hyp", "ref0", "ref1")]
        for column, file in list(enumerate(files))[: 1 + int(nrefs)]:
            file.write_bytes(prepare("".join(row[column] + "\n" for row in rows[start:end]).encode()))
        command = ["perl", script, *(["-lc"] if lc == "lc" else []), str(files[1])[:-1]]
        line = subprocess.run(command, input=files[0].read_bytes(), capture_output=True).stdout.decode().strip()
    return [tool, "multi-bleu", lc, "none", "no", nrefs, str(start), str(end), "-", line]


def scores(rows, script):
    count = len(rows)
    ranges = [(0, count), (0, 20), (20, 40), (10, 15), (15, 18)]
    for start, end in ranges:
        for tok in ("13a", "none"):
            for lc in ("mixed", "lc"):
                yield sacrebleu_row(rows, start, end, tok, lc, "exp", "no", "1")[0]
        yield sacrebleu_row(rows, start, end, "13a", "mixed", "exp", "no", "2")[0]
        yield fairseq_row(rows, start, end)
        for lc in ("mixed", "lc"):
            for nrefs in ("1", "2"):
                yield multi_bleu_row(script, rows, start, end, lc, nrefs)
    for smooth in ("none", "floor", "floor:0.01", "add-k", "add-k:0.5"):
        for start, end in ((0, count), (15, 18)):
            yield sacrebleu_row(rows, start, end, "13a", "mixed", smooth, "no", "1")[0]
    for start, end in ranges:
        for nrefs in ("1", "2"):
            yield multi_bleu_row(script, rows, start, end, "mixed", nrefs, split_compounds, "compound-split")
    yield sacrebleu_row(rows, 0, count, "13a", "lc", "exp", "no", "var")[0]
    for start in range(20, count):
        yield sacrebleu_row(rows, start, start + 1, "13a", "mixed", "exp", "eff", "1" if start % 2 else "2")[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi-bleu", required=True, help="Moses' multi-bleu.perl")
    parser.add_argument("--out", default="fixtures/bleu", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = segments()
    tokenize = Tokenizer13a()
    tokens = [(line, tokenize(line.rstrip())) for line in EXTRA_TOKENS + [row[0] for row in rows[20:40]]]
    compounds = COMPOUNDS + [row[0] for row in rows[:40] if "-" in row[0]]
    compounds = [(line, split_compounds(line.encode() + b"\n").decode()[:-1]) for line in compounds]
    tables = {"segments": rows, "tokens": tokens, "compounds": compounds, "scores": scores(rows, args.multi_bleu)}
    for name, table in tables.items():
        text = "".join("\t".join(map(escape, row)) + "\n" for row in table)
        (args.out / f"{name}.tsv").write_bytes(text.encode())


if __name__ == "__main__":
    main()
