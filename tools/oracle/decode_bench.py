"""The PyTorch peer's decoding speed, run naively: a full pass of the decoder for every step, no cache.

    python decode_bench.py [--variant base|mae7|mae6] [--beams 1,5] [--sentences 64] [--batch 32] [--src-lengths 15,20,25,30]
                           [--length 25] [--device cuda] [--threads N] [--json]

Weights are random, so lengths are forced: every hypothesis gets exactly `--length` tokens and eos is never chosen. The source
is encoded once per batch and only the last position is projected on the vocabulary; all else is computed again at each
step. `--src-lengths` (with eos) are dealt to the sentences in turn. One batch is decoded before the clock starts.
Prints sentences and target tokens (of the best hypothesis) per second.
"""
import argparse, json, time
import numpy as np
import torch
import torch.nn.functional as F
from mae_oracle import Config, Translator, PAD, EOS


def log_probs(model, prev, memory, memory_mask, mode):
    """Log-probabilities of the token after each prefix; special symbols (bos, pad, eos, unk) are ruled out."""
    x, mask = model.decoder.embed(prev), prev.ne(PAD)
    for layer in model.decoder.layers:
        x = layer(x, mask, mode, memory, memory_mask)
    out = F.log_softmax(F.linear(x[:, -1], model.decoder.embed_tokens.weight).float(), -1)
    out[:, :4] = -torch.inf
    return out


@torch.inference_mode()
def decode(model, src, beam, length, mode):
    """Greedy search for beam 1. Returns the best hypothesis of every sentence, [sentences, length]."""
    n = len(src)
    memory, memory_mask = model.encode(src, mode)
    memory, memory_mask = memory.repeat_interleave(beam, 0), memory_mask.repeat_interleave(beam, 0)
    prev = torch.full((n * beam, 1), EOS, device=src.device)
    score = torch.full((n, beam), -torch.inf, device=src.device)
    score[:, 0] = 0  # all beams start alike: only the first may grow
    first = torch.arange(n, device=src.device).unsqueeze(1) * beam
    for _ in range(length):
        logp = log_probs(model, prev, memory, memory_mask, mode)
        vocab = logp.shape[1]
        score, choice = (score.unsqueeze(-1) + logp.view(n, beam, vocab)).view(n, -1).topk(beam, -1)
        rows = (first + choice // vocab).view(-1)
        prev = torch.cat([prev[rows], (choice % vocab).view(-1, 1)], 1)
    return prev.view(n, beam, -1)[:, 0, 1:]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--variant", default="mae7", choices=["base", "mae7", "mae6"])
    ap.add_argument("--beams", default="1,5", help="beam sizes to measure, 1 is greedy")
    ap.add_argument("--sentences", type=int, default=64); ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--src-lengths", default="15,20,25,30"); ap.add_argument("--length", type=int, default=25)
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--width", type=int, default=512); ap.add_argument("--inner", type=int, default=1024)
    ap.add_argument("--layers", type=int, default=6); ap.add_argument("--heads", type=int, default=8)
    ap.add_argument("--src-vocab", type=int, default=8848); ap.add_argument("--tgt-vocab", type=int, default=6632)
    ap.add_argument("--threads", type=int, help="CPU threads (PyTorch's default when absent)")
    ap.add_argument("--json", action="store_true", help="one JSON object per measurement")
    a, _ = ap.parse_known_args()                 # `mae bench decode` names files that this peer does not need
    if a.threads: torch.set_num_threads(a.threads)
    torch.manual_seed(1); torch.backends.cuda.matmul.allow_tf32 = True
    dev = torch.device(a.device); cuda = dev.type == "cuda"
    c = Config(width=a.width, inner=a.inner, layers=a.layers, heads=a.heads, src_vocab=a.src_vocab, tgt_vocab=a.tgt_vocab,
               gated=a.variant != "base", dropped=2 if a.variant == "mae6" else 1)
    model = Translator(c).to(dev).eval()
    mode = "mix" if c.gated else "plain"
    rng, lengths = np.random.default_rng(1), [int(x) for x in a.src_lengths.split(",")]
    rows = [np.append(rng.integers(4, c.src_vocab, lengths[i % len(lengths)] - 1), EOS) for i in range(a.sentences)]
    data = []
    for i in range(0, len(rows), a.batch):
        part = rows[i : i + a.batch]
        src = torch.full((len(part), max(map(len, part))), PAD)
        for r, ids in enumerate(part): src[r, : len(ids)] = torch.from_numpy(ids)
        data.append(src.to(dev))

    for beam in [int(x) for x in a.beams.split(",")]:
        with torch.autocast(dev.type, torch.bfloat16, enabled=cuda):
            decode(model, data[0], beam, a.length, mode)
            if cuda: torch.cuda.synchronize()
            t0 = time.time()
            tokens = sum(decode(model, src, beam, a.length, mode).numel() for src in data)
            if cuda: torch.cuda.synchronize()
        dt = time.time() - t0
        if a.json:
            print(json.dumps({"variant": a.variant, "beam": beam, "device": dev.type, "threads": torch.get_num_threads(), "sentences": a.sentences,
                              "batch": a.batch, "length": a.length, "seconds": dt, "sentences_per_s": a.sentences / dt,
                              "target_tokens_per_s": tokens / dt}), flush=True)
        else:
            print(f"{a.variant} beam {beam} {dev.type}, {torch.get_num_threads()} threads: {a.sentences/dt:.2f} sentences/s, "
                  f"{tokens/dt:,.0f} target tokens/s ({a.sentences} sentences, batch {a.batch}, {a.length} tokens each, {dt:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
