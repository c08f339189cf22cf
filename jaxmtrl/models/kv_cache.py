"""The KV cache: for each layer keys and values [S, K, C, H], one row an episode.

The layer is a tuple index and not an array axis, so that one step writes into each buffer in place.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmtrl.models.columns import Columns, cache_columns, empty_columns
from jaxmtrl.models.decoder import DecoderConfig

Cache = tuple[tuple[Columns, Columns], ...]


def empty_cache(config: DecoderConfig, *, slots: int, length: int, dtype: str) -> Cache:
    """A zeroed cache of `slots` rows and `length` columns, in float32, bfloat16 or int8."""
    shape = (slots, config.kv_heads, length, config.head_dim)
    return tuple((empty_columns(shape, dtype), empty_columns(shape, dtype)) for _ in range(config.layers))


def cache_length(cache: Cache) -> int:
    """C, the columns that every row has."""
    return cache_columns(cache[0][0])


def copy_row(cache: Cache, source: jax.Array, target: jax.Array) -> Cache:
    """`cache` with row `target` equal to row `source`."""
    return jax.tree.map(lambda buffer: buffer.at[target].set(buffer[source]), cache)


def resized(layer: tuple[Columns, Columns], length: int) -> tuple[Columns, Columns]:
    """One layer's keys and values with `length` columns: the first of them, or all and then zeros."""

    def resize(buffer: jax.Array) -> jax.Array:
        kept = buffer[:, :, :length]
        return jnp.pad(kept, ((0, 0), (0, 0), (0, length - kept.shape[2]), (0, 0)))

    return jax.tree.map(resize, layer)


def cache_bytes(cache: Cache) -> int:
    """Bytes of the cache's buffers."""
    return sum(buffer.nbytes for buffer in jax.tree.leaves(cache))
