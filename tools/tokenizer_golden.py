#!/usr/bin/env python3
"""Makes the golden files in fixtures/tokenizer with Hugging Face's tokenizers package (0.23.3).

    pip install tokenizers==0.23.3 && python tools/tokenizer_golden.py

Four small tokenisers are trained on fixtures/bpe/corpus.{de,en}; lines.txt, with the hard cases, goes through each of them:
NAME.pieces has a line of pieces for each line, NAME.text what they decode to.
"""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
LINES = [
    "seventeen houses and twenty-three bicycles",
    "siebenundsiebzig Häuser, Mäuse und Straßen!",
    "it's  we've I'll 'S 12x34?! a_b",
    "  two at the start, two at the end  ",
    "naïve café 漢字 \U0001f600",
    "",
    "x y <u> &amp;",
]
BYTES = pre_tokenizers.ByteLevel.alphabet()


def tokenizers():
    yield "bytelevel", {}, {
        "pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False), "decoder": decoders.ByteLevel(),
    }, {"initial_alphabet": BYTES}
    yield "sequence", {}, {
        "normalizer": normalizers.Lowercase(), "decoder": decoders.ByteLevel(),
        "pre_tokenizer": pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=True)]
        ),
    }, {"initial_alphabet": BYTES}
    yield "whitespace", {"unk_token": "<unk>", "end_of_word_suffix": "</w>"}, {
        "pre_tokenizer": pre_tokenizers.Whitespace(), "decoder": decoders.BPEDecoder(suffix="</w>"),
    }, {"end_of_word_suffix": "</w>"}
    yield "metaspace", {"unk_token": "<unk>"}, {
        "pre_tokenizer": pre_tokenizers.Metaspace(), "decoder": decoders.Metaspace(),
    }, {}


def main():
    out = FIXTURES / "tokenizer"
    out.mkdir(exist_ok=True)
    (out / "lines.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    corpus = [str(FIXTURES / "bpe" / f"corpus.{lang}") for lang in ("de", "en")]
    for name, model, parts, training in tokenizers():
        tokenizer = Tokenizer(models.BPE(**model))
        for part, value in parts.items():
            setattr(tokenizer, part, value)
        trainer = trainers.BpeTrainer(
            vocab_size=360, special_tokens=["<s>", "</s>", "<unk>"], show_progress=False, **training
        )
        tokenizer.train(corpus, trainer)
        tokenizer.save(str(out / f"{name}.json"), pretty=False)
        pieces, texts = [], []
        for line in LINES:
            encoded = tokenizer.encode(line, add_special_tokens=False)
            pieces.append(" ".join(encoded.tokens))
            texts.append(tokenizer.decode(encoded.ids, skip_special_tokens=False))
        for ending, lines in ("pieces", pieces), ("text", texts):
            (out / f"{name}.{ending}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
