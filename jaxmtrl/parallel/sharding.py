"""Which array dimension is split over which mesh axis: one table for weights, three rules for everything else.

Weights carry logical names (`Network.axes`); nothing outside this folder knows a mesh axis.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmtrl.parallel.mesh import FSDP, ROW_AXES, SEQUENCE, TENSOR

# Logical name of a weight's dimension -> mesh axis. Names that are missing here are never split.
TABLE: dict[str, str] = {
    "embed": FSDP,
    "heads": TENSOR,
    "kv_heads": TENSOR,
    "mlp": TENSOR,
    "vocab": TENSOR,
}


def partition_spec(names: tuple[str | None, ...], shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
    """How one weight is split.

    A dimension that its mesh axis does not divide stays whole (every device of the axis holds all of it): the numbers
    are the same, only memory is spent. So two key-value heads may live on four tensor devices.

    Args:
        names: logical name of each dimension.
        shape: size of each dimension.
    """
    spec: list[str | None] = []
    for name, size in zip(names, shape, strict=True):
        axis = TABLE.get(name) if name else None
        splits = axis is not None and axis not in spec and size % mesh.shape[axis] == 0
        spec.append(axis if splits else None)
    return PartitionSpec(*spec)


def named_shardings(mesh: Mesh, axes: Any, shapes: Any) -> Any:
    """The sharding of every weight.

    Args:
        axes: tree of tuples of logical names, one name a dimension.
        shapes: the same tree of arrays or `jax.ShapeDtypeStruct`s; where one weight is several arrays of the same
            dimensions (quantised values and their scales), the names are those of each.

    Returns:
        The tree of `NamedSharding`s.
    """

    def place(names: tuple[str | None, ...], weight: Any) -> Any:
        return jax.tree.map(lambda leaf: NamedSharding(mesh, partition_spec(names, leaf.shape, mesh)), weight)

    return jax.tree.map(place, axes, shapes, is_leaf=lambda node: isinstance(node, tuple))


def rows_sharding(mesh: Mesh) -> NamedSharding:
    """Of arrays [n, M, T]: the M rows of each of n micro-batches are spread over the devices that split rows."""
    return NamedSharding(mesh, PartitionSpec(None, ROW_AXES, None))


def in_host_memory(sharding: NamedSharding) -> NamedSharding:
    """The same place, in the memory of the host that the device belongs to."""
    return sharding.with_memory_kind("pinned_host")


def sent_to_host(tree: Any) -> Any:
    """Arrays moved to the host's memory, wherever their devices are; what is given may be freed."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf, in_host_memory(leaf.sharding)), tree)


def fetched_from_host(tree: Any) -> Any:
    """Copies of `sent_to_host`'s on the devices."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf, leaf.sharding.with_memory_kind("device")), tree)


def replicated(mesh: Mesh) -> NamedSharding:
    """A copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def constrain_rows(array: jax.Array) -> jax.Array:
    """Pins the first dimension of an activation [M, ...] to the devices that split rows, the rest whole.

    Without it the partitioner is free to split activations along the weights' axes instead. Does nothing outside
    a `jax.set_mesh` context, so that the same function runs on one device.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return array
    return jax.lax.with_sharding_constraint(array, PartitionSpec(ROW_AXES))


def constrain_tokens(array: jax.Array) -> jax.Array:
    """Pins an activation [M, T, ...]: rows as `constrain_rows` does, tokens to the devices that split them."""
    if jax.sharding.get_abstract_mesh().empty:
        return array
    return jax.lax.with_sharding_constraint(array, PartitionSpec(ROW_AXES, SEQUENCE))


def constrain_lookup_table(table: jax.Array) -> jax.Array:
    """Pins an embedding table [V, D] for a lookup: split over V where the mesh can, each row of it whole.

    Looking rows up in a table that is split over D gives activations split over D, which the partitioner can only
    bring to split rows by a full copy on every device. Does nothing outside a `jax.set_mesh` context.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return table
    vocab = TENSOR if table.shape[0] % mesh.shape[TENSOR] == 0 else None
    return jax.lax.with_sharding_constraint(table, PartitionSpec(vocab, None))
