"""How the sampler's slots are laid out on the mesh."""

from __future__ import annotations

from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmtrl.parallel.mesh import ROW_AXES, TENSOR, row_shards


def cache_sharding(mesh: Mesh, *, slots: int, kv_heads: int) -> NamedSharding:
    """Of cache buffers [S, K, C, H]: slots are spread like rows, kv heads like weights, where axes divide them."""
    rows = ROW_AXES if slots % row_shards(mesh) == 0 else None
    heads = TENSOR if kv_heads % mesh.shape[TENSOR] == 0 else None
    return NamedSharding(mesh, PartitionSpec(rows, heads, None, None))
