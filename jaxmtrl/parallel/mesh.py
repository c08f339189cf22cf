"""The device mesh: how the devices of a run are laid out, and the only place that names its axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from jaxmtrl.errors import ConfigError

DATA = "data"  # rows are split, weights are copies
FSDP = "fsdp"  # rows are split and so are the weights
TENSOR = "tensor"  # heads, MLP and vocabulary are split, rows are copies
AXES = (DATA, FSDP, TENSOR)
ROW_AXES = (DATA, FSDP)


def make_mesh(data: int, fsdp: int, tensor: int, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh with Auto axis types over all given devices.

    Args:
        data: devices along which rows alone are split, at least 1; -1 takes what the other two axes leave.
        fsdp: devices along which rows and weights are split, at least 1.
        tensor: devices along which heads, MLP and vocabulary are split, at least 1.
        devices: all devices of the run unless given.

    Raises:
        ConfigError: the product of the axes is not the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    others = fsdp * tensor
    shape = (len(devices) // others if data == -1 else data, fsdp, tensor)
    if math.prod(shape) != len(devices) or min(shape) < 1:
        raise ConfigError("the mesh", [_misfit(data, fsdp, tensor, len(devices))])
    # Axes need not match the torus of a TPU slice; Auto, because Explicit is the default of some jax versions.
    layout = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return Mesh(layout, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _misfit(data: int, fsdp: int, tensor: int, count: int) -> str:
    if data == -1:
        return (
            f"mesh.fsdp * mesh.tensor = {fsdp} * {tensor} = {fsdp * tensor} must divide the {count} devices of this "
            "run; choose factors of that count"
        )
    return (
        f"mesh.data * mesh.fsdp * mesh.tensor = {data} * {fsdp} * {tensor} = {data * fsdp * tensor} must equal the "
        f"{count} devices of this run; mesh.data=-1 takes what the other two leave"
    )


def row_shards(mesh: Mesh) -> int:
    """Into how many parts the rows of a micro-batch are split."""
    return math.prod(mesh.shape[axis] for axis in ROW_AXES)
