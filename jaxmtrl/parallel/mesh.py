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
SEQUENCE = "sequence"  # a row's tokens are split, weights are copies
TENSOR = "tensor"  # heads, MLP and vocabulary are split, rows are copies
AXES = (DATA, FSDP, SEQUENCE, TENSOR)
ROW_AXES = (DATA, FSDP)


def make_mesh(data: int, fsdp: int, tensor: int, devices: Sequence[Any] | None = None, *, sequence: int = 1) -> Mesh:
    """A mesh with Auto axis types over all given devices.

    Args:
        data: devices along which rows alone are split, at least 1; -1 takes what the other axes leave.
        fsdp: devices along which rows and weights are split, at least 1.
        tensor: devices along which heads, MLP and vocabulary are split, at least 1.
        devices: all devices of the run unless given.
        sequence: devices along which the tokens of a row are split, at least 1.

    Raises:
        ConfigError: the product of the axes is not the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    others = fsdp * sequence * tensor
    shape = (len(devices) // others if data == -1 else data, fsdp, sequence, tensor)
    if math.prod(shape) != len(devices) or min(shape) < 1:
        raise ConfigError("the mesh", [_misfit(data, fsdp, sequence, tensor, len(devices))])
    # Axes need not match the torus of a TPU slice; Auto, because Explicit is the default of some jax versions.
    layout = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return Mesh(layout, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def sampling_mesh(mesh: Mesh, *, kv_heads: int, tensor: int = 0, own: Sequence[Any] | None = None) -> Mesh:
    """The mesh of the sampler, over this process's devices: heads are split as far as they go, slots over the rest.

    A decode step reads every weight for a token a slot, so weights that had to be gathered first, as an update's may
    be, would cost many times the step. Each host plays its own episodes and so needs nobody else's devices.

    Args:
        mesh: the update's.
        kv_heads: K.
        tensor: devices along which heads are split; 0: the most that divide both K and the devices.
        own: the host's devices; None: those of the mesh that belong to this process.

    Raises:
        ConfigError: `tensor` does not divide the devices.
    """
    if own is None:
        own = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
    if len(own) == 1:
        return mesh if mesh.size == 1 else make_mesh(1, 1, 1, own)
    if tensor and len(own) % tensor:
        raise ConfigError(
            "the mesh", [f"mesh.sampling_tensor: got {tensor}, wanted a divisor of the {len(own)} devices of a host"]
        )
    split = tensor or math.gcd(len(own), kv_heads)
    return make_mesh(len(own) // split, 1, split, own)


def _misfit(data: int, fsdp: int, sequence: int, tensor: int, count: int) -> str:
    names, sizes = "mesh.fsdp * mesh.sequence * mesh.tensor", f"{fsdp} * {sequence} * {tensor}"
    others = fsdp * sequence * tensor
    if data == -1:
        return f"{names} = {sizes} = {others} must divide the {count} devices of this run; choose factors of that count"
    return (
        f"mesh.data * {names} = {data} * {sizes} = {data * others} must equal the {count} devices of this run; "
        "mesh.data=-1 takes what the others leave"
    )


def row_shards(mesh: Mesh) -> int:
    """Into how many parts the rows of a micro-batch are split."""
    return math.prod(mesh.shape[axis] for axis in ROW_AXES)
