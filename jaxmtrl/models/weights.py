"""Which published tensor holds which parameter, and how the one is read out of a part of the other.

Published matrices are [out, in] and join heads and head widths in one dimension; ours name every dimension and lie
stacked by layer. Knows no file: it asks for slices and gives arrays.
Letters: L layers, D embed, N heads, K kv heads, H head dim, F mlp, V vocab.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxmtrl.models.decoder import DecoderConfig

Slices = tuple[slice, ...]
GetSlice = Callable[[str, Slices], np.ndarray]  # (published name, a slice a dimension) -> that part


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """One parameter and its published twin."""

    path: tuple[str, ...]  # in the policy's parameters
    name: str  # published; of a stacked parameter with "{}" for the layer
    sizes: tuple[int, ...]  # of our dimensions, without layers
    groups: tuple[tuple[int, ...], ...]  # for each published dimension, those of ours that it joins, outermost first
    layers: int  # 0: not stacked
    padded: int = 0  # rows that our first dimension has beyond the published one

    @property
    def shape(self) -> tuple[int, ...]:
        """Published."""
        joined = [math.prod(self.sizes[dim] for dim in group) for group in self.groups]
        return (joined[0] - self.padded, *joined[1:]) if self.padded else tuple(joined)

    @property
    def names(self) -> tuple[str, ...]:
        """Published names, one a layer."""
        return tuple(self.name.format(layer) for layer in range(self.layers)) if self.layers else (self.name,)

    def read(self, index: Slices, get: GetSlice, dtype: Any) -> np.ndarray:
        """The part of our parameter that `index` cuts out, in `dtype`; nothing else is read."""
        if not self.layers:
            return self._part(self.name, index, get).astype(dtype, copy=False)
        first, last, _ = index[0].indices(self.layers)
        out = np.empty((last - first, *_extents(index[1:], self.sizes)), dtype)
        for layer in range(first, last):
            out[layer - first] = self._part(self.name.format(layer), index[1:], get)
        return out

    def write(self, array: np.ndarray) -> np.ndarray:
        """Our parameter (of one layer) as it is published."""
        order = [dim for group in self.groups for dim in group]
        joined = array.transpose(order).reshape([math.prod(self.sizes[dim] for dim in g) for g in self.groups])
        return np.ascontiguousarray(joined[: self.shape[0]])

    def _part(self, name: str, index: Slices, get: GetSlice) -> np.ndarray:
        """Cuts the outermost dimension of each group while reading, the others (head widths) afterwards."""
        cuts, extents = [], []
        for group, published in zip(self.groups, self.shape, strict=True):
            inner = [self.sizes[dim] for dim in group[1:]]
            first, last, _ = index[group[0]].indices(self.sizes[group[0]])
            last = min(last, published // math.prod(inner))
            first, last = (first, last) if first < last else (0, 0)  # a device may hold nothing but padding rows
            cuts.append(slice(first * math.prod(inner), last * math.prod(inner)))
            extents += [last - first, *inner]
        order = [dim for group in self.groups for dim in group]
        part = get(name, tuple(cuts)).reshape(extents).transpose(np.argsort(order))
        inner_dims = {dim for group in self.groups for dim in group[1:]}
        part = part[tuple(index[dim] if dim in inner_dims else slice(None) for dim in range(len(self.sizes)))]
        missing = _extents(index, self.sizes)[0] - part.shape[0]
        return np.pad(part, [(0, missing)] + [(0, 0)] * (part.ndim - 1)) if missing else part


def _extents(index: Slices, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(len(range(*cut.indices(size))) for cut, size in zip(index, sizes, strict=True))


def tensors(config: DecoderConfig) -> Iterator[Tensor]:
    """Every parameter of a policy with its published twin."""
    d, n, k, h, f = config.embed, config.heads, config.kv_heads, config.head_dim, config.mlp
    table = {"sizes": (config.vocab_rows, d), "groups": ((0,), (1,)), "padded": config.vocab_rows - config.vocab}
    yield Tensor(path=("outside", "embedding"), name="model.embed_tokens.weight", layers=0, **table)
    yield Tensor(
        path=("outside", "final_norm", "scale"), name="model.norm.weight", sizes=(d,), groups=((0,),), layers=0
    )
    if not config.tied_head:
        yield Tensor(path=("outside", "head"), name="lm_head.weight", layers=0, **table)

    def block(path: str, name: str, sizes: tuple[int, ...], groups: tuple[tuple[int, ...], ...]) -> Tensor:
        return Tensor(
            path=("layers", *path.split(".")),
            name=f"model.layers.{{}}.{name}",
            sizes=sizes,
            groups=groups,
            layers=config.layers,
        )

    vector, matrix, heads = ((0,),), ((1,), (0,)), ((1, 2), (0,))
    yield block("attention_norm.scale", "input_layernorm.weight", (d,), vector)
    yield block("mlp_norm.scale", "post_attention_layernorm.weight", (d,), vector)
    for ours, theirs, count in (("query", "q", n), ("key", "k", k), ("value", "v", k)):
        yield block(f"attention.{ours}", f"self_attn.{theirs}_proj.weight", (d, count, h), heads)
        if config.qkv_bias:
            yield block(f"attention.{ours}_bias", f"self_attn.{theirs}_proj.bias", (count, h), ((0, 1),))
        if config.qk_norm and ours != "value":
            yield block(f"attention.{ours}_norm.scale", f"self_attn.{theirs}_norm.weight", (h,), vector)
    yield block("attention.out", "self_attn.o_proj.weight", (n, h, d), ((2,), (0, 1)))
    for ours, sizes in (("gate", (d, f)), ("up", (d, f)), ("down", (f, d))):
        yield block(f"mlp.{ours}", f"mlp.{ours}_proj.weight", sizes, matrix)
