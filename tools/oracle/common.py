"""What the oracle tools share: random weights that leave nothing trivial, given draws, and safetensors files with fixed bytes."""
from __future__ import annotations

import json
import math
import struct
from contextlib import contextmanager
from itertools import combinations

import numpy as np
import torch

from mae_oracle import Attention, Translator

DTYPES = {np.dtype("<f8"): "F64", np.dtype("<f4"): "F32", np.dtype("<i4"): "I32"}


def stir(model: Translator, rng: np.random.Generator) -> None:
    """Fills every parameter and batch-norm statistic with values that float32 holds exactly.

    Biases and norm scales are far from 0 and 1, running statistics far from 0 and 1, and the gates far from uniform,
    so that a term left out of an implementation shows up in the numbers.
    """
    draw = lambda shape, scale, centre=0.0: centre + scale * rng.standard_normal(shape)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            shape, last = tuple(tensor.shape), name.rsplit(".", 1)[1]
            if last == "num_batches_tracked":
                continue
            if last == "running_var":
                value = rng.uniform(0.4, 2.5, shape)
            elif last == "running_mean":
                value = draw(shape, 0.5)
            elif "norm" in name.split(".")[-2]:
                value = draw(shape, 0.2, 1.0 if last == "weight" else 0.0)
            elif ".gate.log_a." in name:
                value = draw(shape, 1.0, -2.5)
            elif last == "bias":
                value = draw(shape, 0.3)
            elif "embed_tokens" in name:
                value = draw(shape, shape[1] ** -0.5)
            else:
                value = draw(shape, (3.0 if ".gate.fc2." in name else 1.0) / math.sqrt(shape[1]))
            tensor.copy_(torch.from_numpy(value.astype(np.float32)))


def float64(model: Translator) -> Translator:
    """The model in float64, its expert matrices too: h/(h-t) is recomputed, not widened from float32."""
    model.double()
    h, t = model.c.heads, model.c.dropped
    experts = torch.full((math.comb(h, t), h), h / (h - t), dtype=torch.float64)
    for row, out in zip(experts, combinations(range(h), t)):
        row[list(out)] = 0.0
    for module in model.modules():
        if "experts" in dict(module.named_buffers(recurse=False)):
            module.experts = experts.clone()
    return model


def weights(model: Translator) -> dict[str, np.ndarray]:
    """Every parameter and running statistic by its fairseq name, as float32; a tied matrix once, under the encoder's name."""
    out, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if name.endswith("num_batches_tracked") or tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        out[name] = tensor.detach().numpy().astype(np.float32)
    return out


def write_safetensors(path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> int:
    """As `safetensors.save_file`, whose metadata come out in a different order on every run. Returns the size in bytes."""
    names = sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n))
    header, end = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for n in names:
        start, end = end, end + tensors[n].nbytes
        header[n] = {"dtype": DTYPES[tensors[n].dtype], "shape": list(tensors[n].shape), "data_offsets": [start, end]}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    blob = struct.pack("<Q", len(head)) + head + b"".join(np.ascontiguousarray(tensors[n]).tobytes() for n in names)
    with open(path, "wb") as f:
        f.write(blob)
    return len(blob)


@contextmanager
def drawing(model, choose):
    """Draws come from `choose(attention, gates)`, which sees the gate rows without padding, in packed order."""
    current = {}

    def before(name):
        return lambda module, args: current.update(name=name, mask=args[1], whole=args[5])

    def multinomial(gates, count):
        assert count == 1
        mask = current["mask"]
        real = torch.ones(len(mask), dtype=torch.bool) if current["whole"] else mask.reshape(-1)
        assert len(real) == len(gates)
        out = torch.zeros(len(gates), 1, dtype=torch.long)
        out[real, 0] = torch.from_numpy(choose(current["name"], gates[real].numpy()).astype(np.int64))
        return out

    hooks = [m.register_forward_pre_hook(before(n)) for n, m in model.named_modules() if isinstance(m, Attention)]
    original, torch.multinomial = torch.multinomial, multinomial
    try:
        yield
    finally:
        torch.multinomial = original
        for hook in hooks:
            hook.remove()


def drawn(rng: np.random.Generator, store: dict, prefix: str):
    """One expert per gate row, drawn from the gate by inverting its distribution function, and written down."""

    def choose(name, gates):
        below = np.cumsum(gates.astype(np.float64), 1) < rng.random((len(gates), 1))
        store[prefix + name] = np.minimum(below.sum(1), gates.shape[1] - 1).astype("<i4")
        return store[prefix + name]

    return choose


def noisy(rng: np.random.Generator, store: dict, prefix: str):
    """The number of each head of an L0 gate, in steps of 1/65,536, written down."""

    def choose(name, gate):
        store[prefix + name] = rng.integers(0, 65536, gate.log_a.bias.numel()).astype("<i4")
        return store[prefix + name]

    return choose


def again(store: dict, prefix: str):
    return lambda name, gates: store[prefix + name]


def gradients(model, loss, free):
    names = [n for n, _ in free]
    return dict(zip(names, torch.autograd.grad(loss, [p for _, p in free])))


def split(model):
    gate = [(n, p) for n, p in model.named_parameters() if ".gate." in n]
    rest = [(n, p) for n, p in model.named_parameters() if ".gate." not in n]
    return gate, rest


def stored(key: str, value: np.ndarray) -> np.ndarray:
    """Losses stay float64, all else that is not an integer becomes float32."""
    if value.dtype.kind == "i":
        return value
    if key.endswith(("loss", "losses", ".nll")):
        return np.atleast_1d(value).astype("<f8")
    return value.astype("<f4")
