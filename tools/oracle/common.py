"""What the oracle tools share: random weights that leave nothing trivial, and safetensors files with fixed bytes."""
from __future__ import annotations

import json
import math
import struct
from itertools import combinations

import numpy as np
import torch

from mae_oracle import Translator

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
