from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.parallel.sharding import (
    constrain_lookup_table,
    constrain_rows,
    named_shardings,
    partition_spec,
    replicated,
    rows_sharding,
)


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(2, 2, 2)


@pytest.mark.parametrize(
    ("names", "shape", "expected"),
    [
        (("vocab", "embed"), (64, 32), P("tensor", "fsdp")),
        (("layers", "embed", "heads", "head_dim"), (2, 32, 4, 8), P(None, "fsdp", "tensor", None)),
        (("layers", None), (2, 32), P(None, None)),
        ((), (), P()),
        # 263 tokens do not halve, three kv heads neither: they stay whole, the other dimension is split all the same.
        (("vocab", "embed"), (263, 32), P(None, "fsdp")),
        (("embed", "kv_heads", "head_dim"), (32, 3, 8), P("fsdp", None, None)),
        # One mesh axis splits an array once.
        (("heads", "mlp"), (4, 4), P("tensor", None)),
    ],
)
def test_logical_names_become_mesh_axes(mesh, names, shape, expected):
    assert partition_spec(names, shape, mesh) == expected


def test_scalars_and_nested_trees_have_shardings(mesh):
    axes = {"head": {"bias": (), "table": ("vocab", "embed")}}
    shapes = {"head": {"bias": jax.ShapeDtypeStruct((), "float32"), "table": jax.ShapeDtypeStruct((8, 4), "float32")}}
    shardings = named_shardings(mesh, axes, shapes)
    assert shardings["head"]["bias"].is_fully_replicated
    assert shardings["head"]["table"].shard_shape((8, 4)) == (4, 2)


def test_rows_spread_over_data_and_fsdp(mesh):
    assert rows_sharding(mesh).shard_shape((3, 8, 16)) == (3, 2, 16)
    assert replicated(mesh).shard_shape((3, 8)) == (3, 8)


def test_constrain_rows_changes_no_number_and_needs_no_mesh(mesh):
    x = np.arange(32.0).reshape(8, 4)
    np.testing.assert_array_equal(jax.jit(constrain_rows)(x), x)
    with jax.set_mesh(mesh):
        pinned = jax.jit(constrain_rows)(x)
    np.testing.assert_array_equal(pinned, x)
    assert pinned.sharding.shard_shape(x.shape) == (2, 4)


@pytest.mark.parametrize(("vocab", "local"), [(16, (8, 4)), (17, (17, 4))])
def test_a_lookup_table_has_whole_rows(mesh, vocab, local):
    table = np.arange(vocab * 4.0).reshape(vocab, 4)
    np.testing.assert_array_equal(jax.jit(constrain_lookup_table)(table), table)
    with jax.set_mesh(mesh):
        pinned = jax.jit(constrain_lookup_table)(table)
    assert pinned.sharding.shard_shape(table.shape) == local
