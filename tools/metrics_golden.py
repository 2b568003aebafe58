#!/usr/bin/env python3
"""Writes fixtures/metrics/*.tsv, what `mae score` is tested against beyond BLEU's own tables.

    python tools/metrics_golden.py [--out fixtures/metrics]
    python tools/metrics_golden.py --compare PATH/TO/mae [--hyp FILE --ref FILE]

Needs the sacrebleu package, which is asked for the right answers. The sentences are those of bleu_golden.py with more
noise, from a fixed seed, and with words moved about. Four files:

    segments.tsv  first system, second system, first reference, second reference
    scores.tsv    flags of `mae score`, what it must print
    chinese.tsv   a translation and two references
    commands.tsv  the same as scores.tsv, by sacreBLEU's program: files of six segments of segments.tsv and chinese.tsv

Scores by pieces need the sentencepiece package, and take a small model of fixtures/sentencepiece for that of FLORES.

Escapes are those of bleu_golden.py. --compare runs the program on all settings instead, more of them than the table
has, and says how many answers are equal; with --hyp and --ref on a corpus of one's own, whose noisy hypotheses make the
second system and whose noisy references the second reference.
"""

import argparse
import itertools
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from bleu_golden import SENTENCES, escape, noisy
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

FILES = ("sys1", "sys2", "ref1", "ref2")

CHINESE = [
    ("我爱北京天安门。", "我爱北京的天安门。", "我热爱北京天安门！"),
    ("他说：“好的，花了12,000元。”版本3.5。", "他说：“好，花了12,000元。”版本 3.5。", "他说“好”，花费12,000元。"),
    ("GDP在2019年增长了6.1%，高于-预期", "2019年GDP增长6.1%,高于预期.", "GDP 2019 年增长 6.1%…"),
    ("．，。ＡＢＣ ㈱ ☆ café–bar — ‘x’ ⻣ ⽔ 𠀀𠀁 ｶﾀｶﾅ 한국어 カタカナ", "。ABC ㈱ ☆ café - bar 'x' 骨 水 𠀀𠀁 カタカナ 한국어", "x"),
    ("5.", "5.", "价格是5."),
    ("&amp; <skipped> a,b .5 5-6 1, 2", "& a, b .5 5-6 1,2", "&"),
]

BLEU_FLAGS = {"--tok intl": {"tokenize": "intl"}, "--tok char": {"tokenize": "char"}}
LOWERCASE = {"--lowercase": {"lowercase": True}}
CHRF_FLAGS = {
    "": {},
    "--chrf-word-order 2": {"word_order": 2},
    "--chrf-word-order 1 --chrf-char-order 4 --chrf-beta 3": {"word_order": 1, "char_order": 4, "beta": 3},
}
CHRF_SWITCHES = [
    {"--chrf-whitespace": {"whitespace": True}},
    {"--chrf-eps-smoothing": {"eps_smoothing": True}},
    LOWERCASE,
]
TER_SWITCHES = [
    {"--ter-normalized": {"normalized": True}},
    {"--ter-no-punct": {"no_punct": True}},
    {"--ter-asian-support": {"asian_support": True}},
    {"--ter-case-sensitive": {"case_sensitive": True}},
]


def shuffled(line: str, rng: random.Random) -> str:
    """The line with up to three runs of words moved elsewhere."""
    words = line.split(" ")
    for _ in range(rng.randint(0, 3)):
        start, size = rng.randrange(len(words)), rng.randint(1, 4)
        moved, words[start : start + size] = words[start : start + size], []
        place = rng.randint(0, len(words))
        words[place:place] = moved
    return " ".join(words)


def segments() -> list[tuple[str, ...]]:
    rng = random.Random(2020)
    rows = []
    for line in SENTENCES:
        levels = (0.4, 1.2, 0.1, 0.8)
        first, second, *references = [noisy(line, rng, level) for level in levels]
        rows.append((shuffled(first, rng), shuffled(second, rng), *references))
    # Beyond the beam, the longest shift, the farthest shift and the number of tries.
    long = " ".join(rng.choice("a b c d e f g".split()) for _ in range(70))
    other = " ".join(rng.choice("a b c d e f g".split()) for _ in range(40))
    rows += [(long, other, shuffled(long, rng), other), ("x", long, other, "y"), (other, "x y", long, long[::-1])]
    rows += [("", SENTENCES[0], SENTENCES[1], ""), (SENTENCES[2], "", "", "a"), ("", " ", "", ""), ("a", ".", "", "(")]
    return [tuple(line.replace("\n", " ").replace("\r", " ") for line in row) for row in rows]


def combined(flags: dict, switches: list[dict]):
    """Every choice of flags with every subset of the switches."""
    for (flag, settings), subset in itertools.product(
        flags.items(), itertools.product(*([("", {}), *switch.items()] for switch in switches))
    ):
        names = [flag, *(name for name, _ in subset)]
        yield " ".join(filter(None, names)), settings | {k: v for _, more in subset for k, v in more.items()}


def metrics():
    """Flags of `mae score` and how to make sacreBLEU's metric."""
    for flags, settings in combined(BLEU_FLAGS, [LOWERCASE]):
        yield f"--metric bleu {flags}", lambda s=settings: BLEU(force=True, **s)
    for flags, settings in combined(CHRF_FLAGS, CHRF_SWITCHES):
        yield f"--metric chrf {flags}".strip(), lambda s=settings: CHRF(**s)
    for flags, settings in combined({"": {}}, TER_SWITCHES):
        yield f"--metric ter {flags}".strip(), lambda s=settings: TER(**s)


def corpus_row(columns, flags, make, nrefs, width, samples=1):
    metric = make()
    score = metric.corpus_score(columns[0], columns[2 : 2 + nrefs], n_bootstrap=samples)
    flags += " --ref ref2" if nrefs == 2 else ""
    flags += f" --confidence --samples {samples}" if samples > 1 else ""
    line = score.format(width=width, signature=str(metric.get_signature()))
    return f"--sys sys1 --ref ref1 --width {width} {flags}", line


def command_row(folder, flags):
    """sacreBLEU's own program; its flags have our names."""
    names = {"--sys": "-i", "--ref": None, "--tok": "--tokenize", "--spm-model": None, "--metric": "-m"}
    words, references, command = flags.split(), [], []
    while words:
        word = words.pop(0)
        if word == "--ref":
            references.append(words.pop(0))
        elif word == "--spm-model":
            words.pop(0)
        else:
            command.append(names.get(word, word))
    command = [sys.executable, "-m", "sacrebleu", *references, *command, "-f", "text"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {"SACREBLEU": str(folder)})
    assert run.returncode == 0, (flags, run.stderr)
    return flags, run.stdout.rstrip("\n")


def command_rows(rows):
    """What sacreBLEU's program alone can say: sentence by sentence, references in one file, Chinese, pieces."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write(folder, rows[:6])
        both = zip(*[[line.rstrip() or "-" for line in column] for column in list(zip(*rows[:6]))[2:]])
        (folder / "tsv").write_text("".join("\t".join(pair) + "\n" for pair in both), "utf-8")
        for name, column in zip(("zh", "zh1", "zh2"), zip(*CHINESE)):
            (folder / name).write_text("".join(line + "\n" for line in column), "utf-8")
        (folder / "models").mkdir()
        model = pathlib.Path(__file__).parent.parent / "fixtures/sentencepiece/unigram.model"
        for name in ("sacrebleu_tokenizer_spm.model", "flores200sacrebleuspm"):
            (folder / "models" / name).write_bytes(model.read_bytes())
        one, two = "--sys sys1 --ref ref1", "--sys sys1 --ref tsv --num-refs 2"
        flags = [f"{files} --metric {metric} {more}" for files in (one, two) for metric in ("bleu", "chrf", "ter")
                 for more in ("--sentence-level --width 6", "--width 6")]  # fmt: skip
        flags += [f"{one} --sentence-level --score-only --width 3", f"{two} --lowercase --score-only --width 3"]
        zh = "--sys zh --ref zh1"
        flags += [f"{zh} --tok {tok} {more}" for tok in ("zh", "char", "13a")
                  for more in ("--width 6", "--sentence-level --width 6", "--ref zh2 --width 6 --lowercase")]  # fmt: skip
        flags += [f"{files} --tok {tok} --spm-model spm {more}" for files, tok in ((one, "flores101"), (zh, "flores200"), (zh, "spm"))
                  for more in ("--width 6", "--sentence-level --width 4 --lowercase")]  # fmt: skip
        for line in flags:
            yield command_row(folder, line)


def paired_row(columns, flags, make, nrefs, width, samples, test_type="bs"):
    systems = [(name, columns[i]) for i, name in enumerate(FILES[:2])]
    test = PairedTest(systems, {"metric": make()}, columns[2 : 2 + nrefs], test_type=test_type, n_samples=samples)
    signatures, results = test()
    names = results.pop("System")
    ((metric, results),) = results.items()
    lines = [f"{metric}|{signatures[metric]}"]
    for name, result in zip(names, results):
        line = f"{name}  {result.score:.{width}f}"
        if result.mean is not None:
            line += f" ({result.mean:.{width}f} ± {result.ci:.{width}f})"
        if result.p_value is not None:
            line += f" (p = {result.p_value:.4f})" + ("" if result.p_value > 0.05 else "*")
        lines.append(line)
    flags += " --ref ref2" if nrefs == 2 else ""
    return f"--sys sys1 --sys sys2 --ref ref1 --width {width} {flags} --paired-{test_type} --samples {samples}", "\n".join(lines)


def scores(rows, everything: bool):
    # The program takes blanks off the ends of lines, and so does sacreBLEU's.
    columns = [[line.rstrip() for line in column] for column in zip(*rows)]
    for i, (flags, make) in enumerate(metrics()):
        for nrefs in (1, 2) if everything else (1 + i % 2,):
            yield corpus_row(columns, flags, make, nrefs, 11)
        if everything or i % 4 == 0:
            yield corpus_row(columns, flags, make, 2 - i % 2, 5, 300)
            yield paired_row(columns, flags, make, 2 - i % 2, 5, 1000 if everything else 400)
            yield paired_row(columns, flags, make, 2 - i % 2, 5, 1000 if everything else 400, "ar")


def write(folder: pathlib.Path, rows):
    for name, column in zip(FILES, zip(*rows)):
        (folder / name).write_bytes("".join(line + "\n" for line in column).encode())


def compare(program: str, rows):
    equal, settings = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        write(pathlib.Path(folder), rows)
        for flags, expected in scores(rows, everything=True):
            command = [program, "score", *flags.split()]
            found = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            settings += 1
            if found.stdout == expected + "\n":
                equal += 1
            else:
                print(f"{flags}\n  expected {expected!r}\n  found    {found.stdout!r} {found.stderr}", flush=True)
    print(f"{equal} of {settings} answers are equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="fixtures/metrics", type=pathlib.Path)
    parser.add_argument("--compare", metavar="MAE", type=pathlib.Path, help="the program to compare with")
    parser.add_argument("--hyp", type=pathlib.Path)
    parser.add_argument("--ref", type=pathlib.Path)
    parser.add_argument("--lines", type=int, help="of the corpus, the first so many")
    args = parser.parse_args()
    rows = segments()
    if args.hyp:
        rng = random.Random(1)
        pairs = list(zip(*(path.read_text("utf-8").split("\n")[:-1] for path in (args.hyp, args.ref))))[: args.lines]
        rows = [(h, shuffled(noisy(h, rng, 0.3), rng), r, noisy(r, rng, 0.5)) for h, r in pairs]
        rows = [tuple(line.replace("\r", " ") for line in row) for row in rows]
    if args.compare:
        compare(str(args.compare.resolve()), rows)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    tables = {"segments": rows, "scores": scores(rows, everything=False)}
    tables |= {"chinese": CHINESE, "commands": command_rows(rows)}
    for name, table in tables.items():
        text = "".join("\t".join(map(escape, row)) + "\n" for row in table)
        (args.out / f"{name}.tsv").write_bytes(text.encode())


if __name__ == "__main__":
    main()
