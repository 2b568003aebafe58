"""Writes a model folder that `mae` must load, with random weights, and what the oracle says of some sentences.

    python write_model_folder.py OUT [--base] [--share-all] [--heads 8 --dropped 2 ...]
    mae generate OUT --source OUT/src.txt --target OUT/tgt.txt --score-reference --jsonl > scores.jsonl
    python check_scores.py OUT/expected.jsonl scores.jsonl

The folder holds model.safetensors, config.toml, dict.src.txt and dict.tgt.txt, and besides src.txt and tgt.txt (some words
of which the dictionaries do not know) expected.jsonl: the natural-log probability of each target token, eos included,
in evaluation mode, computed in float64 one sentence at a time. Same options, same bytes.
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from common import float64, stir, weights, write_safetensors
from mae_oracle import EOS, UNK, Config, Translator

SPECIALS = 4


def config_toml(c: Config) -> str:
    lines = f"""format = 1

[model]
arch = "custom"
encoder_layers = {c.layers}
decoder_layers = {c.layers}
encoder_embed_dim = {c.width}
encoder_ffn_embed_dim = {c.inner}
encoder_attention_heads = {c.heads}
dropout = {c.dropout}
attention_dropout = 0.0
activation_dropout = 0.0
norm = "post"
share_embeddings = "{'all' if c.share_all else 'decoder'}"
max_positions = {c.max_positions}

[model.mixture]
system = "{'mae' if c.gated else 'base'}"
"""
    if c.gated:
        lines += f"""dropped_heads = {c.dropped}
gate_hidden = {c.gate_hidden}
gate_dropout = {c.gate_dropout}
decoder_gate = "causal"
cross_gate = "query"
sampling_unit = "row"
"""
    return lines


def words(prefix: str, vocab: int) -> list[str]:
    return [f"{prefix}{i:04d}" for i in range(SPECIALS, vocab)]


def ids(line: list[str], table: dict[str, int]) -> list[int]:
    return [table.get(w, UNK) for w in line] + [EOS]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("out", type=Path)
    ap.add_argument("--base", action="store_true", help="plain attention, no gates")
    ap.add_argument("--share-all", action="store_true", help="one matrix (and one dictionary, of --src-vocab types) for both sides and the output")
    ap.add_argument("--width", type=int, default=16); ap.add_argument("--inner", type=int, default=20)
    ap.add_argument("--heads", type=int, default=4); ap.add_argument("--layers", type=int, default=2)
    ap.add_argument("--dropped", type=int, default=1); ap.add_argument("--gate-hidden", type=int, default=10)
    ap.add_argument("--src-vocab", type=int, default=53, help="types, the four specials included"); ap.add_argument("--tgt-vocab", type=int, default=47)
    ap.add_argument("--sentences", type=int, default=20); ap.add_argument("--max-words", type=int, default=30)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    torch.set_num_threads(1)
    if a.width % a.heads or a.width % 2:
        ap.error("--width must be even and a multiple of --heads")
    c = Config(src_vocab=a.src_vocab, tgt_vocab=a.src_vocab if a.share_all else a.tgt_vocab, width=a.width, inner=a.inner, heads=a.heads,
               layers=a.layers, dropped=a.dropped, gated=not a.base, gate_hidden=a.gate_hidden, share_all=a.share_all)
    weight_rng, text_rng = map(np.random.default_rng, np.random.SeedSequence(a.seed).spawn(2))
    model = Translator(c)
    stir(model, weight_rng)

    a.out.mkdir(parents=True, exist_ok=True)
    write_safetensors(a.out / "model.safetensors", weights(model), {"format": "pt", "made_by": "tools/oracle/write_model_folder.py"})
    (a.out / "config.toml").write_text(config_toml(c))
    sides = {}
    for side, vocab in ("src", c.src_vocab), ("tgt", c.tgt_vocab):
        names = words("w" if c.share_all else side[0], vocab)
        (a.out / f"dict.{side}.txt").write_text("".join(f"{w} 1\n" for w in names))
        table = {w: i for i, w in enumerate(names, SPECIALS)}
        lines = []
        for _ in range(a.sentences):
            line = [names[i] for i in text_rng.integers(0, len(names), text_rng.integers(1, a.max_words + 1))]
            if text_rng.random() < 0.25:
                line[text_rng.integers(0, len(line))] = "unheard-of"
            lines.append(line)
        (a.out / f"{side}.txt").write_text("".join(" ".join(line) + "\n" for line in lines))
        sides[side] = [ids(line, table) for line in lines]

    float64(model).eval()
    with torch.no_grad(), open(a.out / "expected.jsonl", "w") as f:
        for i, (src, tgt) in enumerate(zip(sides["src"], sides["tgt"])):
            logits = model(torch.tensor([src]), torch.tensor([[EOS] + tgt[:-1]]), "mix" if c.gated else "plain")[0]
            logp = F.log_softmax(logits, -1)[range(len(tgt)), tgt]
            f.write(json.dumps({"id": i, "logprobs": [round(x, 12) for x in logp.tolist()]}) + "\n")
    print(f"{a.out}: {sum(p.numel() for p in model.parameters()):,} parameters, {a.sentences} sentences")


if __name__ == "__main__":
    main()
