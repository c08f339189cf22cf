"""What a config asks of devices and hosts: its mesh, and whether they can do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.sharding import Mesh

from jaxmtrl.config.loading import config_to_dict, differing_fields
from jaxmtrl.config.sections import Config
from jaxmtrl.errors import ConfigError
from jaxmtrl.parallel.hosts import agree, this_host
from jaxmtrl.parallel.mesh import make_mesh, row_shards

_KERNELS = {"splash": "tpu", "cudnn": "gpu"}  # model.attention → the platform that has it


def mesh_of(config: Config, devices: Sequence[Any] | None = None) -> Mesh:
    """The update's mesh. Raises ConfigError if it does not fit the devices, those of this run unless given."""
    section = config.mesh
    return make_mesh(section.data, section.fsdp, section.tensor, devices, sequence=section.sequence)


def check_devices(config: Config, mesh: Mesh, platform: str, *, training: bool) -> None:
    """Finds what the devices cannot do.

    Args:
        platform: of the devices, "tpu", "gpu" or "cpu".
        training: whether they will train; to play, any number of rows will do.

    Raises:
        ConfigError: lists all of it.
    """
    mistakes = []
    rows, shards = config.batching.micro_batch_rows, row_shards(mesh)
    if training and rows % shards:
        mistakes.append(
            f"batching.micro_batch_rows: got {rows}, wanted a multiple of mesh.data * mesh.fsdp = {shards}; "
            f"{-(-rows // shards) * shards} would do"
        )
    attention = config.model.attention
    if (wanted := _KERNELS.get(attention, platform)) != platform:
        mistakes.append(
            f"model.attention: got {attention}, which is a {wanted} kernel, on a {platform}; set it to auto"
        )
    tensor = config.mesh.sampling_tensor
    if tensor and mesh.size % tensor:
        mistakes.append(
            f"mesh.sampling_tensor: got {tensor}, wanted a divisor of a host's devices ({mesh.size} in the run)"
        )
    if mistakes:
        raise ConfigError("the devices", mistakes)


def check_hosts(config: Config) -> None:
    """Finds what the processes of a run cannot do together; all must call it.

    Raises:
        ConfigError: they were started with different configs, or the config wants what one process alone can do.
    """
    hosts = this_host()
    if hosts.count == 1:
        return
    agree(hosts, config_to_dict(config), differing_fields)
    if config.rollout.overlap:
        raise ConfigError(
            "rollout.overlap",
            [
                f"got true in a run of {hosts.count} processes, wanted false: play in the background would meet the "
                "update's collectives in another order on every host; set rollout.overlap to false"
            ],
        )
