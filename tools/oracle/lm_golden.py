"""Golden numbers of the language model (`lm_oracle.py`) on four tiny models.

    python lm_golden.py [--out ../../fixtures/oracle] [--check]

As `golden.py`: computed in float64 from weights that float32 holds exactly, no dropout. Keys: fixtures/oracle/README.md.
`--check` also holds the numbers against finite differences, against PyTorch's own adaptive softmax, against the blocks one
by one, and against the same passes in float32.
"""
from __future__ import annotations

import argparse
import copy
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

from common import again, drawn, drawing, float64, gradients, split, stir, stored, weights, write_safetensors
from lm_oracle import LanguageModel, LmConfig
from mae_oracle import EOS, PAD, Attention

UPDATES = 8
GATE_LR = 1.0
NAG = dict(momentum=0.99, weight_decay=1e-3, clip_norm=0.1)
# Warm-up, a peak, a fall: the momentum of NAG is corrected for the change of the rate.
RATES = [0.01, 0.06, 0.11, 0.16, 0.15, 0.12, 0.07, 0.02]
LENGTHS = (11, 1, 6, 9)

SHARED = dict(vocab=31, cutoffs=(9, 17), factor=2, layers=2, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
              softmax_dropout=0.0, gate_dropout=0.0, max_positions=64)
CASES = {
    "lm_base": LmConfig(width=20, inner=29, heads=4, gated=False, **SHARED),
    "lm_mae7": LmConfig(width=16, inner=23, heads=8, dropped=1, gate_hidden=11, window=4, **SHARED),
    "lm_mae6": LmConfig(width=24, inner=19, heads=6, dropped=2, gate_hidden=13, window=3, tie_weights=False, tie_proj=False,
                        final_norm=True, **SHARED),
    "lm_plain": LmConfig(width=16, inner=17, heads=4, dropped=1, gate_hidden=7, window=100, **(SHARED | dict(cutoffs=()))),
}
SEEDS = {"lm_base": 21, "lm_mae7": 22, "lm_mae6": 23, "lm_plain": 24}


class Batch:
    """Right-padded matrices for the oracle, and the same blocks end to end. No input or target is padding."""

    def __init__(self, c: LmConfig, rng: np.random.Generator):
        # All bands, and each word of the narrowest less often than others.
        words = np.array([2, *range(3, c.vocab)])
        stream = [rng.choice(words, n + 1) for n in LENGTHS]
        stream[0][0] = EOS
        prev, tgt = [s[:-1] for s in stream], [s[1:] for s in stream]
        pad = lambda rows: torch.tensor([list(r) + [PAD] * (max(map(len, rows)) - len(r)) for r in rows])
        self.prev, self.tgt = pad(prev), pad(tgt)
        self.real = self.tgt.ne(PAD)
        self.tokens = int(self.real.sum())
        self.packed = {
            "prev.ids": np.concatenate(prev).astype("<i4"), "tgt.ids": np.concatenate(tgt).astype("<i4"),
            "tgt.starts": np.cumsum([0, *LENGTHS]).astype("<i4"),
        }


def loss_of(model, batch, mode, choose=None):
    """(negative log-likelihood summed over tokens, ln p of all words at each real position)"""
    with drawing(model, choose):
        logp = model(batch.prev, mode)[batch.real]
    return -logp.gather(1, batch.tgt[batch.real].unsqueeze(1)).sum(), logp


def steps_of(c: LmConfig):
    """(step, mode, which parameters are free)"""
    if not c.gated:
        return [("f", "plain", lambda m: split(m)[1])]
    return [("g", "mix", lambda m: split(m)[0]), ("f", "sample", lambda m: split(m)[1]),
            ("joint", "mix", lambda m: list(m.named_parameters()))]


def single_steps(start, batch, rng, out, replay):
    """Loss, gradients and running statistics of one step of each kind, each from the same weights."""
    for step, mode, free in steps_of(start.c):
        model = copy.deepcopy(start).train()
        prefix = f"{step}.draws."
        nll, _ = loss_of(model, batch, mode, again(replay, prefix) if replay else drawn(rng, out, prefix))
        out[f"{step}.nll"] = nll
        for name, grad in gradients(model, nll / batch.tokens, free(model)).items():
            out[f"{step}.grad.{name}"] = grad
        for name, buffer in model.named_buffers():
            if name.endswith((".running_mean", ".running_var")):
                out[f"{step}.stats.{name.replace('.gate.norm.', '.')}"] = buffer


def train(model, batch, rng, out, replay):
    """Updates on one batch: a G step (SGD on the gates), then an F step (NAG as fairseq writes it, after clipping)."""
    model.train()
    velocity = {n: torch.zeros_like(p) for n, p in split(model)[1]}
    g_losses, f_losses, norms = [], [], []
    mu, before = NAG["momentum"], RATES[0]
    for k, rate in enumerate(RATES):
        gate, rest = split(model)
        if gate:
            loss = loss_of(model, batch, "mix")[0] / batch.tokens
            g_losses.append(loss)
            grads = gradients(model, loss, gate)
            with torch.no_grad():
                for name, p in gate:
                    p -= GATE_LR * grads[name]
        prefix = f"train.draws.{k}."
        choose = again(replay, prefix) if replay else drawn(rng, out, prefix)
        loss = loss_of(model, batch, "sample" if gate else "plain", choose)[0] / batch.tokens
        f_losses.append(loss)
        grads = gradients(model, loss, rest)
        norm = math.sqrt(sum((g**2).sum().item() for g in grads.values()))
        norms.append(norm)
        clip = min(1.0, NAG["clip_norm"] / (norm + 1e-6))
        correct, before = rate / before, rate
        with torch.no_grad():
            for name, p in rest:
                g, v = clip * grads[name], velocity[name]
                p *= 1 - rate * NAG["weight_decay"]
                p += mu * mu * correct * v - (1 + mu) * rate * g
                v.mul_(mu * correct).sub_(rate * g)
    if g_losses:
        out["train.g_losses"] = torch.stack(g_losses)
    out["train.f_losses"] = torch.stack(f_losses)
    out["train.norms"] = torch.tensor(norms, dtype=torch.float64)
    with torch.no_grad():
        out["train.end.eval.logprobs"] = loss_of(model.eval(), batch, "mix" if model.c.gated else "plain")[1]


def make(name: str, dtype=torch.float64, replay=None):
    """(the model before any step, its batch, all numbers by key); `replay` gives the draws instead of the gates."""
    c, seeds = CASES[name], np.random.SeedSequence(SEEDS[name]).spawn(4)
    weight_rng, batch_rng, step_rng, train_rng = map(np.random.default_rng, seeds)
    model = LanguageModel(c)
    stir(model, weight_rng)
    if dtype == torch.float64:
        float64(model)
    batch, out = Batch(c, batch_rng), {}
    with torch.no_grad():
        out["eval.logprobs"] = loss_of(model.eval(), batch, "mix" if c.gated else "plain")[1]
    single_steps(model, batch, step_rng, out, replay)
    train(copy.deepcopy(model), batch, train_rng, out, replay)
    out = {k: v.detach().numpy().copy() if torch.is_tensor(v) else v for k, v in out.items()}
    return model, batch, out


def metadata(name: str) -> dict[str, str]:
    values = asdict(CASES[name]) | NAG | dict(
        case=name, updates=UPDATES, gate_lr=GATE_LR, norm_momentum=0.1, norm_eps=1e-5, seed=SEEDS[name],
        cutoffs=",".join(map(str, CASES[name].cutoffs)), rates=",".join(map(str, RATES)), norm="pre", sampling_unit="row",
        made_by="tools/oracle/lm_golden.py", torch=torch.__version__.split("+")[0])
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}


def check(name, model, batch, out):
    c = model.c
    model.eval()
    mode = "mix" if c.gated else "plain"

    # 1. Padding reaches nothing: each block alone gives the same numbers, which are probabilities.
    with torch.no_grad():
        alone = torch.cat([model(batch.prev[i : i + 1, :n], mode)[0] for i, n in enumerate(LENGTHS)]).numpy()
    assert np.abs(alone - out["eval.logprobs"]).max() < 1e-12
    assert np.abs(np.exp(alone).sum(1) - 1).max() < 1e-12

    # 2. PyTorch's adaptive softmax says the same.
    if c.cutoffs:
        torchs = nn.AdaptiveLogSoftmaxWithLoss(c.width, c.vocab, list(c.cutoffs), div_value=c.factor).double()
        with torch.no_grad():
            head, tails = model.decoder.adaptive_softmax.weights(model.decoder.embed_tokens)
            torchs.head.weight.copy_(head)
            for own, (projection, table) in zip(torchs.tail, tails):
                own[0].weight.copy_(projection)
                own[1].weight.copy_(table)
            x = model.decoder(batch.prev, mode)[batch.real]
            assert np.abs(torchs.log_prob(x).numpy() - out["eval.logprobs"]).max() < 1e-12
            total = -torchs(x, batch.tgt[batch.real]).output.sum().item()
            mine = loss_of(model, batch, mode)[0].item()
            assert abs(total - mine) < 1e-10

    # 3. Finite differences, three entries of every gradient.
    rng, worst = np.random.default_rng(0), 0.0
    for step, how, free in steps_of(c):
        for pname, _ in free(model):
            probe = copy.deepcopy(model).train()
            flat = dict(probe.named_parameters())[pname].data.view(-1)
            grad = out[f"{step}.grad.{pname}"].reshape(-1)
            for i in rng.choice(len(flat), min(3, len(flat)), replace=False):
                values, keep, h = [], flat[i].item(), 1e-5
                for delta in (h, -h):
                    flat[i] = keep + delta
                    with torch.no_grad():
                        values.append(loss_of(probe, batch, how, again(out, f"{step}.draws."))[0].item() / batch.tokens)
                flat[i] = keep
                worst = max(worst, abs((values[0] - values[1]) / (2 * h) - grad[i]))
    print(f"{name}: gradients against finite differences {worst:.1e}")
    assert worst < 1e-8

    if c.gated:
        # 4. Gates are far from uniform, draws use several experts, and the window matters.
        probe = copy.deepcopy(model).train()
        loss_of(probe, batch, "mix")
        for n, m in probe.named_modules():
            if isinstance(m, Attention):
                g = m.last_gate[batch.real]
                entropy = -(g * g.log()).sum(-1).mean().item()
                print(f"  {n}: mean entropy {entropy:.2f} of {math.log(g.shape[1]):.2f}, draws {out['f.draws.' + n].tolist()}")
        probe = copy.deepcopy(model).eval()
        for layer in probe.decoder.layers:
            layer.self_attn.window = None
        changed = np.abs(loss_of(probe, batch, "mix")[1].detach().numpy() - out["eval.logprobs"]).max()
        print(f"  without the window ln p differs by up to {changed:.2f}")
        assert (changed > 1e-3) == (c.window < max(LENGTHS))

    # 5. The same in float32.
    single, differ = make(name, torch.float32, replay=out)[2], {}
    for key, value in out.items():
        if value.dtype.kind == "f":
            kind = key.split(".model")[0] if ".grad." not in key else key.split(".")[0] + ".grad"
            kind = ".".join(kind.split(".")[:2])
            differ[kind] = max(differ.get(kind, 0.0), np.abs(single[key] - value).max())
    print("  float32 differs by at most: " + ", ".join(f"{k} {v:.0e}" for k, v in differ.items()))
    print("  f losses " + " ".join(f"{x:.4f}" for x in out["train.f_losses"]))
    print("  norms " + " ".join(f"{x:.3f}" for x in out["train.norms"]))


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "fixtures/oracle")
    ap.add_argument("--check", action="store_true", help="check the numbers before writing them")
    a = ap.parse_args()
    torch.set_num_threads(1)
    a.out.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        model, batch, out = make(name)
        if a.check:
            check(name, model, batch, out)
        tensors = {f"model.{k}": v for k, v in weights(model).items()} | batch.packed | {k: stored(k, v) for k, v in out.items()}
        size = write_safetensors(a.out / f"{name}.safetensors", tensors, metadata(name))
        print(f"{a.out / name}.safetensors: {len(tensors)} tensors, {size:,} bytes")


main()
