"""Pieces, ids and texts of the sentencepiece package (Apache-2.0), which `mae` must equal.

    python tools/sentencepiece_golden.py                        writes fixtures/sentencepiece
    python tools/sentencepiece_golden.py --out DIR --model M … --lines FILE …
                                                                the same for other models and texts (see below)

Without arguments: small models of all kinds are trained on texts of this repository. With them: DIR/models/M and
DIR/expected/models__M.jsonl, for

    MAE_SENTENCEPIECE_CASES=DIR cargo test --release -p mae-data sentencepiece -- --nocapture
"""
import argparse, json, shutil, tempfile
from pathlib import Path
import sentencepiece as spm

ROOT = Path(__file__).parent.parent
# Characters, their replacements: what NFKC and SentencePiece's own rules do, in small.
RULES = [("Ａ", "A"), ("ａ", "a"), ("１", "1"), ("ﬁ", "fi"), ("ﬀ", "ff"), ("\u00a0", " "), ("\u3000", " "), ("\u2003", " "),
         ("\t", " "), ("\u200b", ""), ("\u00ad", ""), ("か\u3099", "が"), ("e\u0301", "é"), ("①", "1"), ("㍿", "株式会社"),
         ("½", "1⁄2"), ("…", "..."), ("～", "~"), ("\u2028", " "), ("ſ", "s"), ("Ⅷ", "VIII")]
CASES = """
Hello world
  two  blanks   and three 
Zwei Häuser, drei Mäuse; 1234567890!
Ａａ１ ﬁne eﬀort ½ … ～ Ⅷ ① ſ
か\u3099 かき 日本語 がぎぐ 株式会社 ㍿
cafe\u0301 café
\u00a0no break\u00a0 here\u3000wide\u2003em\u2028line
soft\u00adhyphen zero\u200bwidth
<s> </s> <unk> <pad> <sep> <sep>a <sep> b <cls><sep>
▁ ▁▁ a▁b
 
😀 👩‍👩‍👧 🇩🇪 \ufffd \ufeff
Ελληνικά кириллица العربية עברית हिन्दी ไทย 한국어 中文
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbb
x
\u0301combining \u0307first
a\tb\x0bc\x0cd\x1ee\x85f
http://example.org/path?query=1&x=%20 user@example.org
ÄÖÜäöüß ŉ ǆ İi ıI
the theth thethe
"""


def record(model, text):
    ids = model.encode(text)
    return {"in": text, "pieces": model.encode(text, out_type=str), "ids": ids, "dec": model.decode(ids)}


def write(path, model, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as out:
        for line in lines:
            out.write(json.dumps(record(model, line), ensure_ascii=False) + "\n")


def golden(out):
    text = (ROOT / "docs/experts.md", ROOT / "README.md", ROOT / "docs/formats.md")
    text = [line for path in text if path.exists() for line in path.read_text().splitlines() if line.strip()]
    german = (ROOT / "fixtures/moses").glob("*.de*")
    text += [line for path in sorted(german) for line in path.read_text().splitlines() if line.strip()][:300]
    cases = [line for line in CASES.split("\n")] + text[::12]
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        rules = Path(work) / "rules.tsv"
        hexes = lambda s: " ".join(f"{ord(c):X}" for c in s)
        rules.write_text("".join(f"{hexes(a)}\t{hexes(b)}\n" for a, b in RULES))
        common = dict(sentence_iterator=iter([]), vocab_size=400, num_threads=1, hard_vocab_limit=False, minloglevel=2,
                      normalization_rule_tsv=str(rules))
        for name, options in {
            "unigram": {},
            "unigram_bytes": dict(byte_fallback=True, user_defined_symbols=["<sep>", "<cls>", "the"], vocab_size=700),
            "unigram_raw": dict(normalization_rule_name="identity", normalization_rule_tsv="", add_dummy_prefix=False,
                                remove_extra_whitespaces=False, user_defined_symbols=["  ", "▁▁"]),
            "merges": dict(model_type="bpe"),
            "merges_bytes": dict(model_type="bpe", byte_fallback=True, vocab_size=700, user_defined_symbols=["<sep>", "the"],
                                 normalization_rule_name="identity", normalization_rule_tsv="", remove_extra_whitespaces=False),
            "merges_suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True, unk_surface=" UNK "),
            "characters": dict(model_type="char", user_defined_symbols=["<sep>"]),
        }.items():
            options = {**common, **options, "sentence_iterator": iter(text)}
            options = {k: v for k, v in options.items() if v != ""}
            prefix = Path(work) / name
            spm.SentencePieceTrainer.train(model_prefix=str(prefix), **options)
            out.mkdir(parents=True, exist_ok=True)
            shutil.copy(f"{prefix}.model", out / f"{name}.model")
            write(out / "expected" / f"{name}.model.jsonl", spm.SentencePieceProcessor(model_file=f"{prefix}.model"), cases)


ap = argparse.ArgumentParser()
ap.add_argument("--out", type=Path, default=ROOT / "fixtures/sentencepiece")
ap.add_argument("--model", type=Path, nargs="*", default=[])
ap.add_argument("--lines", type=Path, nargs="*", default=[])
args = ap.parse_args()
if not args.model:
    golden(args.out)
lines = [line for path in args.lines for line in path.read_text().split("\n")]
for path in args.model:
    (args.out / "models").mkdir(parents=True, exist_ok=True)
    name = f"{path.parent.name}-{path.name}"
    shutil.copyfile(path, args.out / "models" / name)
    write(args.out / "expected" / f"models__{name}.jsonl", spm.SentencePieceProcessor(model_file=str(path)), lines)
