"""Decode attention as a TPU kernel that reads no more of the cache than each slot has filled.

XLA's attention reads every column of every slot, closed ones included; here a slot's blocks beyond its last column are
neither fetched nor computed. Softmax goes block by block (Milakov & Gimelshein, arXiv 1805.02867; Dao et al.,
arXiv 2205.14135).
Letters: S slots, N heads, K kv heads, G = N/K heads of one kv head, H head dim, C cache length.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

Array = jax.Array

_BLOCKS = (512, 256, 128)  # columns fetched at once: the largest of them that divides C
_LANES = 128  # of a TPU register: running sums are kept as wide, as narrower ones would be padded to it
_UNSEEN = -1e30  # a score that is no share; unlike -inf, its difference to itself is 0


def block_of(columns: int) -> int:
    """Columns of a block for a cache of so many; 0 where the kernel cannot divide it."""
    return next((block for block in _BLOCKS if columns % block == 0), 0)


def attend_ragged(query: Array, keys: Array, values: Array, lengths: Array, *, interpret: bool = False) -> Array:
    """softmax(q·k / √H) · v of one query a slot over its first columns.

    Args:
        query: [S, N, H].
        keys, values: floats [S, K, C, H] of any float dtype, C a multiple of 128.
        lengths: i32 [S], columns that are seen, 0 ≤ length ≤ C.
        interpret: run without a TPU, slowly.

    Returns:
        [S, N, H] in the query's dtype; zeros where nothing is seen.
    """
    slots, heads, width = query.shape
    kv_heads, columns = keys.shape[1:3]
    group, block = heads // kv_heads, block_of(columns)
    if not block:
        raise ValueError(f"a cache of {columns} columns: the kernel wants a multiple of {_BLOCKS[-1]}")

    def needed(slot: Array, at: Array, lengths: Any) -> tuple[Array | int, ...]:
        # A block that is the last one again is not fetched again.
        return slot, 0, jnp.minimum(at, jnp.maximum(pl.cdiv(lengths[slot], block) - 1, 0)), 0

    whole = pl.BlockSpec((1, kv_heads, group, width), lambda slot, at, lengths: (slot, 0, 0, 0))
    cached = pl.BlockSpec((1, kv_heads, block, width), needed)
    mixed = pl.pallas_call(
        functools.partial(_attend_block, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(slots, columns // block),
            in_specs=[whole, cached, cached],
            out_specs=whole,
            scratch_shapes=[
                pltpu.VMEM((kv_heads, group, _LANES), jnp.float32),
                pltpu.VMEM((kv_heads, group, _LANES), jnp.float32),
                pltpu.VMEM((kv_heads, group, width), jnp.float32),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((slots, kv_heads, group, width), query.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(lengths.astype(jnp.int32), query.reshape(slots, kv_heads, group, width), keys, values)
    return mixed.reshape(slots, heads, width)


def _attend_block(
    lengths: Any, query: Any, keys: Any, values: Any, out: Any, top: Any, total: Any, mixed: Any, *, block: int
) -> None:
    """One slot's next block: largest score, sum of shares and mix so far are carried in `top`, `total` and `mixed`."""
    slot, at = pl.program_id(0), pl.program_id(1)
    kv_heads, group, width = mixed.shape

    @pl.when(at == 0)
    def _start() -> None:
        top[...] = jnp.full_like(top, _UNSEEN)
        total[...] = jnp.zeros_like(total)
        mixed[...] = jnp.zeros_like(mixed)

    @pl.when(at * block < lengths[slot])
    def _add() -> None:
        seen = at * block + jax.lax.broadcasted_iota(jnp.int32, (group, block), 1) < lengths[slot]
        for head in range(kv_heads):
            scores = jax.lax.dot_general(
                query[0, head],
                keys[0, head].astype(query.dtype),
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            scores = jnp.where(seen, scores * width**-0.5, _UNSEEN)
            before = top[head][:, :1]
            now = jnp.maximum(before, jnp.max(scores, axis=1, keepdims=True))
            shares, shrunk = jnp.exp(scores - now), jnp.exp(before - now)
            top[head] = jnp.broadcast_to(now, (group, _LANES))
            total[head] = total[head] * shrunk + jnp.sum(shares, axis=1, keepdims=True)
            mixed[head] = mixed[head] * shrunk + jnp.dot(
                shares.astype(values.dtype), values[0, head], preferred_element_type=jnp.float32
            )

    @pl.when(at == pl.num_programs(1) - 1)
    def _finish() -> None:
        for head in range(kv_heads):
            sums = total[head][:, :1]
            out[0, head] = (mixed[head] / jnp.where(sums > 0, sums, 1.0)).astype(out.dtype)
