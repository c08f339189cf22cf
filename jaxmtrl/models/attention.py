"""Attention over keys that are seen, and over a cache. Within rows of a batch: `row_attention.py`.

Letters: B rows, T tokens, N heads, K kv heads, H head dim, S cache rows, C cache length.
Softmax is computed in f32 whatever the activations' dtype.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from jaxmtrl.models.columns import Columns, Int8Columns, cache_columns, read_columns, take_rows
from jaxmtrl.models.ragged_attention import attend_ragged, block_of
from jaxmtrl.parallel.slots import cache_sharding

Array = jax.Array

_FEW_QUERIES = 16  # of one key-value head


@dataclasses.dataclass(frozen=True)
class CacheAttention:
    """How attention over a cache is computed; every way gives the same numbers up to rounding."""

    # Of prompts. one_by_one: a row after the other, whose working set then stays in a CPU's caches, a third faster
    # there. cudnn: a GPU's own kernel, which never holds all scores.
    prefill: Literal["together", "one_by_one", "cudnn"] = "together"
    # Of one token a slot. ragged: the TPU kernel, which reads filled columns only; int8 caches and lengths that are no
    # multiple of 128 are read together all the same.
    decode: Literal["together", "ragged"] = "together"
    mesh: Mesh | None = None  # over which ragged spreads slots and heads; None: one device
    interpret: bool = False  # ragged without a TPU, slowly


def attend_cache(
    query: Array,
    keys: Columns,
    values: Columns,
    positions: Array,
    rows: Array | None = None,
    way: CacheAttention = CacheAttention(),
) -> Array:
    """Attention over cached keys and values; position p sees columns c ≤ p.

    Args:
        query: [B, T, N, H].
        keys, values: [S, K, C, H].
        positions: i32 [B, T]; ≥ C is padding, whose output is finite and means nothing.
        rows: i32 [B], the cache row of each row of queries; ≥ S reads as the last. None: row b is b.
    """

    def together(query: Array, positions: Array, rows: Array | None) -> Array:
        read = [columns if rows is None else take_rows(columns, rows) for columns in (keys, values)]
        seen = jnp.arange(cache_columns(keys)) <= positions[:, :, None]
        keys_read, values_read = (read_columns(columns, query.dtype) for columns in read)
        if way.prefill == "cudnn" and query.shape[1] > 1:
            return attend_fused(query, keys_read, values_read, seen)
        return attend(query, keys_read, values_read, seen)

    if way.decode == "ragged" and rows is None and query.shape[1] == 1 and block_of(cache_columns(keys)):
        if not isinstance(keys, Int8Columns) and not isinstance(values, Int8Columns):
            return _attend_ragged(query, keys, values, positions[:, 0], way)
    if way.prefill != "one_by_one" or query.shape[1] <= _FEW_QUERIES:
        return together(query, positions, rows)
    each = jnp.arange(query.shape[0]) if rows is None else rows
    one = jax.lax.map(lambda row: together(*(part[None] for part in row)), (query, positions, each))
    return one[:, 0]


def _attend_ragged(query: Array, keys: Array, values: Array, positions: Array, way: CacheAttention) -> Array:
    """`attend_ragged` of query [S, 1, N, H] at positions [S], every device its own slots and heads."""
    lengths = jnp.where(positions < keys.shape[2], positions + 1, 0)

    def local(query: Array, keys: Array, values: Array, lengths: Array) -> Array:
        return attend_ragged(query[:, 0], keys, values, lengths, interpret=way.interpret)[:, None]

    if way.mesh is None:
        return local(query, keys, values, lengths)
    cache = cache_sharding(way.mesh, slots=keys.shape[0], kv_heads=keys.shape[1]).spec
    asked = PartitionSpec(cache[0], None, cache[1], None)
    spread = jax.shard_map(
        local,
        mesh=way.mesh,
        in_specs=(asked, cache, cache, PartitionSpec(cache[0])),
        out_specs=asked,
        check_vma=False,  # a kernel does not say over which axes its result varies
    )
    return spread(query, keys, values, lengths)


def attend_fused(
    query: Array, keys: Array, values: Array, seen: Array, implementation: Literal["cudnn", "xla"] = "cudnn"
) -> Array:
    """`attend` by a kernel of jax.nn's that never holds all scores.

    Args:
        implementation: "xla" for where there is no GPU.
    """
    return jax.nn.dot_product_attention(
        query, keys.swapaxes(1, 2), values.swapaxes(1, 2), mask=seen[:, None], implementation=implementation
    )


def attend(query: Array, keys: Array, values: Array, seen: Array) -> Array:
    """softmax(q·k / √H) · v over the keys that are seen, in f32 where it matters.

    Args:
        query: [B, T, N, H].
        keys, values: [B, K, C, H].
        seen: bool [B, T, C].

    Returns:
        [B, T, N, H]; where nothing is seen, a finite mean of everything.
    """
    batch, tokens, heads, width = query.shape
    kv_heads, columns = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    # One plain batched product over B·K: twice as fast on CPU as the einsum that names every axis.
    rows = (batch * kv_heads, group * tokens, width)
    grouped = query.reshape(batch, tokens, kv_heads, group, width).transpose(0, 2, 3, 1, 4).reshape(rows)
    keys, values = (x.reshape(batch * kv_heads, columns, width).astype(query.dtype) for x in (keys, values))
    if group * tokens <= _FEW_QUERIES:
        # Few queries and many keys, as in decode: with the keys first XLA on CPU need not transpose them at every step,
        # which takes four times as long as the product. The barrier keeps it from turning the product round itself.
        scores = jax.lax.optimization_barrier(jnp.einsum("xch,xqh->xcq", keys, grouped)).swapaxes(1, 2)
    else:
        scores = jnp.einsum("xqh,xch->xqc", grouped, keys)
    scores = scores.astype(jnp.float32) * width**-0.5
    scores = jnp.where(seen[:, None], scores.reshape(batch, heads, tokens, columns), jnp.finfo(jnp.float32).min)
    shares = jax.nn.softmax(scores, axis=-1).reshape(batch * kv_heads, group * tokens, columns).astype(query.dtype)
    mixed = jnp.einsum("xqc,xch->xqh", shares, values)
    return mixed.reshape(batch, heads, tokens, width).transpose(0, 2, 1, 3)
