"""Brings packed rows to the devices: cut into micro-batches of one fixed shape, spread over the mesh.

Letters: n micro-batches, M rows each, T tokens a row, E episodes. Knows nothing of what is learnt from the rows.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import flax.struct
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from jaxmtrl.batch import TokenBatch, column_fields
from jaxmtrl.errors import CapacityError, ConfigError
from jaxmtrl.parallel.mesh import row_shards
from jaxmtrl.parallel.sharding import replicated, rows_sharding


@flax.struct.dataclass
class DeviceBatch:
    """A batch as the compiled programs take it; its shapes are the same for every batch of a run."""

    rows: TokenBatch  # every [B, T] field as [n, M, T]; group_ids [E]
    used: jax.Array  # i32 [], leading micro-batches that hold tokens; the programs skip the others


def put_batch(
    batch: TokenBatch, *, micro_batch_rows: int, max_rows: int, mesh: Mesh, supports: jax.Array | None = None
) -> DeviceBatch:
    """Pads a host batch with empty rows, cuts it into micro-batches and places it.

    Args:
        batch: numpy, [B, T] with B ≤ `max_rows`; every process of a run gives the same one.
        micro_batch_rows: M.
        max_rows: most rows a batch may have; n = ceil(max_rows / M).
        supports: placed, what the batch's `support_ids` are rows of; for one that has them.

    Raises:
        CapacityError: B > `max_rows`.
        ConfigError: M does not spread evenly over the mesh.
        ValueError: an episode begins with an action token, which nothing predicts.
    """
    shards = row_shards(mesh)
    if micro_batch_rows % shards:
        raise ConfigError(
            "the batch shapes",
            [
                f"batching.micro_batch_rows must be a multiple of mesh.data * mesh.fsdp = {shards}, "
                f"got {micro_batch_rows}; {math.ceil(micro_batch_rows / shards) * shards} would do"
            ],
        )
    rows, length = batch.tokens.shape
    if rows > max_rows:
        raise CapacityError(
            f"a batch fills {rows} packed rows and the update is compiled for {max_rows}; "
            "raise batching.row_length or play fewer episodes an iteration"
        )
    _check_first_tokens(batch)
    count = math.ceil(max_rows / micro_batch_rows)
    filled = 1 + int(np.flatnonzero(np.any(batch.segment_ids >= 0, axis=1)).max(initial=-1))
    used = math.ceil(filled / micro_batch_rows)
    places = row_places(filled, used=used, micro_batch_rows=micro_batch_rows)

    def cut(array: np.ndarray, pad: int | bool) -> jax.Array:
        dealt = np.full((count * micro_batch_rows, length), pad, array.dtype)
        dealt[places] = array[:filled]
        return _place(dealt.reshape(count, micro_batch_rows, length), rows_sharding(mesh))

    return DeviceBatch(
        rows=TokenBatch(
            tokens=cut(batch.tokens, 0),
            segment_ids=cut(batch.segment_ids, -1),
            positions=cut(batch.positions, 0),
            action_mask=cut(batch.action_mask, False),
            behaviour_logprobs=cut(batch.behaviour_logprobs, 0),
            rewards=cut(batch.rewards, 0),
            turn_ids=cut(batch.turn_ids, -1),
            anchor_ids=cut(batch.anchor_ids, -1),
            bootstrap_mask=cut(batch.bootstrap_mask, False),
            group_ids=_place(np.asarray(batch.group_ids), replicated(mesh)),
            support_ids=None if batch.support_ids is None else cut(batch.support_ids, 0),
            supports=None if batch.support_ids is None else supports,
        ),
        used=_place(np.asarray(used, np.int32), replicated(mesh)),
    )


def abstract_batch(*, micro_batch_rows: int, max_rows: int, row_length: int, episodes: int, mesh: Mesh) -> DeviceBatch:
    """Shape, dtype and sharding of every array that `put_batch` gives for batches of so many episodes."""
    count = math.ceil(max_rows / micro_batch_rows)

    def rows(dtype: str) -> Any:
        shape = (count, micro_batch_rows, row_length)
        return jax.ShapeDtypeStruct(shape, np.dtype(dtype), sharding=rows_sharding(mesh))

    def everywhere(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.dtype("int32"), sharding=replicated(mesh))

    return DeviceBatch(
        rows=TokenBatch(
            tokens=rows("int32"),
            segment_ids=rows("int32"),
            positions=rows("int32"),
            action_mask=rows("bool"),
            behaviour_logprobs=rows("float32"),
            rewards=rows("float32"),
            turn_ids=rows("int32"),
            anchor_ids=rows("int32"),
            bootstrap_mask=rows("bool"),
            group_ids=everywhere(episodes),
        ),
        used=everywhere(),
    )


def save_micro_batch(path: Path, rows: TokenBatch, index: int) -> None:
    """Writes one micro-batch of [n, M, T] fields as .npz, to look at; every process of a run must call it."""
    arrays = {name: getattr(rows, name) for name in column_fields(rows)}
    whole = {name: jax.device_put(array, replicated(array.sharding.mesh))[index] for name, array in arrays.items()}
    np.savez(path, **{name: np.asarray(array) for name, array in whole.items()})  # pyright: ignore


def row_places(rows: int, *, used: int, micro_batch_rows: int) -> np.ndarray:
    """Where the rows of a host batch lie in the flattened [n * M, T] of its device batch.

    Rows are dealt like cards, one to each used micro-batch in turn: packing sorts them by length, and a minibatch of
    nothing but long episodes would be a biased step.

    Args:
        rows: of the host batch, up to the last that holds tokens.
        used: `DeviceBatch.used`.

    Returns:
        i64 [rows]; place // M is the micro-batch.
    """
    dealt = np.arange(rows)
    return dealt % max(used, 1) * micro_batch_rows + dealt // max(used, 1)


def micro_batch_order(rng: np.random.Generator, *, used: int, count: int, epochs: int) -> np.ndarray:
    """In which order each pass takes the micro-batches.

    Args:
        used: micro-batches that hold tokens (`DeviceBatch.used`).
        count: n, micro-batches there are.
        epochs: passes.

    Returns:
        i32 [epochs, n], permutations of 0..n-1 whose first `used` entries are the used micro-batches.
    """
    rest = np.arange(used, count)
    return np.stack([np.concatenate([rng.permutation(used), rest]) for _ in range(epochs)]).astype(np.int32)


def _place(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Each process uploads the parts its own devices hold."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _check_first_tokens(batch: TokenBatch) -> None:
    before = np.concatenate([np.full_like(batch.segment_ids[:, :1], -1), batch.segment_ids[:, :-1]], axis=1)
    unpredicted = batch.action_mask & ((before != batch.segment_ids) | batch.first)
    if unpredicted.any():
        row, column = np.argwhere(unpredicted)[0]
        raise ValueError(
            f"row {row}, column {column}: an action token begins episode {batch.segment_ids[row, column]}, "
            "so nothing predicts it; a packed episode must begin with its prompt"
        )


def take(tree: Any, index: jax.Array) -> Any:
    """[n, M, T] → [M, T] for every array of the tree."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), tree)


def take_micro_batch(rows: TokenBatch, index: jax.Array) -> TokenBatch:
    """One micro-batch, [M, T] fields; group_ids and supports stay those of the whole batch."""
    return dataclasses.replace(rows, **{name: take(getattr(rows, name), index) for name in column_fields(rows)})
