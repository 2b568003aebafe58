"""The PyTorch peer's training speed of language models, on whatever device is there.

    python3 lm_bench.py [--variant base|mae7|mae6|uni-mae7|nobcd] [--compile [MODE]] [--softmax static|torch] [--max-tokens 4096]
        [--tokens-per-sample 512] [--steps 20] [--device cuda] [--threads N] [--json]
    python3 lm_bench.py --layers 2 --width 64 --inner 128 --vocab 900 --cutoffs 100,300 --max-tokens 128 --tokens-per-sample 32 --device cpu

The model is that of `lm_oracle.py` (fairseq's `transformer_lm_wiki103` by default), written for speed: one product for queries, keys and
values, fused causal attention with its dropout, bf16 autocast with f32 master weights, fused SGD with Nesterov's momentum, clipping by
norm over all tensors at once, batches on the device beforehand, and nothing read back until the clock stops.

Input and output share `nn.AdaptiveLogSoftmaxWithLoss`' parameters: all weights and projections are tied. `--softmax torch` computes the
loss with that module, whose shapes depend on the data: the host waits for the device, and `--compile` leaves embeddings and loss outside the
compiled graph. `--softmax static` (the default) computes the same loss with the rows of each band listed beforehand, as many for every
batch as the fullest one has: nobody waits, and `--compile` makes one graph of the whole model. `--compile` alone is "reduce-overhead", which
replays CUDA graphs; another MODE of torch.compile can be given. Every batch is run twice before the clock starts.

Prints tokens per second and milliseconds per update for each kind of step (F; for gated variants G; for nobcd joint), and on CUDA the peak
of allocated and of reserved memory since the program began its warm-up of that step; `--json` prints one JSON object per measurement.
"""
import argparse, json, math, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lm_oracle import LmConfig
from mae_oracle import Gate, expert_matrix, sinusoids

FIRST_WORD = 4


def batches(count, tokens, per_block, c, device):
    """Words with the frequencies of Wikipedia's text (the fit is `mae bench train-lm`'s): inputs and targets [blocks, tokens of a block]."""
    rng, rank = np.random.default_rng(1), np.arange(1, c.vocab - FIRST_WORD + 1)
    below = np.cumsum(1 / (rank * (1 + rank / 20000) ** 0.9))
    words = FIRST_WORD + np.searchsorted(below, rng.random((count, tokens + 1)) * below[-1], side="right").clip(max=len(rank) - 1)
    words = torch.from_numpy(words)
    return words[:, :-1].reshape(count, -1, per_block).to(device), words[:, 1:].reshape(count, -1, per_block).to(device)


def banded(ids, c):
    """For each batch and band (rows, ids counted from the band's first): lists as long as the fullest batch needs, in steps of 64.

    A list is filled up with the row behind the last and the id -100."""
    out = [[] for _ in ids]
    for lo, hi, _ in c.bands():
        own = [((batch.flatten() >= lo) & (batch.flatten() < hi)).nonzero().flatten() for batch in ids]
        room = -(-max(1, *map(len, own)) // 64) * 64
        for batch, rows, lists in zip(ids, own, out):
            lists.append((F.pad(rows, (0, room - len(rows)), value=batch.numel()),
                          F.pad(batch.flatten()[rows] - lo, (0, room - len(rows)), value=-100)))
    return out


def causal_means(rows, window):
    """[rows, rows]: times x gives the mean over each position and those before it, the last `window` of them."""
    place = torch.arange(rows)
    back = place.view(-1, 1) - place
    seen = (back >= 0) & (back < window)
    return seen / seen.sum(1, keepdim=True)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        # A product: faster than sums along the positions, on which PyTorch 2.11's compiler fails.
        self.register_buffer("means", causal_means(c.max_positions, c.window), persistent=False)
        self.qkv, self.out_proj = nn.Linear(c.width, 3 * c.width), nn.Linear(c.width, c.width)
        self.gate = Gate(c) if c.gated else None
        self.register_buffer("experts", expert_matrix(c.heads, c.dropped), persistent=False)

    def head_weights(self, x, mode):
        """[b, t, heads]; modes are those of `mae_oracle.Attention`."""
        b, t, d = x.shape
        if mode == "uniform":
            return self.experts[torch.randint(len(self.experts), (b, t), device=x.device)]
        g = self.gate((self.means[:t, :t] @ x).reshape(b * t, d)).view(b, t, -1)
        if mode == "mix":
            return g @ self.experts
        # The largest of g / Exp(1) is e with probability g[e].
        return self.experts[(g / torch.empty_like(g).exponential_()).argmax(-1)]

    def forward(self, x, mode):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.c.heads, -1).permute(2, 0, 3, 1, 4)
        p = self.c.attention_dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p).transpose(1, 2)
        if mode != "plain":
            with torch.set_grad_enabled(torch.is_grad_enabled() and mode == "mix"):
                w = self.head_weights(x, mode)
            out = out * w.unsqueeze(-1).to(out.dtype)
        return self.out_proj(out.reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.attention = c, Attention(c)
        self.norm1, self.norm2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)
        self.fc1, self.fc2 = nn.Linear(c.width, c.inner), nn.Linear(c.inner, c.width)

    def forward(self, x, mode):
        x = x + F.dropout(self.attention(self.norm1(x), mode), self.c.dropout, self.training)
        y = F.dropout(F.relu(self.fc1(self.norm2(x))), self.c.activation_dropout, self.training)
        return x + F.dropout(self.fc2(y), self.c.dropout, self.training)


class Words(nn.Module):
    """Adaptive input and softmax with one set of parameters, the softmax'; the first band's input projection is the input's own."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(c.width, c.vocab, list(c.cutoffs), div_value=float(c.factor))
        for tail in self.softmax.tail:
            tail.insert(1, nn.Dropout(c.softmax_dropout))
        self.first = nn.Linear(c.width, c.width, bias=False)
        for weight, width in zip(self.tables(), (d for _, _, d in c.bands())):
            nn.init.normal_(weight, std=width**-0.5)

    def tables(self):
        return [self.softmax.head.weight, *(tail[2].weight for tail in self.softmax.tail)]

    def projections(self):
        return [self.first.weight, *(tail[0].weight.t() for tail in self.softmax.tail)]

    def embed(self, prev, lists):
        n, out = prev.numel(), None
        if lists is None:
            flat = prev.flatten()
            lists = [(rows, flat[rows] - lo) for lo, hi, _ in self.c.bands()
                     for rows in [((flat >= lo) & (flat < hi)).nonzero().flatten()]]
        for (rows, ids), table, projection in zip(lists, self.tables(), self.projections()):
            band = F.linear(F.embedding(ids.clamp(min=0), table), projection)
            # One row more than there are: where lists are filled up.
            out = band.new_zeros(n + 1, self.c.width) if out is None else out
            out = out.index_copy(0, rows, band)
        return out[:n].view(*prev.shape, -1)

    def loss(self, x, target, lists):
        """The mean of -ln p over all tokens."""
        x, target = F.dropout(x.flatten(0, 1), self.c.softmax_dropout, self.training), target.flatten()
        if lists is None:
            return self.softmax(x, target).loss
        head = torch.where(target < self.c.cutoffs[0], target, 0)
        for i, (lo, hi, _) in enumerate(self.c.bands()[1:]):
            head = torch.where((target >= lo) & (target < hi), self.c.cutoffs[0] + i, head)
        loss = F.cross_entropy(self.softmax.head(x), head, reduction="sum")
        for (rows, ids), tail in zip(lists[1:], self.softmax.tail):
            own = x[rows.clamp(max=len(x) - 1)]
            loss = loss + F.cross_entropy(tail(own), ids, ignore_index=-100, reduction="sum")
        return loss / len(target)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.words = c, Words(c)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.register_buffer("positions", sinusoids(c.max_positions + 2, c.width), persistent=False)

    def body(self, x, mode):
        x = math.sqrt(self.c.width) * x + self.positions[2 : x.shape[1] + 2]
        x = F.dropout(x, self.c.dropout, self.training)
        for layer in self.layers:
            x = layer(x, mode)
        return x

    def forward(self, prev, target, prev_lists, target_lists, mode):
        return self.words.loss(self.body(self.words.embed(prev, prev_lists), mode), target, target_lists)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="base", choices=["base", "mae7", "mae6", "uni-mae7", "nobcd"])
    ap.add_argument("--compile", nargs="?", const="reduce-overhead", metavar="MODE")
    ap.add_argument("--softmax", default="static", choices=["static", "torch"])
    ap.add_argument("--max-tokens", type=int, default=4096); ap.add_argument("--tokens-per-sample", type=int, default=512)
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--width", type=int, default=1024); ap.add_argument("--inner", type=int, default=4096)
    ap.add_argument("--layers", type=int, default=16); ap.add_argument("--heads", type=int, default=8)
    ap.add_argument("--vocab", type=int, default=267744); ap.add_argument("--cutoffs", default="20000,60000")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--threads", type=int, help="CPU threads (PyTorch's default when absent)")
    ap.add_argument("--json", action="store_true", help="one JSON object per measurement")
    a = ap.parse_args()
    cutoffs = tuple(int(n) for n in a.cutoffs.split(",") if n)
    if not cutoffs: ap.error("--cutoffs: PyTorch's adaptive softmax needs at least one")
    if a.max_tokens % a.tokens_per_sample: ap.error("--max-tokens must be a multiple of --tokens-per-sample")
    if a.threads: torch.set_num_threads(a.threads)
    torch.manual_seed(1); torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device(a.device); cuda = device.type == "cuda"
    c = LmConfig(vocab=a.vocab, cutoffs=cutoffs, width=a.width, inner=a.inner, heads=a.heads, layers=a.layers, max_positions=a.tokens_per_sample,
                 gated=a.variant in ("mae7", "mae6", "nobcd"), dropped=2 if a.variant == "mae6" else 1)
    model = Model(c).to(device).train()
    gates = [p for n, p in model.named_parameters() if ".gate." in n]
    rest = [p for n, p in model.named_parameters() if ".gate." not in n]
    # The rate of the recipe's first updates; the step costs the same whatever the rate.
    nag = torch.optim.SGD(rest, lr=1e-7, momentum=0.99, nesterov=True, fused=True if cuda else None)
    sgd = torch.optim.SGD(gates, lr=1.0, fused=True if cuda else None) if gates else None
    call = model
    if a.compile and a.softmax == "static":
        call = torch.compile(model, mode=a.compile, dynamic=False)
    elif a.compile:
        model.body = torch.compile(model.body, mode=a.compile, dynamic=False)
    prev, target = batches(a.steps, a.max_tokens, a.tokens_per_sample, c, device)
    lists = [banded(ids, c) if a.softmax == "static" else [None] * a.steps for ids in (prev, target)]
    data = list(zip(prev, target, *lists))

    def step(batch, mode, optimizers):
        if a.compile: torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            loss = call(*batch, mode)
        loss.backward()
        if nag in optimizers: nn.utils.clip_grad_norm_(rest, 0.1, foreach=True)
        for optimizer in optimizers:
            optimizer.step(); optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    plain = {"base": "plain", "uni-mae7": "uniform"}.get(a.variant, "sample")
    kinds = {"nobcd": [("joint", "mix", [nag, sgd])]}.get(a.variant, [("F", plain, [nag])] + ([("G", "mix", [sgd])] if gates else []))
    for name, mode, optimizers in kinds:
        for p in model.parameters(): p.requires_grad_(False)
        for optimizer in optimizers:
            for p in optimizer.param_groups[0]["params"]: p.requires_grad_(True)
        if cuda: torch.cuda.reset_peak_memory_stats()
        for batch in data + data: step(batch, mode, optimizers)
        if cuda: torch.cuda.synchronize()
        begun = time.time()
        for batch in data: loss = step(batch, mode, optimizers)
        if cuda: torch.cuda.synchronize()
        seconds, tokens = time.time() - begun, a.steps * a.max_tokens
        loss = loss.item()
        if not math.isfinite(loss): raise SystemExit(f"{a.variant} {name} step: the loss is {loss}")
        mib = lambda bytes: round(bytes / 2**20) if cuda else None
        line = {"variant": a.variant, "step": name, "compiled": a.compile or False, "softmax": a.softmax, "device": device.type,
                "threads": torch.get_num_threads(), "updates": a.steps, "ms_per_update": 1e3 * seconds / a.steps,
                "target_tokens_per_s": tokens / seconds, "tokens_per_update": a.max_tokens, "loss_nats_per_token": loss,
                "peak_gpu_mib": mib(torch.cuda.max_memory_allocated()) if cuda else None,
                "reserved_gpu_mib": mib(torch.cuda.max_memory_reserved()) if cuda else None}
        if a.json:
            print(json.dumps(line), flush=True)
            continue
        memory = f", {line['peak_gpu_mib']} MiB allocated at the peak, {line['reserved_gpu_mib']} MiB reserved" if cuda else ""
        print(f"{a.variant} {name} step {'compiled' if a.compile else 'eager'}, {a.softmax} softmax, {device.type}: {line['ms_per_update']:.2f} ms/update, "
              f"{line['target_tokens_per_s']:,.0f} tokens/s ({a.max_tokens} tokens/update), loss {loss:.3f} nats/token{memory}", flush=True)


main()
