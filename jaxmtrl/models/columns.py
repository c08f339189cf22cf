"""How keys or values lie in a cache: as floats, or in eight bits with a scale for every head of every column.

Letters: S slots, K kv heads, C cache length, H head dim, B rows, T new tokens.
"""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

_STEPS = 127.0  # of int8, on either side of 0


@flax.struct.dataclass
class Int8Columns:
    """x ≈ values * scales."""

    values: jax.Array  # i8 [S, K, C, H]
    scales: jax.Array  # f32 [S, K, C, 1], the largest of H over 127


Columns = jax.Array | Int8Columns  # floats [S, K, C, H]


def empty_columns(shape: tuple[int, ...], dtype: str) -> Columns:
    """Zeros [S, K, C, H] in float32, bfloat16 or int8."""
    if dtype != "int8":
        return jnp.zeros(shape, dtype)
    return Int8Columns(values=jnp.zeros(shape, jnp.int8), scales=jnp.zeros((*shape[:-1], 1), jnp.float32))


def write_columns(columns: Columns, rows: jax.Array, positions: jax.Array, new: jax.Array) -> Columns:
    """`columns` with new keys or values in place; positions ≥ C are dropped.

    Args:
        rows: i32 [B, 1], which row each belongs to.
        positions: i32 [B, T], which column.
        new: [B, T, K, H].
    """

    def put(buffer: jax.Array, part: jax.Array) -> jax.Array:
        return buffer.at[rows, :, positions].set(part.astype(buffer.dtype), mode="drop")

    if not isinstance(columns, Int8Columns):
        return put(columns, new)
    new = new.astype(jnp.float32)
    scales = jnp.max(jnp.abs(new), axis=-1, keepdims=True) / _STEPS
    steps = jnp.round(new / jnp.where(scales > 0, scales, 1.0))
    return Int8Columns(values=put(columns.values, steps), scales=put(columns.scales, scales))


def cache_columns(columns: Columns) -> int:
    """C."""
    return jax.tree.leaves(columns)[0].shape[2]


def take_rows(columns: Columns, rows: jax.Array) -> Columns:
    """Rows [B] of them; a row ≥ S reads as the last one."""
    return jax.tree.map(lambda buffer: buffer.at[rows].get(mode="clip"), columns)


def read_columns(columns: Columns, dtype: Any) -> jax.Array:
    """All of them as floats [S, K, C, H]."""
    if not isinstance(columns, Int8Columns):
        return columns.astype(dtype)
    return (columns.values.astype(jnp.float32) * columns.scales).astype(dtype)
