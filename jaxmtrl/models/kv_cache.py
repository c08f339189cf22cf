"""The KV cache: for each layer keys and values [S, K, C, H], one row an episode.

The layer is a tuple index and not an array axis, so that one step writes into each buffer in place.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmtrl.models.decoder import DecoderConfig

Cache = tuple[tuple[jax.Array, jax.Array], ...]


def empty_cache(config: DecoderConfig, *, slots: int, length: int, dtype: str) -> Cache:
    """A zeroed cache of `slots` rows and `length` columns."""
    shape = (slots, config.kv_heads, length, config.head_dim)
    return tuple((jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(config.layers))


def take_rows(cache: Cache, rows: jax.Array) -> Cache:
    """The cache rows [R] as a smaller cache."""
    return jax.tree.map(lambda buffer: buffer[rows], cache)


def put_rows(cache: Cache, rows: jax.Array, values: Cache) -> Cache:
    """`cache` with `values` at `rows` [R]; rows ≥ S are dropped."""
    return jax.tree.map(lambda buffer, new: buffer.at[rows].set(new, mode="drop"), cache, values)


def cache_bytes(cache: Cache) -> int:
    """Bytes of the cache's buffers."""
    return sum(buffer.nbytes for buffer in jax.tree.leaves(cache))
