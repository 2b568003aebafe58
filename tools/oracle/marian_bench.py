"""Translation speed of a peer people use: Hugging Face's MarianMTModel and `generate`, with the weights of a BASE model folder of ours.

    python marian_bench.py MODEL DATA [--gen-subset test] [--beam 5] [--dtype bf16|fp16|f32] [--batch-sentences 64,128,256,512]
                           [--max-len-a 0] [--max-len-b 200] [--limit N] [--output FILE] [--device cuda] [--threads N]
    python marian_bench.py MODEL DATA --check 20

The function is the same: weights by name, sinusoids of ours in place of Marian's, decoding that begins with </s>. `--check N` holds
its logits for the first N sentence pairs against the oracle's (float32, on the CPU) and stops with an error if they differ by more than 1e-4.

The search is fairseq's as far as `generate` goes: no end mark first, never <pad>, scores divided by the length with the end mark, a sentence
is done with `--beam` finished hypotheses (`early_stopping`). What differs: the length limit is the longest source's of a batch; a
hypothesis cut there gets its end mark for free; sentences that are done stay in their batch until all are.
All weights and activations have `--dtype`, as `from_pretrained(dtype=...)` gives it; scores are float32.

Sentences are sorted by source length, longest first, and cut into batches of `--batch-sentences`. Each size is run once over the whole
set after one untimed batch; the clock covers copies to and from the device, not the joining of words. Prints one JSON object, for the
size that was fastest (`tried` has them all), and writes its translations, BPE joined, in the order of the input. Output tokens count the end mark.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from transformers import MarianConfig, MarianMTModel

from mae_oracle import EOS, PAD, sinusoids
from train_curve import Pairs, load_translator

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "f32": torch.float32}


def load_marian(folder: Path) -> MarianMTModel:
    c = tomllib.loads((folder / "config.toml").read_text())["model"]
    share = c.get("share_embeddings", "decoder")
    if c.get("mixture", {}).get("system", "base") != "base" or c.get("norm", "post") != "post" or share not in ("decoder", "all"):
        raise SystemExit(f"{folder}: only BASE, post-norm, with tied output embeddings is a Marian model")
    tensors = load_file(folder / "model.safetensors")
    if share == "all":
        tensors["decoder.embed_tokens.weight"] = tensors["encoder.embed_tokens.weight"]
    positions, width = c.get("max_positions", 1024), c["encoder_embed_dim"]
    sizes = {f"{side}_{key}": c[f"encoder_{ours}"] for side in ("encoder", "decoder")
             for key, ours in (("ffn_dim", "ffn_embed_dim"), ("attention_heads", "attention_heads"))}
    # One dictionary for both sides is still two embeddings here, with the same values: it makes no difference to speed.
    model = MarianMTModel(MarianConfig(
        vocab_size=len(tensors["encoder.embed_tokens.weight"]), decoder_vocab_size=len(tensors["decoder.embed_tokens.weight"]),
        share_encoder_decoder_embeddings=False, tie_word_embeddings=True, d_model=width, scale_embedding=True, activation_function="relu",
        encoder_layers=c["encoder_layers"], decoder_layers=c["decoder_layers"], max_position_embeddings=positions, dropout=0.0, bos_token_id=0,
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=EOS, forced_eos_token_id=EOS, **sizes))
    tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"]
    for side in "encoder", "decoder":
        tensors[f"model.{side}.embed_positions.weight"] = sinusoids(positions + 2, width)[2:]   # fairseq's first position is 2
    tensors["final_logits_bias"] = torch.zeros(1, len(tensors["lm_head.weight"]))
    model.load_state_dict(tensors)
    model.config.vocab_size = model.config.decoder_vocab_size   # `generate`'s beam search counts continuations by this one
    return model.eval()


def check(marian: MarianMTModel, folder: Path, pairs: Pairs, count: int):
    """The largest difference of a logit, batched and padded."""
    oracle = load_translator(tomllib.loads((folder / "config.toml").read_text())["model"], folder).eval()
    source, before, target, tokens = pairs.batch(np.arange(min(count, len(pairs.source.sizes))))
    with torch.inference_mode():
        want = oracle(source, before, "plain")[target.ne(PAD)]
        found = marian(input_ids=source, attention_mask=source.ne(PAD), decoder_input_ids=before).logits[target.ne(PAD)]
    difference = (want - found).abs().max().item()
    print(json.dumps({"target_tokens": tokens, "largest_logit": want.abs().max().item(), "largest_difference": difference}))
    if not difference < 1e-4:
        sys.exit(1)


@torch.inference_mode()
def translate(model, pairs: Pairs, batches: list[np.ndarray], a) -> dict[int, list[int]]:
    """The ids of each sentence's best hypothesis, end mark included."""
    found = {}
    for batch in batches:
        source = pairs.source.rectangle(batch)
        longest = min(int(a.max_len_a * source.shape[1]) + a.max_len_b, model.config.max_position_embeddings - 1)
        out = model.generate(input_ids=source, attention_mask=source.ne(PAD), num_beams=a.beam, do_sample=False, length_penalty=1.0,
                             early_stopping=True, max_new_tokens=longest + 1, min_new_tokens=1, suppress_tokens=[PAD])
        for i, row in zip(batch.tolist(), out[:, 1:].tolist()):
            found[i] = [token for token in row if token != PAD]
    return found


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("model", type=Path); ap.add_argument("data", type=Path)
    ap.add_argument("--gen-subset", default="test"); ap.add_argument("--beam", type=int, default=5)
    ap.add_argument("--dtype", choices=DTYPES, default="bf16")
    ap.add_argument("--batch-sentences", default="64,128,256,512", help="sizes to try")
    ap.add_argument("--max-len-a", type=float, default=0.0); ap.add_argument("--max-len-b", type=int, default=200)
    ap.add_argument("--limit", type=int, help="the first N sentences only")
    ap.add_argument("--output", type=Path, help="translations, one line per sentence")
    ap.add_argument("--check", type=int, metavar="N", help="compare logits with the oracle's and exit")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--threads", type=int, help="CPU threads (PyTorch's default when absent)")
    a = ap.parse_args()
    if a.threads: torch.set_num_threads(a.threads)
    transformers.logging.set_verbosity_error()
    model = load_marian(a.model)
    if a.check:
        return check(model, a.model, Pairs(a.data, a.gen_subset, "cpu"), a.check)
    model, pairs = model.to(a.device, DTYPES[a.dtype]), Pairs(a.data, a.gen_subset, a.device)
    count = len(pairs.source.sizes[: a.limit])
    words = np.flatnonzero(pairs.source.sizes[:count] > 1)      # an empty line is its own translation
    order = words[np.argsort(-pairs.source.sizes[words], kind="stable")]
    tried, best = {}, None
    for size in map(int, a.batch_sentences.split(",")):
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        translate(model, pairs, batches[:1], a)
        begun = time.time()
        found = translate(model, pairs, batches, a)     # ends with the ids on the host: nothing is left running
        seconds = time.time() - begun
        tokens = sum(map(len, found.values()))
        tried[size] = round(tokens / seconds, 1)
        print(f"{size} sentences per batch: {tried[size]:,} target tokens/s", file=sys.stderr, flush=True)
        if best is None or tried[size] == max(tried.values()):
            best = {"peer": f"transformers {transformers.__version__} MarianMTModel", "device": torch.device(a.device).type, "dtype": a.dtype, "beam": a.beam,
                    "batch_sentences": size, "sentences": count, "output_tokens": tokens, "seconds": round(seconds, 3),
                    "sentences_per_s": round(count / seconds, 2), "target_tokens_per_s": tried[size]}, found
    line, found = best
    if torch.device(a.device).type == "cuda":
        line["peak_gpu_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    print(json.dumps(line | {"tried": tried}), flush=True)
    if a.output:
        lines = (a.model / "dict.tgt.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
        symbols = SPECIALS + [line.removesuffix(" #fairseq:overwrite").rsplit(" ", 1)[0] for line in lines]
        join = lambda ids: (" ".join(symbols[i] for i in ids if i != EOS) + " ").replace("@@ ", "").rstrip()
        a.output.write_text("".join(join(found.get(i, [])) + "\n" for i in range(count)), encoding="utf-8")


if __name__ == "__main__":
    main()
