"""Golden numbers of the oracle on eight tiny models, for the tests of the engine and of the training loop.

    python golden.py [CASE ...] [--out ../../fixtures/oracle] [--check]

Everything is computed in float64 from weights that float32 holds exactly; there is no dropout, and batch norm uses the
statistics of the batch except where a key says `eval`. Two runs on one machine write the same bytes. `--check` also holds
the numbers against finite differences, against the sentences one by one, and against the same passes in float32, which
shows how close a float32 implementation can be expected to come. Keys: fixtures/oracle/README.md.
"""
from __future__ import annotations

import argparse
import copy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from common import again, drawn, drawing, float64, gradients, noisy, split, stir, stored, weights, write_safetensors
from mae_oracle import EOS, PAD, STARTS, Attention, Config, L0Gate, Translator, smoothed_loss, wide

EPS = 0.1
UPDATES = 10
GATE_LR = 1.0
ADAM = dict(lr=1e-3, beta1=0.9, beta2=0.98, eps=1e-8, weight_decay=1e-4)
SRC_LENGTHS, TGT_LENGTHS = (9, 1, 5, 7, 2), (4, 8, 1, 9, 6)  # with eos

SHARED = dict(src_vocab=23, tgt_vocab=19, layers=2, dropout=0.0, gate_dropout=0.0, max_positions=64)
CASES = {
    "base": Config(width=20, inner=29, heads=4, gated=False, **SHARED),
    "mae7": Config(width=16, inner=23, heads=8, dropped=1, gate_hidden=11, **SHARED),
    "mae6": Config(width=18, inner=19, heads=6, dropped=2, gate_hidden=13, **SHARED),
    "sigmoid": Config(width=20, inner=17, heads=5, gate="sigmoid", **SHARED),
    "moh": Config(width=18, inner=19, heads=6, gate="moh", shared=2, active=4, balance=0.7, **SHARED),
    "l0": Config(width=20, inner=19, heads=5, gate="l0", penalty=0.2, **SHARED),
    "marian": Config(width=12, inner=17, heads=3, gated=False, share_all=True, activation="swish", output_bias=True,
                     positions="marian", decoder_start="pad", **SHARED | dict(src_vocab=19, layers=1)),
    "gelu": Config(width=12, inner=13, heads=4, dropped=1, gate_hidden=5, norm="pre", activation="gelu",
                   no_scale_embedding=True, decoder_start="bos", **SHARED | dict(layers=1)),
}
# Keys that are written where they differ from the default.
NEWER = ("shared", "active", "balance", "penalty", "activation", "positions", "no_scale_embedding", "decoder_start", "output_bias")
# Beam search for these.
SEARCHED, BEAM, LONGEST = ("marian", "gelu"), 3, 8
# Chosen among a few so that the ten updates do not amplify rounding: with SGD at rate 1.0 on the gates some seeds
# turn the rounding of float32 into differences of 1e-2 in the logits.
SEEDS = {"base": 11, "mae7": 12, "mae6": 34, "sigmoid": 41, "moh": 71, "l0": 81, "marian": 51, "gelu": 61}


class Batch:
    """Right-padded matrices for the oracle, and the same sentences end to end."""

    def __init__(self, c: Config, rng: np.random.Generator):
        def sentences(vocab, lengths):
            return [np.append(rng.integers(4, vocab, n - 1), EOS) for n in lengths]

        src, tgt = sentences(c.src_vocab, SRC_LENGTHS), sentences(c.tgt_vocab, TGT_LENGTHS)
        prev = [np.append(STARTS[c.decoder_start], t[:-1]) for t in tgt]
        pad = lambda rows: torch.tensor([list(r) + [PAD] * (max(map(len, rows)) - len(r)) for r in rows])
        self.src, self.prev, self.tgt = pad(src), pad(prev), pad(tgt)
        self.real = self.tgt.ne(PAD)
        self.tokens = int(self.real.sum())
        starts = lambda rows: np.cumsum([0] + [len(r) for r in rows]).astype("<i4")
        self.packed = {
            "src.ids": np.concatenate(src).astype("<i4"), "src.starts": starts(src),
            "prev.ids": np.concatenate(prev).astype("<i4"),
            "tgt.ids": np.concatenate(tgt).astype("<i4"), "tgt.starts": starts(tgt),
        }


def loss_of(model, batch, mode, choose=None):
    for name, attention in model.named_modules():
        if model.training and isinstance(attention, Attention) and isinstance(attention.gate, L0Gate):
            steps = torch.from_numpy(choose(name, attention.gate)).to(attention.gate.log_a.bias.dtype)
            attention.gate.noise = (steps + 0.5) / 65536
    with drawing(model, None if model.c.gate == "l0" else choose):
        logits = model(batch.src, batch.prev, mode)
    return *smoothed_loss(logits, batch.tgt, EPS), logits[batch.real]


def choices(c: Config, rng, out, prefix, replay):
    return again(replay, prefix) if replay else (noisy if c.gate == "l0" else drawn)(rng, out, prefix)


def steps_of(c: Config):
    """(step, mode, which parameters are free)"""
    if not c.gated:
        return [("f", "plain", lambda m: split(m)[1])]
    if c.gate != "experts":
        return [("joint", "mix", lambda m: list(m.named_parameters()))]
    return [("g", "mix", lambda m: split(m)[0]), ("f", "sample", lambda m: split(m)[1]),
            ("joint", "mix", lambda m: list(m.named_parameters()))]


def single_steps(start, batch, rng, out, replay):
    """Loss, logits, gradients and running statistics of one step of each kind, each from the same weights."""
    for step, mode, free in steps_of(start.c):
        model = copy.deepcopy(start).train()
        prefix = f"{step}.draws."
        loss, nll, logits = loss_of(model, batch, mode, choices(start.c, rng, out, prefix, replay))
        out[f"{step}.loss"], out[f"{step}.nll"], out[f"{step}.logits"] = loss, nll, logits
        for name, grad in gradients(model, loss / batch.tokens + model.own_loss(), free(model)).items():
            out[f"{step}.grad.{name}"] = grad
        for name, buffer in model.named_buffers():
            if name.endswith((".running_mean", ".running_var")):
                out[f"{step}.stats.{name.replace('.gate.norm.', '.')}"] = buffer


def train(model, batch, rng, out, replay):
    """Ten updates on one batch: a G step (SGD on the gates), then an F step (Adam as fairseq writes it on the rest).
    Gates over heads: a joint step, Adam on all."""
    model.train()
    joint = model.c.gate != "experts"
    parts = lambda: ([], list(model.named_parameters())) if joint else split(model)
    moments = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in parts()[1]}
    g_losses, f_losses = [], []
    for k in range(UPDATES):
        gate, rest = parts()
        if gate:
            loss = loss_of(model, batch, "mix")[0] / batch.tokens
            g_losses.append(loss)
            grads = gradients(model, loss, gate)
            with torch.no_grad():
                for name, p in gate:
                    p -= GATE_LR * grads[name]
        prefix = f"train.draws.{k}."
        choose = choices(model.c, rng, out, prefix, replay)
        loss = loss_of(model, batch, "sample" if gate else "mix" if joint else "plain", choose)[0] / batch.tokens
        f_losses.append(loss)
        grads = gradients(model, loss + model.own_loss(), rest)
        b1, b2, t = ADAM["beta1"], ADAM["beta2"], k + 1
        size = ADAM["lr"] * (1 - b2**t) ** 0.5 / (1 - b1**t)
        with torch.no_grad():
            for name, p in rest:
                m, v = moments[name]
                m.mul_(b1).add_((1 - b1) * grads[name])
                v.mul_(b2).add_((1 - b2) * grads[name] ** 2)
                p -= ADAM["lr"] * ADAM["weight_decay"] * p
                p -= size * m / (v.sqrt() + ADAM["eps"])
    if g_losses:
        out["train.g_losses"] = torch.stack(g_losses)
    out["train.joint_losses" if joint else "train.f_losses"] = out["losses"] = torch.stack(f_losses)
    with torch.no_grad():
        out["train.end.eval.logits"] = loss_of(model.eval(), batch, "mix" if model.c.gated else "plain")[2]


def search(model, source):
    """Beam search by fairseq's rules, without a cache: [(score / length, tokens with eos)], best first. Of the 2·BEAM best
    continuations, those that end among the first BEAM are finished; the first BEAM others live on; pad is never chosen."""
    live, done = [(0.0, [STARTS[model.c.decoder_start]])], []
    while live and len(done) < BEAM:
        prev = torch.tensor([tokens for _, tokens in live])
        with torch.no_grad():
            logits = model(source.expand(len(live), -1), prev, "mix" if model.c.gated else "plain")[:, -1]
        logp = F.log_softmax(wide(logits), -1)
        logp[:, PAD] = -np.inf
        length = prev.shape[1]
        if length > LONGEST:
            ends = [(score + float(p[EOS]), tokens) for (score, tokens), p in zip(live, logp)]
            done += [(score / length, tokens[1:] + [EOS]) for score, tokens in sorted(ends, key=lambda e: -e[0])]
            break
        totals = logp + torch.tensor([[score] for score, _ in live])
        best = totals.view(-1).topk(2 * BEAM)
        found = [(v.item(), live[i // logp.shape[1]][1] + [i % logp.shape[1]]) for v, i in zip(best.values, best.indices.tolist())]
        done += [(score / length, tokens[1:]) for score, tokens in found[:BEAM] if tokens[-1] == EOS]
        live = [(score, tokens) for score, tokens in found if tokens[-1] != EOS][:BEAM]
    return sorted(done, key=lambda d: -d[0])[:BEAM]


def searched(model, batch):
    """The hypotheses of all sentences end to end: their tokens, starts, scores, and how many each sentence has."""
    found = [search(model, row[row.ne(PAD)].unsqueeze(0)) for row in batch.src]
    tokens = [tokens for hypotheses in found for _, tokens in hypotheses]
    return {
        "beam.tokens": np.concatenate(tokens).astype("<i4"),
        "beam.starts": np.cumsum([0] + [len(t) for t in tokens]).astype("<i4"),
        "beam.counts": np.array([len(hypotheses) for hypotheses in found], "<i4"),
        "beam.scores": np.array([score for hypotheses in found for score, _ in hypotheses]),
    }


def make(name: str, dtype=torch.float64, replay=None):
    """(the model before any step, its batch, all numbers by key); `replay` gives the draws instead of the gates."""
    c, seeds = CASES[name], np.random.SeedSequence(SEEDS[name]).spawn(4)
    weight_rng, batch_rng, step_rng, train_rng = map(np.random.default_rng, seeds)
    model = Translator(c)
    stir(model, weight_rng)
    if dtype == torch.float64:
        float64(model)
    batch, out = Batch(c, batch_rng), {}
    with torch.no_grad():
        out["eval.logits"] = loss_of(model.eval(), batch, "mix" if c.gated else "plain")[2]
    if name in SEARCHED:
        out |= searched(model, batch)
    single_steps(model, batch, step_rng, out, replay)
    train(copy.deepcopy(model), batch, train_rng, out, replay)
    out = {k: v.detach().numpy().copy() if torch.is_tensor(v) else v for k, v in out.items()}
    return model, batch, out


def metadata(name: str) -> dict[str, str]:
    values = asdict(CASES[name]) | dict(
        case=name, label_smoothing=EPS, updates=UPDATES, gate_lr=GATE_LR, lr=ADAM["lr"], adam_beta1=ADAM["beta1"], adam_beta2=ADAM["beta2"],
        adam_eps=ADAM["eps"], weight_decay=ADAM["weight_decay"], norm_momentum=0.1, norm_eps=1e-5, seed=SEEDS[name],
        share_embeddings="all" if CASES[name].share_all else "decoder", decoder_gate="causal", cross_gate="query", sampling_unit="row",
        made_by="tools/oracle/golden.py", torch=torch.__version__.split("+")[0])
    if values["gate"] == "experts":
        del values["gate"]  # older than the key
    else:
        values["gate_input"] = "mean" if values["gate"] == "l0" else "position"
    for key in NEWER:
        if values[key] == getattr(Config, key):
            del values[key]  # files are older than these keys
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}


def check(name, model, batch, out):
    c = model.c

    # 1. Padding reaches nothing: each sentence alone gives the same logits.
    model.eval()
    with torch.no_grad():
        alone = [model(batch.src[i : i + 1, :s], batch.prev[i : i + 1, :t], "mix" if c.gated else "plain")[0]
                 for i, (s, t) in enumerate(zip(SRC_LENGTHS, TGT_LENGTHS))]
    assert np.abs(torch.cat(alone).numpy() - out["eval.logits"]).max() < 1e-12

    # 2. Finite differences, three entries of every gradient; and how near any ReLU is to its corner.
    rng, worst = np.random.default_rng(0), 0.0
    for step, mode, free in steps_of(c):
        for pname, _ in free(model):
            probe = copy.deepcopy(model).train()
            flat = dict(probe.named_parameters())[pname].data.view(-1)
            grad = out[f"{step}.grad.{pname}"].reshape(-1)
            for i in rng.choice(len(flat), min(3, len(flat)), replace=False):
                values, keep, h = [], flat[i].item(), 1e-5
                for delta in (h, -h):
                    flat[i] = keep + delta
                    with torch.no_grad():
                        loss = loss_of(probe, batch, mode, again(out, f"{step}.draws."))[0] / batch.tokens
                        values.append(float(loss + probe.own_loss()))
                flat[i] = keep
                worst = max(worst, abs((values[0] - values[1]) / (2 * h) - grad[i]))
    probe, corner = copy.deepcopy(model).train(), []
    for side, real in (probe.encoder, batch.src.ne(PAD)), (probe.decoder, batch.real):
        for layer in side.layers:
            layer.fc1.register_forward_hook(lambda module, args, y, real=real: corner.append(y[real].abs().min().item()))
    loss_of(probe, batch, "mix" if c.gated else "plain", again(out, "joint.draws."))
    print(f"{name}: gradients against finite differences {worst:.1e}; nearest {c.activation} corner {min(corner):.1e}")
    assert worst < 1e-8

    if c.gated and c.gate == "experts":
        # 3. Gates are far from uniform, and draws use many experts.
        probe = copy.deepcopy(model).train()
        loss_of(probe, batch, "mix")
        experts = probe.encoder.layers[0].self_attn.experts.shape[0]
        for n, m in probe.named_modules():
            if isinstance(m, Attention):
                g = m.last_gate[batch.real] if m.last_gate.shape[1] > 1 else m.last_gate[:, 0]
                entropy = -(g * g.log()).sum(-1).mean().item()
                print(f"  {n}: mean entropy {entropy:.2f} of {np.log(experts):.2f}, largest weight {g.max().item():.2f}, draws {out['f.draws.' + n].tolist()}")

        # 4. The F step is the mixture with one-hot gates at the draws.
        probe = copy.deepcopy(model).train()
        for n, m in probe.named_modules():
            if isinstance(m, Attention):
                hot = F.one_hot(torch.from_numpy(out["f.draws." + n].astype(np.int64)), experts).double()
                m.gate.register_forward_hook(lambda module, args, result, hot=hot: hot)
        assert np.abs(loss_of(probe, batch, "mix")[2].detach().numpy() - out["f.logits"]).max() < 1e-12

        # 5. Running statistics move by a tenth towards the batch's mean (encoder layer 0: the pooled embeddings).
        mask = batch.src.ne(PAD).unsqueeze(-1)
        read = model.encoder.embed(batch.src)
        if c.norm == "pre":
            read = model.encoder.layers[0].self_attn_layer_norm(read)
        pooled = (read * mask).sum(1) / mask.sum(1)
        norm = model.encoder.layers[0].self_attn.gate.norm
        want = 0.9 * norm.running_mean + 0.1 * pooled.mean(0), 0.9 * norm.running_var + 0.1 * pooled.var(0, unbiased=True)
        for step in "g", "f", "joint":
            for key, w in zip(("mean", "var"), want):
                got = out[f"{step}.stats.encoder.layers.0.self_attn.running_{key}"]
                assert np.abs(got - w.detach().numpy()).max() < 1e-12

    # 6. The same in float32.
    single = make(name, torch.float32, replay=out)[2]
    groups = {}
    for key, value in out.items():
        if value.dtype.kind == "f":
            kind = ".".join(p for p in key.split(".") if p in ("g", "f", "joint", "eval", "train", "end", "grad", "stats", "logits", "loss", "nll", "losses", "g_losses", "f_losses", "joint_losses"))
            groups.setdefault(kind, []).append(np.abs(single[key] - value).max())
    print("  float32 differs by at most: " + ", ".join(f"{k} {max(v):.0e}" for k, v in groups.items() if k != "losses"))
    for kind in "g", "f", "joint":
        if f"train.{kind}_losses" in out:
            print(f"  {kind} losses " + " ".join(f"{x:.4f}" for x in out[f"train.{kind}_losses"]))


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "fixtures/oracle")
    ap.add_argument("--check", action="store_true", help="check the numbers before writing them")
    ap.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all of them if none is given")
    a = ap.parse_args()
    torch.set_num_threads(1)
    a.out.mkdir(parents=True, exist_ok=True)
    for name in a.cases or CASES:
        model, batch, out = make(name)
        if a.check:
            check(name, model, batch, out)
        tensors = {f"model.{k}": v for k, v in weights(model).items()} | batch.packed | {k: stored(k, v) for k, v in out.items()}
        size = write_safetensors(a.out / f"{name}.safetensors", tensors, metadata(name))
        print(f"{a.out / name}.safetensors: {len(tensors)} tensors, {size:,} bytes")


main()
