from __future__ import annotations

import jax
import pytest
from jax.sharding import AxisType

from jaxmtrl.errors import ConfigError
from jaxmtrl.parallel.mesh import make_mesh, row_shards, sampling_mesh


def test_data_takes_what_the_other_axes_leave():
    mesh = make_mesh(-1, 2, 2)
    assert dict(mesh.shape) == {"data": 2, "fsdp": 2, "sequence": 1, "tensor": 2}
    assert row_shards(mesh) == 4


def test_axes_are_auto_whatever_the_default_of_jax_is():
    assert set(make_mesh(8, 1, 1).axis_types) == {AxisType.Auto}


def test_a_mesh_may_take_some_of_the_devices():
    assert make_mesh(-1, 1, 1, devices=jax.devices()[:3]).size == 3


@pytest.mark.parametrize("shape", [(3, 1, 1), (16, 1, 1), (-1, 3, 1), (-1, 16, 1)])
def test_a_product_that_does_not_fit_names_both_numbers(shape):
    with pytest.raises(ConfigError, match="8 devices") as error:
        make_mesh(*shape)
    assert str(shape[1] * shape[2] * max(shape[0], 1)) in str(error.value)


def test_the_samplers_mesh_splits_heads_as_far_as_they_go():
    """Eight devices: two key-value heads leave four to the slots, three leave all; asked for, four and two."""
    mesh = make_mesh(1, 8, 1)
    shapes = [sampling_mesh(mesh, kv_heads=heads, tensor=tensor).shape for heads, tensor in ((2, 0), (3, 0), (2, 4))]
    assert [(shape["data"], shape["tensor"]) for shape in shapes] == [(4, 2), (8, 1), (2, 4)]
    with pytest.raises(ConfigError, match="sampling_tensor: got 3"):
        sampling_mesh(mesh, kv_heads=3, tensor=3)
