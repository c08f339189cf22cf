"""Matrices of a block: as they are, or frozen (and perhaps quantised) with a low-rank adapter beside them.

LoRA (Hu et al., arXiv 2106.09685): y = x·W + (alpha / r)·(x·A)·B, with A drawn at random and B zero at first, so that
an adapter begins as nothing. QLoRA (Dettmers et al., arXiv 2305.14314) is the same over a quantised W. qwix quantises;
its `LoraProvider` would add the adapters too, by exchanging jax.numpy's functions while
a program is traced; here two threads trace at once, and one block's matrices are chosen one by one, so what an adapter
adds is written out (a test holds it against that provider).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.models.quantised import Quantised, dequantise, quantise

Array = jax.Array

# How many leading dimensions of each of a block's matrices are summed over.
INPUTS = {"query": 1, "key": 1, "value": 1, "out": 2, "gate": 1, "up": 1, "down": 1}
_FEW_ROWS = 64
ADAPTERS = ("_lora_a", "_lora_b")  # what the names of an adapter's two matrices end with


class Projections(nnx.Module):
    """A module whose weights may be adapted and quantised."""

    cpu_layout = False  # whether weights lie as `turned` makes them

    def adapt(self, lora: LoraSection, key: Array, names: Sequence[str]) -> None:
        """Freezes the named weights and puts adapters beside those that `lora` targets; does nothing at rank 0."""
        if not lora.rank:
            return
        self.scale, self.dropout, self.order = lora.alpha / lora.rank, lora.dropout, tuple(names)
        key = jax.random.fold_in(key, 2**16)  # far from what the weights themselves are drawn by
        for at, name in enumerate(names):
            frozen, count = getattr(self, name), INPUTS[name]
            axes, shape = frozen.get_metadata()["axes"], frozen.shape
            if name in lora.targets:
                bound = math.prod(shape[:count]) ** -0.5
                drawn = jax.random.uniform(
                    jax.random.fold_in(key, at), (*shape[:count], lora.rank), jnp.float32, -bound, bound
                )
                nothing = jnp.zeros((lora.rank, *shape[count:]), jnp.float32)
                setattr(self, name + ADAPTERS[0], nnx.Param(drawn, axes=(*axes[:count], None)))
                setattr(self, name + ADAPTERS[1], nnx.Param(nothing, axes=(None, *axes[count:])))
            if lora.frozen != "whole":
                setattr(self, name, nnx.Param(quantised(frozen[...], count, lora), axes=axes))

    def through(self, name: str, equation: str, x: Array, noise: Array | None = None) -> Array:
        """`x` through a weight, and through its adapter if it has one.

        Args:
            equation: einsum of `x` and the weight, the dimensions that are summed over first in the weight.
            noise: key of the adapter's dropout; None leaves everything in.
        """
        weight = getattr(self, name).get_value()
        if isinstance(weight, Quantised):
            weight = dequantise(weight)
        if self.cpu_layout:
            y = outputs_first(x, weight.astype(x.dtype), INPUTS[name])
        else:
            y = jnp.einsum(equation, x, weight.astype(x.dtype))
        down = getattr(self, name + ADAPTERS[0], None)
        if down is None:
            return y
        up = getattr(self, name + ADAPTERS[1])
        if noise is not None and self.dropout:
            stays = jax.random.bernoulli(
                jax.random.fold_in(noise, self.order.index(name)), 1 - self.dropout, shape=x.shape
            )
            x = jnp.where(stays, x / (1 - self.dropout), 0).astype(x.dtype)
        read, write = _low_rank(equation)
        narrow = jnp.einsum(read, x, down[...].astype(x.dtype))
        return y + jnp.einsum(write, narrow, up[...].astype(x.dtype)) * jnp.asarray(self.scale, x.dtype)


def turned(name: str, weight: Any) -> Any:
    """A weight (or the names of its axes) with the dimensions that are summed over last instead of first.

    CPUs multiply a few rows by it half as fast again as by the other, and many rows as fast.
    """
    if name not in INPUTS:
        return weight
    first = INPUTS[name]
    if isinstance(weight, tuple):
        return weight[first:] + weight[:first]
    return weight.transpose(*range(first, weight.ndim), *range(first))


def outputs_first(x: Array, weight: Array, inputs: int) -> Array:
    """x [B, T, *inputs] times a `turned` weight [*outputs, *inputs]: [B, T, *outputs]."""
    outputs = weight.shape[: weight.ndim - inputs]
    rows, matrix = x.reshape(-1, math.prod(x.shape[2:])), weight.reshape(math.prod(outputs), -1)
    return matrix_by_rows(matrix, rows).reshape(*x.shape[:2], *outputs)


def matrix_by_rows(matrix: Array, rows: Array) -> Array:
    """rows [M, D] times matrix [F, D]: [M, F], in the order that suits a CPU."""
    if rows.shape[0] > _FEW_ROWS:
        return jnp.einsum("md,fd->mf", rows, matrix)
    # XLA on CPU rearranges the second factor of a product at every call: it had better be the small one. The barrier
    # keeps it from exchanging them.
    return jax.lax.optimization_barrier(jnp.einsum("fd,md->fm", matrix, rows)).T


def _low_rank(equation: str) -> tuple[str, str]:
    """The einsum of x and A, and that of the result and B: "btd,dnh->btnh" → "btd,dr->btr", "btr,rnh->btnh"."""
    operands, out = equation.split("->")
    x, weight = operands.split(",")
    summed = "".join(letter for letter in weight if letter in x)
    rest = "".join(letter for letter in x if letter not in summed)
    return f"{x},{summed}r->{rest}r", f"{rest}r,r{weight[len(summed) :]}->{out}"


def quantised(weight: Array, inputs: int, lora: LoraSection) -> Quantised:
    """A matrix as `lora.frozen` wants it.

    Args:
        weight: [inputs, outputs], each of one dimension or more.
        inputs: how many of them are summed over; `lora.tile` counts along the last of those.
    """
    return quantise(weight, lora.frozen, tiled=inputs - 1, tile=lora.tile)


def is_adapter(name: str) -> bool:
    """Whether a parameter belongs to an adapter."""
    return name.endswith(ADAPTERS)


def split(tree: dict[str, Any], adapters: bool) -> dict[str, Any]:
    """The adapters of a nested dict of parameters, or all but them; folders that are left empty go."""
    kept: dict[str, Any] = {}
    for name, child in tree.items():
        if isinstance(child, dict):
            if inside := split(child, adapters):
                kept[name] = inside
        elif is_adapter(name) == adapters:
            kept[name] = child
    return kept


def join(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both of two nested dicts that share no leaf."""
    both = dict(one)
    for name, child in other.items():
        both[name] = join(both[name], child) if name in both else child
    return both
