"""The KV cache: for each layer keys and values [S, K, C, H], one row an episode.

The layer is a tuple index and not an array axis, so that one step writes into each buffer in place.
"""

from __future__ import annotations

import jax

from jaxmtrl.models.columns import Columns, empty_columns
from jaxmtrl.models.decoder import DecoderConfig

Cache = tuple[tuple[Columns, Columns], ...]


def empty_cache(config: DecoderConfig, *, slots: int, length: int, dtype: str) -> Cache:
    """A zeroed cache of `slots` rows and `length` columns, in float32, bfloat16 or int8."""
    shape = (slots, config.kv_heads, length, config.head_dim)
    return tuple((empty_columns(shape, dtype), empty_columns(shape, dtype)) for _ in range(config.layers))


def take_rows(cache: Cache, rows: jax.Array, length: int) -> Cache:
    """The first `length` columns of the cache rows [R], as a smaller cache."""
    return jax.tree.map(lambda buffer: buffer[rows, :, :length], cache)


def put_rows(cache: Cache, rows: jax.Array, values: Cache) -> Cache:
    """`cache` with `values` in the first columns of `rows` [R]; rows ≥ S are dropped."""
    return jax.tree.map(lambda buffer, new: buffer.at[rows, :, : new.shape[2]].set(new, mode="drop"), cache, values)


def take_columns(cache: Cache, length: int) -> Cache:
    """The first `length` columns of every row. Slicing inside a loop would copy them at every step."""
    return jax.tree.map(lambda buffer: buffer[:, :, :length], cache)


def put_columns(cache: Cache, values: Cache) -> Cache:
    """`cache` with `values` in its first columns."""
    return jax.tree.map(lambda buffer, new: jax.lax.dynamic_update_slice(buffer, new, (0, 0, 0, 0)), cache, values)


def cache_bytes(cache: Cache) -> int:
    """Bytes of the cache's buffers."""
    return sum(buffer.nbytes for buffer in jax.tree.leaves(cache))
