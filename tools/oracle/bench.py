"""The PyTorch peer's training speed on IWSLT14-shaped batches, on whatever device is there.

    python3 bench.py [--variant base|mae7|mae6] [--compile] [--fixed [N]] [--steps 100] [--max-tokens 4096] [--device cuda] [--threads N] [--autocast] [--json]
    python3 bench.py --inner 2048 --src-vocab 32768 --tgt-vocab 32768 --sentences 4500000 --max-tokens 27500 --steps 40     # WMT14's shape

Batches are made as fairseq makes them: lengths drawn to look like IWSLT14 after 10k BPE, sentences sorted
by length, (n+1) * longest <= max-tokens, batch order shuffled. `--sentences` is the size of the corpus: with few, a batch spans many
lengths and is padded more than one of a real corpus (IWSLT14 has 160,000 pairs, WMT14 4,500,000). Every batch is run once before the clock starts, so
that shapes are warm, as they are from fairseq's second epoch on. `--fixed [N]` gives all batches one shape (128 or N sentences
of 26/25 tokens), the peer's best case: it lets `--compile` use CUDA graphs ("reduce-overhead"). Prints real (unpadded) target tokens per second,
milliseconds per update, for the F step (and, for the gated variants, the G step). `--threads` sets PyTorch's CPU threads; `--autocast` computes in bf16 on a CPU as on a GPU; `--json` prints one JSON object per
measurement instead, with the same figures and, on CUDA, the peak of allocated memory since the program began its warm-up of that step.
"""
import argparse, json, time
import numpy as np
import torch
from mae_oracle import Config, Translator, smoothed_loss, PAD, EOS


def batches(rng, n, max_tokens, c, fixed, size=40000):
    src = np.clip(np.exp(rng.normal(3.0, 0.62, size)).astype(int), 2, 174) + 1
    tgt = np.clip((src * np.exp(rng.normal(-0.05, 0.18, size))).astype(int), 2, 174) + 1
    order = np.lexsort((tgt, src))
    out, cur, longest = [], [], 0
    for i, length in zip(order.tolist(), np.maximum(src, tgt)[order].tolist()):
        m = max(longest, length)
        if (len(cur) + 1) * m > max_tokens and cur:
            out.append(cur); cur, m = [], length
        cur.append(i); longest = m
    rng.shuffle(out)
    if fixed:
        src[:], tgt[:] = 26, 25
        out = [list(range(fixed))] * n
    for rows in out[:n]:
        s = torch.full((len(rows), src[rows].max()), PAD); p = torch.full((len(rows), tgt[rows].max()), PAD); t = p.clone()
        for r, i in enumerate(rows):
            a = torch.from_numpy(rng.integers(4, c.src_vocab, src[i])); a[-1] = EOS; s[r, : src[i]] = a
            b = torch.from_numpy(rng.integers(4, c.tgt_vocab, tgt[i])); b[-1] = EOS; t[r, : tgt[i]] = b
            p[r, 0] = EOS; p[r, 1 : tgt[i]] = b[:-1]
        yield s, p, t, int(tgt[rows].sum()), int(src[rows].sum())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="mae7"); ap.add_argument("--compile", action="store_true")
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--fixed", type=int, nargs="?", const=128, default=0, metavar="SENTENCES", help="every batch has so many sentences of 26 and 25 tokens [128]")
    ap.add_argument("--sentences", type=int, default=40000, help="size of the corpus that is cut into batches: the larger, the less padding")
    ap.add_argument("--max-tokens", type=int, default=4096); ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--width", type=int, default=512); ap.add_argument("--inner", type=int, default=1024)
    ap.add_argument("--layers", type=int, default=6); ap.add_argument("--heads", type=int, default=8)
    ap.add_argument("--src-vocab", type=int, default=8848); ap.add_argument("--tgt-vocab", type=int, default=6632)
    ap.add_argument("--threads", type=int, help="CPU threads (PyTorch's default when absent)")
    ap.add_argument("--autocast", action="store_true", help="bf16 autocast on a CPU, too (a GPU always has it)")
    ap.add_argument("--json", action="store_true", help="one JSON object per measurement")
    a = ap.parse_args()
    if a.threads: torch.set_num_threads(a.threads)
    torch.manual_seed(1); torch.backends.cuda.matmul.allow_tf32 = True
    dev = torch.device(a.device); cuda = dev.type == "cuda"
    c = Config(width=a.width, inner=a.inner, layers=a.layers, heads=a.heads, src_vocab=a.src_vocab, tgt_vocab=a.tgt_vocab,
               gated=a.variant in ("mae7", "mae6"), dropped=2 if a.variant == "mae6" else 1)
    model = Translator(c).to(dev).train()
    gate, rest = model.groups()
    adam = torch.optim.AdamW(rest, lr=5e-4, betas=(0.9, 0.98), weight_decay=1e-4, fused=cuda)
    sgd = torch.optim.SGD(gate, lr=1.0) if gate else None
    call = model
    if a.compile:
        call = torch.compile(model, mode="reduce-overhead") if a.fixed else torch.compile(model, dynamic=True)
    data = [tuple(x.to(dev) if torch.is_tensor(x) else x for x in b) for b in batches(np.random.default_rng(1), a.steps, a.max_tokens, c, a.fixed, a.sentences)]

    def step(b, mode, opt, free):
        for p in model.parameters(): p.requires_grad_(False)
        for p in free: p.requires_grad_(True)
        with torch.autocast(dev.type, torch.bfloat16, enabled=cuda or a.autocast):
            loss, _ = smoothed_loss(call(b[0], b[1], mode), b[2])
        (loss / b[3]).backward(); opt.step(); opt.zero_grad(set_to_none=True)
        return loss

    kinds = [("F", "plain" if not gate else "sample", adam, rest)] + ([("G", "mix", sgd, gate)] if gate else [])
    for name, mode, opt, free in kinds:
        if cuda: torch.cuda.reset_peak_memory_stats()
        for b in data: step(b, mode, opt, free)
        if cuda: torch.cuda.synchronize()
        t0, toks, padded = time.time(), 0, 0
        for b in data:
            step(b, mode, opt, free); toks += b[3]; padded += b[2].numel()
        if cuda: torch.cuda.synchronize()
        dt = time.time() - t0; n = len(data)
        if a.json:
            print(json.dumps({"variant": a.variant, "step": name, "compiled": a.compile, "device": dev.type, "threads": torch.get_num_threads(),
                              "updates": n, "ms_per_update": 1e3 * dt / n, "target_tokens_per_s": toks / dt,
                              "tokens_per_update": toks / n, "padding": 1 - toks / padded,
                              "peak_gpu_mib": round(torch.cuda.max_memory_allocated() / 2**20) if cuda else None}), flush=True)
            continue
        print(f"{a.variant} {name} step {'compiled' if a.compile else 'eager'} {dev.type}: {1e3*dt/n:.2f} ms/update, "
              f"{toks/dt:,.0f} target tokens/s, {toks/n:.0f} tokens/update, padding {1-toks/padded:.1%}", flush=True)


main()
