"""Trains the oracle in PyTorch from the first weights of a `mae` run, on the same batches in the same order: a curve to hold ours against.

    mae train DATA --recipe iwslt14-mae7 --max-update 1 --save-dir RUN
    python train_curve.py DATA RUN [--updates 3000] [--every 250] [--seed 1] [--set train.warmup_updates=4000 ...]
                          [--save OUT] [--compile] [--device cuda] [--threads N]

DATA is a binarised folder; RUN gives the recipe (run.toml) and the weights (checkpoint_last). Its one update was made at
`warmup_init_lr`, 1e-7, so the weights are the initial ones to seven digits; with `--set train.warmup_init_lr=0 --set
train.min_lr=0` there they are exactly those. (The gates' running statistics have moved once, too; only evaluation reads them.)
`--set` changes keys of the recipe here.

Batches are those of `mae train`: crates/data/src/sampler.rs is repeated below. They are not sorted by length, so as padded
rectangles they are more than half padding. That costs the peer time, not accuracy: this script compares losses, `bench.py` speed.
Dropout and the drawing of experts differ from ours, and `--seed` changes them alone; train.seed is the order of the data.
On CUDA training runs under bf16 autocast and validation in float32; on the CPU all is float32.

Prints one JSON object before the first update and one every `--every` updates: `train_loss` (smoothed, the mean since the last
line), `valid_loss` (smoothed) and `valid_nll_loss`, all in bits per target token, the last two of the full mixture over the whole
development set in evaluation mode; `seconds` of training so far, without validation. `--save` writes a model folder for `mae generate`.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import time
import tomllib
from pathlib import Path

# Every batch is a rectangle of another size: without this the allocator asks the driver anew for most of them.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from common import weights, write_safetensors
from mae_oracle import EOS, PAD, Config, Translator

BITS_64 = (1 << 64) - 1
NUMBER_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


class Sentences:
    """One side of a split of a binarised folder (docs/formats.md): the ids end to end, and where each sentence begins."""

    def __init__(self, folder: Path, split: str, side: int):
        found = sorted(folder.glob(f"{split}.*-*.*.idx"))
        if not found:
            raise SystemExit(f"{folder} has no {split} split")
        pair = found[0].name.split(".")[1]
        self.language = pair.split("-")[side]
        prefix = folder / f"{split}.{pair}.{self.language}"
        index = Path(f"{prefix}.idx").read_bytes()
        if index[:9] != b"MMIDIDX\0\0":
            raise SystemExit(f"{prefix}.idx is not an index of an mmap dataset")
        count = int.from_bytes(index[18:26], "little")
        self.sizes = np.frombuffer(index, "<i4", count, 26).astype(np.int64)
        self.ids = np.fromfile(f"{prefix}.bin", NUMBER_TYPES[index[17]]).astype(np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes

    def to(self, device):
        self.device_ids, self.device_starts, self.device_sizes = (torch.from_numpy(x).to(device) for x in (self.ids, self.starts, self.sizes))
        return self

    def rectangle(self, batch: np.ndarray):
        """[sentences, longest], padded on the right to a multiple of 16: fewer shapes."""
        place = torch.arange(-(-int(self.sizes[batch].max()) // 16) * 16, device=self.device_ids.device)
        rows = torch.from_numpy(batch).to(place.device, non_blocking=True)
        inside = place < self.device_sizes[rows].unsqueeze(1)
        index = (self.device_starts[rows].unsqueeze(1) + place).clamp(max=len(self.ids) - 1)
        return self.device_ids[index].masked_fill(~inside, PAD)


class Pairs:
    def __init__(self, folder: Path, split: str, device):
        self.source, self.target = (Sentences(folder, split, side).to(device) for side in (0, 1))

    def usable(self, longest: int) -> np.ndarray:
        return np.flatnonzero((self.source.sizes <= longest) & (self.target.sizes <= longest))

    def batch(self, ids):
        """Source, decoder input and target as rectangles, and the number of target tokens."""
        ids = np.asarray(ids)
        target = self.target.rectangle(ids)
        before = F.pad(target, (1, -1), value=EOS).masked_fill(target == PAD, PAD)
        return self.source.rectangle(ids), before, target, int(self.target.sizes[ids].sum())


def split_mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & BITS_64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & BITS_64
    return x ^ x >> 31


def shuffle(items: list, seed: int, epoch: int) -> None:
    """Fisher and Yates with xoshiro256**, as sampler.rs does it."""
    state, s = split_mix(seed) + epoch, []
    for _ in range(4):
        state = state + 0x9E3779B97F4A7C15 & BITS_64
        s.append(split_mix(state))
    s0, s1, s2, s3 = s
    for i in range(len(items) - 1, 0, -1):
        n = i + 1
        while True:
            x = s1 * 5 & BITS_64
            x = (x << 7 | x >> 57) * 9 & BITS_64
            t = s1 << 17 & BITS_64
            s2 ^= s0
            s3 ^= s1
            s1 ^= s2
            s0 ^= s3
            s2 ^= t
            s3 = (s3 << 45 | s3 >> 19) & BITS_64
            product = x * n
            if product & BITS_64 >= (1 << 64) % n:
                break
        j = product >> 64
        items[i], items[j] = items[j], items[i]


def epoch_batches(pairs: Pairs, train: dict, positions: int, epoch: int) -> list[list[int]]:
    """BatchSampler::epoch: all sentences shuffled, cut wherever either side's budget is full."""
    budget = train["max_tokens"]
    order = pairs.usable(min(positions, budget)).tolist()
    shuffle(order, train["seed"], epoch)
    src, tgt = pairs.source.sizes.tolist(), pairs.target.sizes.tolist()
    batches, batch, src_tokens, tgt_tokens = [], [], 0, 0
    for i in order:
        src_tokens, tgt_tokens = src_tokens + src[i], tgt_tokens + tgt[i]
        if batch and (src_tokens > budget or tgt_tokens > budget):
            batches.append(batch)
            batch, src_tokens, tgt_tokens = [], src[i], tgt[i]
        batch.append(i)
    return batches + [batch] if batch else batches


def load_translator(model: dict, folder: Path) -> Translator:
    """The oracle with the weights of a model folder; `model` is the table `[model]`."""
    mixture = model.get("mixture", {})
    system, share = mixture.get("system", "base"), model.get("share_embeddings", "decoder")
    same = lambda key, table, want: table.get(key, want) == want
    if not (same("norm", model, "post") and same("attention_dropout", model, 0) and same("activation_dropout", model, 0)
            and same("decoder_gate", mixture, "causal") and same("cross_gate", mixture, "query") and same("sampling_unit", mixture, "row")
            and share in ("decoder", "all") and model["encoder_layers"] == model["decoder_layers"]):
        raise SystemExit("the oracle has post-norm, equal stacks, tied output embeddings, causal gates, and no dropout of attention or activation")
    tensors = load_file(folder / "model.safetensors")
    if share == "all":
        tensors["decoder.embed_tokens.weight"] = tensors["encoder.embed_tokens.weight"]
    vocab = [len(tensors[f"{side}.embed_tokens.weight"]) for side in ("encoder", "decoder")]
    translator = Translator(Config(
        src_vocab=vocab[0], tgt_vocab=vocab[1], width=model["encoder_embed_dim"], inner=model["encoder_ffn_embed_dim"],
        heads=model["encoder_attention_heads"], layers=model["encoder_layers"], dropout=model.get("dropout", 0.0),
        dropped=mixture.get("dropped_heads", 1), gated=system in ("mae", "nobcd"), gate_hidden=mixture.get("gate_hidden", 256),
        gate_dropout=mixture.get("gate_dropout", 0.1), share_all=share == "all", max_positions=model.get("max_positions", 1024)))
    missing, extra = translator.load_state_dict(tensors, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or extra:
        raise SystemExit(f"{folder}: missing {missing}, not known {extra}")
    return translator


@torch.inference_mode()
def validate(model: Translator, pairs: Pairs, mode: str, smoothing: float):
    """Smoothed and plain loss in bits per target token, as crates/train/src/validate.rs sums them. Sorted, so that there is little padding."""
    model.eval()
    ids = pairs.usable(model.c.max_positions)
    ids = ids[np.lexsort((pairs.source.sizes[ids], pairs.target.sizes[ids]))]
    sums, tokens = torch.zeros(2, dtype=torch.float64, device=pairs.source.device_ids.device), 0
    for part in np.array_split(ids, max(1, len(ids) // 128)):
        source, before, target, count = pairs.batch(part)
        logits = model(source, before, mode).flatten(0, 1)
        loss = lambda eps: F.cross_entropy(logits, target.flatten(), ignore_index=PAD, label_smoothing=eps, reduction="sum")
        sums += torch.stack([loss(smoothing), loss(0.0)])
        tokens += count
    model.train()
    return (sums / tokens / math.log(2)).tolist()


def inverse_sqrt(train: dict, done: int) -> float:
    """crates/train/src/schedule.rs."""
    peak, warmup, first = train["lr"], train["warmup_updates"], train["warmup_init_lr"]
    rate = first + done * (peak - first) / warmup if done < warmup else peak * math.sqrt(max(warmup, 1) / max(done, 1))
    return max(rate, train["min_lr"])


class Learner:
    """crates/train/src/learner.rs: G steps (plain SGD on the gates) and F steps (Adam on the rest)."""

    def __init__(self, model: Translator, train: dict, system: str, compiled: bool):
        self.model, self.train, self.done = model, train, 0
        self.call = torch.compile(model, dynamic=True) if compiled else model
        self.gates, self.rest = model.groups()
        self.f_mode = {"base": "plain", "uniform": "uniform", "mae": "sample"}[system]
        self.adam = torch.optim.AdamW(self.rest, betas=tuple(train["adam_betas"]), weight_decay=train["weight_decay"], fused=True)
        self.sgd = torch.optim.SGD(self.gates, lr=train["gate_lr"]) if self.gates else None

    def update(self, batches: list, gate_turn: bool):
        """One update on the batches together. The smoothed loss of the F step summed, still on the device, and the target tokens."""
        if gate_turn:
            self.step(batches, "mix", self.gates, self.rest)
            self.sgd.step()
        loss, tokens = self.step(batches, self.f_mode, self.rest, self.gates)
        if self.train["clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(self.rest, self.train["clip_norm"])
        for group in self.adam.param_groups:
            group["lr"] = inverse_sqrt(self.train, self.done)
            # PyTorch corrects the second moment before it adds epsilon, fairseq v0.9 and we after: this makes them equal.
            group["eps"] = self.train["adam_eps"] / math.sqrt(1 - self.train["adam_betas"][1] ** (self.done + 1))
        self.adam.step()
        self.done += 1
        return loss, tokens

    def step(self, batches, mode, free, frozen):
        for p in frozen:
            p.requires_grad_(False)
        for p in free:
            p.requires_grad_(True)
            p.grad = None
        tokens, total = sum(b[3] for b in batches), 0
        for source, before, target, _ in batches:
            for layer in self.model.encoder.layers if self.gates else ():
                layer.self_attn.gate.norm.train(len(source) > 1)    # one row has no variance
            with torch.autocast(source.device.type, torch.bfloat16, enabled=source.is_cuda):
                logits = self.call(source, before, mode)
            loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=PAD,
                                   label_smoothing=self.train["label_smoothing"], reduction="sum")
            (loss / tokens).backward()
            total = total + loss.detach().double()
        return total, tokens


def save(model: Translator, run: Path, out: Path):
    """The trained weights with the run's own config.toml, dictionaries and codes."""
    out.mkdir(parents=True, exist_ok=True)
    for file in "config.toml", "dict.src.txt", "dict.tgt.txt", "bpe.codes":
        if (run / "checkpoint_last" / file).exists():
            shutil.copy(run / "checkpoint_last" / file, out / file)
    write_safetensors(out / "model.safetensors", weights(model.cpu()), {"format": "pt", "made_by": "tools/oracle/train_curve.py"})


def recipe(run: Path, changes: list[str]) -> dict:
    """run.toml with `--set` laid over it."""
    tables = tomllib.loads((run / "run.toml").read_text())
    for change in changes:
        path, value = change.split("=", 1)
        *tables_of, key = path.strip().split(".")
        table = tables
        for name in tables_of:
            table = table[name]
        if key not in table:
            raise SystemExit(f"{run / 'run.toml'} has no key {path}")
        try:
            table[key] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            table[key] = value
    return tables


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("data", type=Path); ap.add_argument("run", type=Path)
    ap.add_argument("--updates", type=int, default=3000); ap.add_argument("--every", type=int, default=250, help="updates per line")
    ap.add_argument("--seed", type=int, default=1, help="of dropout and of the experts drawn")
    ap.add_argument("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE", help="change a key of run.toml")
    ap.add_argument("--save", type=Path, metavar="OUT", help="write the trained model here")
    ap.add_argument("--compile", action="store_true"); ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--threads", type=int, help="CPU threads (PyTorch's default when absent)")
    a = ap.parse_args()
    if a.threads: torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    config = recipe(a.run, a.changes)
    train, system = config["train"], config["model"].get("mixture", {}).get("system", "base")
    if system == "nobcd":
        raise SystemExit("joint training is not written here")
    pairs, valid = (Pairs(a.data, split, a.device) for split in ("train", "valid"))
    model = load_translator(config["model"], a.run / "checkpoint_last").to(a.device).train()
    learner = Learner(model, train, system, a.compile)
    loss_sum = token_sum = seconds = epoch = 0
    begun = time.time()

    def report():
        nonlocal loss_sum, token_sum, seconds, begun
        line = {"update": learner.done, "epoch": epoch, "seed": a.seed, "system": system}
        if token_sum:
            line["train_loss"] = float(loss_sum) / token_sum / math.log(2)      # waits for the device
            took = time.time() - begun
            seconds += took
            line |= {"lr": learner.adam.param_groups[0]["lr"], "seconds": round(seconds, 2), "target_tokens_per_s": round(token_sum / took)}
        line["valid_loss"], line["valid_nll_loss"] = validate(model, valid, "mix" if learner.gates else "plain", train["label_smoothing"])
        print(json.dumps(line), flush=True)
        loss_sum, token_sum, begun = 0, 0, time.time()

    report()
    while learner.done < a.updates:
        epoch += 1
        batches, per_update = epoch_batches(pairs, train, model.c.max_positions, epoch), train["update_freq"]
        for first in range(0, len(batches), per_update):
            every = train["gate_every_updates"]
            turn = (learner.done + 1) % every == 0 if every else train["gate_every_epochs"] > 0 and epoch % train["gate_every_epochs"] == 0
            loss, tokens = learner.update([pairs.batch(ids) for ids in batches[first : first + per_update]], turn and system == "mae")
            loss_sum, token_sum = loss_sum + loss, token_sum + tokens
            if learner.done % a.every == 0 or learner.done == a.updates:
                report()
            if learner.done == a.updates:
                break
    if a.save:
        save(model, a.run, a.save)


if __name__ == "__main__":
    main()
