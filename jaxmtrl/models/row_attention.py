"""Attention within packed rows, as the learner computes it: a token sees itself and what came before it in its segment.

Four ways with the same numbers up to rounding: products in blocks, which run anywhere; loops over blocks that leave out
what no token sees, for CPUs; the splash kernel on a TPU and cuDNN's on a GPU. The latter three never hold a square of
scores.
Letters: B rows, T tokens, N heads, K kv heads, H head dim.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import Mesh, PartitionSpec

from jaxmtrl.models.attention import attend, attend_fused
from jaxmtrl.models.flash_attention import attend_flash
from jaxmtrl.models.remat import ATTENTION_OUTPUT, named
from jaxmtrl.parallel.mesh import ROW_AXES, SEQUENCE, TENSOR

Array = jax.Array

RowAttentionKind = Literal["blocks", "flash", "splash", "cudnn"]

_SPLASH_BLOCKS = (512, 256, 128)  # tokens: the largest of them that divides T
_LANES = 128  # to a multiple of which the kernel wants heads padded


@dataclasses.dataclass(frozen=True)
class RowAttention:
    """Which way, and where."""

    kind: RowAttentionKind = "blocks"  # rows that splash cannot divide: in blocks
    mesh: Mesh | None = None  # over which rows, heads and tokens are spread; None: one device
    interpret: bool = False  # splash without a TPU, slowly


def attend_rows(
    query: Array, keys: Array, values: Array, segment_ids: Array, way: RowAttention = RowAttention()
) -> Array:
    """Causal attention within segments.

    A padding token sees padding only; its output is finite and means nothing.

    Args:
        query: [B, T, N, H].
        keys, values: [B, T, K, H].
        segment_ids: i32 [B, T].
    """
    tokens = query.shape[1]
    if way.mesh is not None and way.mesh.shape[SEQUENCE] > 1:
        return named(_attend_split(query, keys, values, segment_ids, way.mesh), ATTENTION_OUTPUT)
    if way.kind == "cudnn":
        columns = jnp.arange(tokens)
        seen = (segment_ids[:, :, None] == segment_ids[:, None]) & (columns <= columns[:, None])
        return named(attend_fused(query, keys.swapaxes(1, 2), values.swapaxes(1, 2), seen), ATTENTION_OUTPUT)
    if way.kind == "splash" and tokens % _SPLASH_BLOCKS[-1] == 0:
        kernel = functools.partial(_splash, interpret=way.interpret)
        return _attend_spread(kernel, query, keys, values, segment_ids, way.mesh)
    if way.kind == "flash":
        return _attend_spread(attend_flash, query, keys, values, segment_ids, way.mesh)
    return named(attend_in_blocks(query, keys, values, segment_ids), ATTENTION_OUTPUT)


def attend_in_blocks(query: Array, keys: Array, values: Array, segment_ids: Array) -> Array:
    """Causal attention within segments, in blocks of queries that never compute the keys after them.

    Faster on CPU than one masked product over the whole square: about half the work, and pieces that fit the cache.
    Arguments as of `attend_rows`.
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


def _attend_split(query: Array, keys: Array, values: Array, segment_ids: Array, mesh: Mesh) -> Array:
    """Of rows whose tokens are split over devices: each gathers all keys and values and asks for its own tokens.

    Keys are few beside queries where heads share them. A device with early tokens computes scores of later ones, which
    are masked: twice the products of attention that are needed.
    """
    keys, values, split = _heads_split(query, keys, values, mesh)
    parts = PartitionSpec(ROW_AXES, SEQUENCE, split, None)
    spread = jax.shard_map(
        _attend_part, mesh=mesh, in_specs=(parts, parts, parts, PartitionSpec(ROW_AXES, SEQUENCE)), out_specs=parts
    )
    return spread(query, keys, values, segment_ids)


def _heads_split(query: Array, keys: Array, values: Array, mesh: Mesh) -> tuple[Array, Array, str | None]:
    """Keys and values that go with the queries' heads on every device, and the axis over which all are split."""
    heads, kv_heads, shards = query.shape[2], keys.shape[2], mesh.shape[TENSOR]
    if kv_heads % shards and heads % shards == 0 and shards % kv_heads == 0:
        # Fewer key-value heads than devices: each gets a copy of the one its heads read.
        keys, values = (jnp.repeat(part, shards // kv_heads, axis=2) for part in (keys, values))
    return keys, values, TENSOR if heads % shards == 0 and keys.shape[2] % shards == 0 else None


def _attend_part(query: Array, keys: Array, values: Array, segment_ids: Array) -> Array:
    """One device's tokens [b, t, n, H] to all of their rows' keys, in blocks of queries."""
    first = jax.lax.axis_index(SEQUENCE) * query.shape[1]
    keys, values, segments = (
        jax.lax.all_gather(part, SEQUENCE, axis=1, tiled=True) for part in (keys, values, segment_ids)
    )
    keys, values = keys.swapaxes(1, 2), values.swapaxes(1, 2)  # [b, k, T, H]
    columns, blocks = jnp.arange(keys.shape[2]), []
    for start in range(0, query.shape[1], width := max(64, -(-query.shape[1] // 8))):
        block = slice(start, min(start + width, query.shape[1]))
        asked = first + jnp.arange(block.start, block.stop)
        seen = (segment_ids[:, block, None] == segments[:, None]) & (columns <= asked[:, None])
        blocks.append(attend(query[:, block], keys, values, seen))
    return jnp.concatenate(blocks, axis=1)


def _attend_spread(
    kernel: Callable[..., Array], query: Array, keys: Array, values: Array, segment_ids: Array, mesh: Mesh | None
) -> Array:
    """By a kernel for one device, every device its own rows and heads."""
    if mesh is None:
        return kernel(query, keys, values, segment_ids)
    keys, values, split = _heads_split(query, keys, values, mesh)
    whole = PartitionSpec(ROW_AXES, None, split, None)
    spread = jax.shard_map(
        kernel,
        mesh=mesh,
        in_specs=(whole, whole, whole, PartitionSpec(ROW_AXES, None)),
        out_specs=whole,
        check_vma=False,  # a kernel does not say over which axes its result varies
    )
    return spread(query, keys, values, segment_ids)


def _splash(query: Array, keys: Array, values: Array, segment_ids: Array, *, interpret: bool) -> Array:
    tokens, heads, width = query.shape[1:]
    block = next(block for block in _SPLASH_BLOCKS if tokens % block == 0)
    causal = splash.MultiHeadMask([splash.CausalMask((tokens, tokens)) for _ in range(heads)])
    kernel = splash.make_splash_mha(
        causal,
        head_shards=1,
        q_seq_shards=1,
        block_sizes=splash.BlockSizes(
            block_q=block,
            block_kv=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            block_q_dq=block,
            block_kv_dq=block,
        ),
        residual_checkpoint_name=ATTENTION_OUTPUT,  # so that remat may keep what its backward pass reads
        interpret=interpret,
    )
    query = query * np.asarray(width**-0.5, query.dtype)
    padding = ((0, 0), (0, 0), (0, 0), (0, -width % _LANES))
    parts = (jnp.pad(part, padding).swapaxes(1, 2) for part in (query, keys, values))  # [B, N or K, T, H]
    mixed: Any = jax.vmap(kernel)(*parts, splash.SegmentIds(segment_ids, segment_ids))
    return mixed.swapaxes(1, 2)[..., :width]
