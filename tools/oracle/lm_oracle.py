"""The language model: fairseq's `transformer_lm` with adaptive input and adaptive softmax, and the paper's gates.

Attention, gates and positions are those of `mae_oracle.py`; layer norms stand before each sublayer, and there is none at the
end unless the configuration says so. A gate reads the mean of the last `window` inputs of its position. Layout is the padded
one; parameter names are fairseq's, with `<attention>.gate.*` added.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

from mae_oracle import PAD, Attention, sinusoids


@dataclass
class LmConfig:
    vocab: int = 267744
    cutoffs: tuple[int, ...] = (20000, 60000)  # none: one table for input and output
    factor: int = 4
    tie_weights: bool = True
    tie_proj: bool = True
    final_norm: bool = False
    width: int = 1024
    inner: int = 4096
    heads: int = 8
    layers: int = 16
    window: int = 100
    dropout: float = 0.3
    attention_dropout: float = 0.1
    activation_dropout: float = 0.1
    softmax_dropout: float = 0.2
    dropped: int = 1
    gated: bool = True
    gate_hidden: int = 256
    gate_dropout: float = 0.1
    max_positions: int = 512

    def bands(self):
        """(first id, one past the last, width) of each band."""
        bounds = [0, *self.cutoffs, self.vocab]
        return [(lo, hi, self.width // self.factor**i) for i, (lo, hi) in enumerate(zip(bounds, bounds[1:]))]


class AdaptiveInput(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        self.bands, self.width = c.bands(), c.width
        self.embeddings = nn.ModuleList(
            nn.Sequential(nn.Embedding(hi - lo, d), nn.Linear(d, c.width, bias=False)) for lo, hi, d in self.bands)

    def forward(self, ids):
        out = self.embeddings[0][0].weight.new_zeros(*ids.shape, self.width)
        for (lo, hi, _), band in zip(self.bands, self.embeddings):
            own = (ids >= lo) & (ids < hi)
            out = out.masked_scatter(own.unsqueeze(-1), band(ids[own] - lo))
        return out


class TiedHead(nn.Module):
    """The words of the first band are the input's; the classes of the tails are its own."""

    def __init__(self, c: LmConfig):
        super().__init__()
        self.class_proj = nn.Linear(c.width, len(c.cutoffs), bias=False)


class AdaptiveSoftmax(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        self.c, words = c, c.bands()[0][1]
        self.head = TiedHead(c) if c.tie_weights else nn.Linear(c.width, words + len(c.cutoffs), bias=False)
        self.tail = nn.ModuleList(
            nn.Sequential(
                nn.Identity() if c.tie_proj else nn.Linear(c.width, d, bias=False),
                nn.Dropout(c.softmax_dropout),
                nn.Identity() if c.tie_weights else nn.Linear(d, hi - lo, bias=False))
            for lo, hi, d in c.bands()[1:])

    def weights(self, given: AdaptiveInput):
        """(head, [(projection to D_b, vocabulary)]), each as the weight of a linear layer."""
        tied = [(band[0].weight, band[1].weight) for band in given.embeddings]
        head = torch.cat([tied[0][0], self.head.class_proj.weight]) if self.c.tie_weights else self.head.weight
        tails = [(projection.t() if self.c.tie_proj else own[0].weight, table if self.c.tie_weights else own[2].weight)
                 for (table, projection), own in zip(tied[1:], self.tail)]
        return head, tails

    def log_probs(self, x, given: AdaptiveInput):
        """ln p of the whole vocabulary: [..., width] -> [..., vocab]."""
        x = F.dropout(x, self.c.softmax_dropout, self.training)
        head, tails = self.weights(given)
        words = self.c.bands()[0][1]
        first = F.log_softmax(F.linear(x, head), -1)
        parts = [first[..., :words]]
        for i, ((projection, table), own) in enumerate(zip(tails, self.tail)):
            inner = own[1](F.linear(x, projection))
            parts.append(first[..., words + i : words + i + 1] + F.log_softmax(F.linear(inner, table), -1))
        return torch.cat(parts, -1)


class LmLayer(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        self.c = c
        self.self_attn = Attention(c, causal=True, window=c.window)
        self.self_attn_layer_norm = nn.LayerNorm(c.width)
        self.fc1, self.fc2 = nn.Linear(c.width, c.inner), nn.Linear(c.inner, c.width)
        self.final_layer_norm = nn.LayerNorm(c.width)

    def drop(self, x, p):
        return F.dropout(x, p, self.training)

    def forward(self, x, mask, mode):
        y = self.self_attn_layer_norm(x)
        x = x + self.drop(self.self_attn(y, mask, y, mask, mode, False), self.c.dropout)
        y = self.drop(F.relu(self.fc1(self.final_layer_norm(x))), self.c.activation_dropout)
        return x + self.drop(self.fc2(y), self.c.dropout)


class LmDecoder(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        self.c = c
        if c.cutoffs:
            self.embed_tokens, self.adaptive_softmax = AdaptiveInput(c), AdaptiveSoftmax(c)
        else:
            self.embed_tokens = nn.Embedding(c.vocab, c.width)
        self.layers = nn.ModuleList(LmLayer(c) for _ in range(c.layers))
        if c.final_norm:
            self.layer_norm = nn.LayerNorm(c.width)
        self.register_buffer("positions", sinusoids(c.max_positions + 2, c.width), persistent=False)

    def forward(self, prev, mode):
        mask = prev.ne(PAD)
        x = math.sqrt(self.c.width) * self.embed_tokens(prev) + self.positions[2 : prev.shape[1] + 2]
        x = F.dropout(x, self.c.dropout, self.training)
        for layer in self.layers:
            x = layer(x, mask, mode)
        return self.layer_norm(x) if self.c.final_norm else x


class LanguageModel(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        self.c, self.decoder = c, LmDecoder(c)

    def forward(self, prev, mode="mix"):
        """ln p of the whole vocabulary at every position: [b, t, vocab]."""
        x = self.decoder(prev, mode)
        if self.c.cutoffs:
            return self.decoder.adaptive_softmax.log_probs(x, self.decoder.embed_tokens)
        return F.log_softmax(F.linear(x, self.decoder.embed_tokens.weight), -1)
