"""Attention: within rows of a batch, and over a cache.

Letters: B rows, T tokens, N heads, K kv heads, H head dim, S cache rows, C cache length.
Softmax is computed in f32 whatever the activations' dtype.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmtrl.models.columns import Columns, cache_columns, read_columns, take_rows

Array = jax.Array

_FEW_QUERIES = 16  # of one key-value head


def attend_rows(query: Array, keys: Array, values: Array, segment_ids: Array) -> Array:
    """Causal attention within segments, in blocks of queries that never compute the keys after them.

    Faster on CPU than one masked product over the whole square: about half the work, and pieces that fit the cache.
    A padding token sees padding only; its output is finite and means nothing.

    Args:
        query: [B, T, N, H].
        keys, values: [B, T, K, H].
        segment_ids: i32 [B, T].
    """
    tokens = query.shape[1]
    keys, values = keys.swapaxes(1, 2), values.swapaxes(1, 2)  # [B, K, T, H]
    columns, blocks = jnp.arange(tokens), []
    for start in range(0, tokens, width := max(64, -(-tokens // 8))):
        stop = min(start + width, tokens)
        same = segment_ids[:, start:stop, None] == segment_ids[:, None, :stop]
        seen = same & (columns[:stop] <= columns[start:stop, None])  # [B, block, stop]
        blocks.append(attend(query[:, start:stop], keys[:, :, :stop], values[:, :, :stop], seen))
    return jnp.concatenate(blocks, axis=1)


def attend_cache(
    query: Array,
    keys: Columns,
    values: Columns,
    positions: Array,
    rows: Array | None = None,
    *,
    one_by_one: bool = False,
) -> Array:
    """Attention over cached keys and values; position p sees columns c ≤ p.

    Args:
        query: [B, T, N, H].
        keys, values: [S, K, C, H].
        positions: i32 [B, T].
        rows: i32 [B], the cache row of each row of queries; ≥ S reads as the last. None: row b is b.
        one_by_one: take the rows one after the other where a row has enough queries to keep a CPU busy: what they
            need then stays in its caches, which is a third faster there.
    """

    def together(query: Array, positions: Array, rows: Array | None) -> Array:
        read = [columns if rows is None else take_rows(columns, rows) for columns in (keys, values)]
        seen = jnp.arange(cache_columns(keys)) <= positions[:, :, None]
        keys_read, values_read = (read_columns(columns, query.dtype) for columns in read)
        return attend(query, keys_read, values_read, seen)

    if not one_by_one or query.shape[1] <= _FEW_QUERIES:
        return together(query, positions, rows)
    each = jnp.arange(query.shape[0]) if rows is None else rows
    one = jax.lax.map(lambda row: together(*(part[None] for part in row)), (query, positions, each))
    return one[:, 0]


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
