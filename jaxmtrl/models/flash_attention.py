"""Attention within packed rows, block by block, where blocks that no token of a row may see are not computed.

The softmax over blocks of keys is the running one of FlashAttention (Dao and others, 2022): no square of scores is ever
held, and the backward pass computes scores again from one number a query. In plain jax, for CPUs: loops whose length
depends on the data cost nothing there.
Letters: B rows, T tokens, N heads, K kv heads, H head dim, G = N / K; W tokens of a block, A blocks, M = G·W queries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmtrl.models.remat import ATTENTION_OUTPUT, named

Array = jax.Array

_SMALLEST_BLOCK, _LARGEST_BLOCK = 64, 256  # tokens; smaller blocks skip more and multiply slower
_UNSEEN = np.float32(-1e30)  # a score; finite, so that a block with nothing to see gives no NaN


class _Blocks(NamedTuple):
    """The inputs cut into blocks of tokens; rows and kv heads are one axis, which a product takes as one batch."""

    query: Array  # [A, B·K, M, H], scaled
    keys: Array  # [A, B·K, W, H]
    values: Array  # [A, B·K, W, H]
    segments: Array  # i32 [A, B, W]; -2 where a row was padded to whole blocks
    first: Array  # i32 [A], the earliest block that a token of this one may see


@jax.custom_vjp
def attend_flash(query: Array, keys: Array, values: Array, segment_ids: Array) -> Array:
    """Causal attention within segments, whose tokens are neighbours.

    Scores and sums are f32 whatever the inputs' dtype.

    Args:
        query: [B, T, N, H].
        keys, values: [B, T, K, H].
        segment_ids: i32 [B, T], not below -1.

    Returns:
        [B, T, N, H].
    """
    return _forward(query, keys, values, segment_ids)[0]


def _forward(query: Array, keys: Array, values: Array, segment_ids: Array) -> tuple[Array, Any]:
    blocks = _cut(query, keys, values, segment_ids)

    def of_block(at: Array) -> tuple[Array, Array]:
        """Mixed values [B·K, M, H] and log of the sum of exp of scores [B·K, M] of one block's queries."""
        asked = blocks.query[at]

        def with_keys(other: Array, running: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            highest, total, mixed = running
            scores = _scores(blocks, at, other)
            new = jnp.maximum(highest, scores.max(axis=-1))
            kept, shares = jnp.exp(highest - new), jnp.exp(scores - new[..., None])
            more = _product("xmw,xwh->xmh", shares.astype(values.dtype), blocks.values[other])
            return new, total * kept + shares.sum(axis=-1), mixed * kept[..., None] + more

        none = jnp.zeros(asked.shape[:2], jnp.float32)
        start = (none + _UNSEEN, none, jnp.zeros(asked.shape, jnp.float32))
        highest, total, mixed = jax.lax.fori_loop(blocks.first[at], at + 1, with_keys, start)
        return mixed / total[..., None], highest + jnp.log(total)

    mixed, log_total = jax.lax.map(of_block, jnp.arange(len(blocks.query)))
    out = named(_joined(mixed, query).astype(query.dtype), ATTENTION_OUTPUT)
    return out, (query, keys, values, segment_ids, out, named(log_total, ATTENTION_OUTPUT))


def _backward(residuals: Any, cotangent: Array) -> tuple[Array, Array, Array, None]:
    query, keys, values, segment_ids, out, log_total = residuals
    blocks = _cut(query, keys, values, segment_ids)
    wanted = _blocks_of(cotangent, keys)  # [A, B·K, M, H]
    dots = _blocks_of(jnp.sum((cotangent * out).astype(jnp.float32), axis=-1, keepdims=True), keys)[..., 0]

    def of_block(sums: tuple[Array, Array], at: Array) -> tuple[tuple[Array, Array], Array]:
        """Adds one block of queries' part to the keys' and values' gradients, and gives the queries'."""

        def with_keys(other: Array, running: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            d_query, d_keys, d_values = running
            shares = jnp.exp(_scores(blocks, at, other) - log_total[at][..., None])
            d_shares = _product("xmh,xwh->xmw", wanted[at], blocks.values[other])
            d_scores = (shares * (d_shares - dots[at][..., None])).astype(query.dtype)
            # Heads first: XLA on CPU would transpose the larger factor otherwise, half as fast.
            d_values = d_values.at[other].add(_product("xmh,xmw->xhw", wanted[at], shares.astype(query.dtype)))
            d_keys = d_keys.at[other].add(_product("xmh,xmw->xhw", blocks.query[at], d_scores))
            return d_query + _product("xmw,xwh->xmh", d_scores, blocks.keys[other]), d_keys, d_values

        start = (jnp.zeros(blocks.query.shape[1:], jnp.float32), *sums)
        d_query, *sums_after = jax.lax.fori_loop(blocks.first[at], at + 1, with_keys, start)
        return (sums_after[0], sums_after[1]), d_query

    none = jnp.zeros(blocks.keys.swapaxes(2, 3).shape, jnp.float32)
    (d_keys, d_values), d_query = jax.lax.scan(of_block, (none, none), jnp.arange(len(blocks.query)))
    return (
        (_joined(d_query, query) * query.shape[-1] ** -0.5).astype(query.dtype),
        _joined(d_keys.swapaxes(2, 3), keys).astype(keys.dtype),
        _joined(d_values.swapaxes(2, 3), values).astype(values.dtype),
        None,
    )


attend_flash.defvjp(_forward, _backward)


def _product(axes: str, one: Array, other: Array) -> Array:
    return jnp.einsum(axes, one, other, preferred_element_type=jnp.float32)


def _scores(blocks: _Blocks, at: Array, other: Array) -> Array:
    """[B·K, M, W] f32 of one block's queries with another's keys."""
    scores = _product("xmh,xwh->xmw", blocks.query[at], blocks.keys[other])
    mine, theirs = blocks.segments[at], blocks.segments[other]  # [B, W]
    rows, width = mine.shape

    def masked(scores: Array) -> Array:
        columns = jnp.arange(width)
        before = (other * width + columns) <= (at * width + columns[:, None])
        seen = (mine[:, :, None] == theirs[:, None]) & before  # [B, W, W]
        by_head = scores.reshape(rows, -1, width, width)
        return jnp.where(seen[:, None], by_head, _UNSEEN).reshape(scores.shape)

    # Most pairs of blocks lie within one segment, where a mask would be another pass over all scores.
    one_segment = (mine == theirs[:, :1]).all() & (theirs == theirs[:, :1]).all()
    return jax.lax.cond((at != other) & one_segment, lambda scores: scores, masked, scores)


def _cut(query: Array, keys: Array, values: Array, segment_ids: Array) -> _Blocks:
    query = query * np.asarray(query.shape[-1] ** -0.5, query.dtype)
    width = _width(query.shape[1])
    segments = _padded(segment_ids, width, -2)
    rows = len(segments)
    blocks = segments.reshape(rows, -1, width)
    # The earliest token of the segment in which a block begins: no token of the block sees one before it.
    earliest = jnp.argmax(segments[:, None] == blocks[:, :, :1], axis=-1)  # [B, A]
    return _Blocks(
        query=_blocks_of(query, keys),
        keys=_blocks_of(keys, keys),
        values=_blocks_of(values, keys),
        segments=blocks.swapaxes(0, 1),
        first=earliest.min(axis=0) // width,
    )


def _width(tokens: int) -> int:
    """Tokens of a block: a quarter of a row within limits, and so that blocks fill a row."""
    wanted = min(max(-(-tokens // 4), _SMALLEST_BLOCK), _LARGEST_BLOCK)
    return -(-tokens // -(-tokens // wanted))


def _padded(array: Array, width: int, value: int = 0) -> Array:
    """Axis 1 up to whole blocks."""
    return jnp.pad(array, ((0, 0), (0, -array.shape[1] % width), *((0, 0),) * (array.ndim - 2)), constant_values=value)


def _blocks_of(array: Array, keys: Array) -> Array:
    """[B, T, N, X] to [A, B·K, M, X], whose heads go with those of `keys` [B, T, K, ·]; N may be K."""
    rows, tokens, heads, last = array.shape
    width, kv_heads = _width(tokens), keys.shape[2]
    array = _padded(array, width).reshape(rows, -1, width, kv_heads, heads // kv_heads, last)
    return array.transpose(1, 0, 3, 4, 2, 5).reshape(array.shape[1], rows * kv_heads, -1, last)


def _joined(blocks: Array, like: Array) -> Array:
    """Of blocks [A, B·K, M, H] the whole [B, T, N, H], the shape of `like`."""
    rows, tokens, heads, last = like.shape
    width = _width(tokens)
    array = blocks.reshape(len(blocks), rows, heads, width, last).transpose(1, 0, 3, 2, 4)
    return array.reshape(rows, -1, heads, last)[:, :tokens]
