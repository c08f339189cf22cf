"""Whether the full model of a config fits in memory, before it is made."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from jaxmtrl.config.sections import Config
from jaxmtrl.diagnosis.finding import Finding
from jaxmtrl.planning.formula import Parts, memory_parts

_USABLE = 0.95  # of a device's memory; the rest is the runtime's
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def check_memory(config: Config, vocab: int, mesh: Mesh) -> list[Finding]:
    """The plan of the full model against the memory of a device, or of this machine where devices share it."""
    dtype = config.model.compute_dtype
    if dtype == "auto":
        dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    plan = memory_parts(config, vocab, dtype, mesh)
    limit, whose = device_memory(mesh)
    needed = plan.total * (mesh.size if whose == "this machine" else 1)
    parts = f"state {_size(plan.state)}, copies {_size(plan.copies)}, cache {_size(plan.cache)}"
    return [
        Finding(
            name="the full model fits in memory",
            passed=needed <= limit,
            number=needed / 2**30,
            bound=f"<= {limit / 2**30:.3g} GiB",
            said=f"{parts}, update {_size(plan.update)}; against {whose}",
            cure=_cure(plan, config),
        )
    ]


def device_memory(mesh: Mesh) -> tuple[float, str]:
    """Bytes there are, and of what: one device, or this machine where devices have no memory of their own."""
    device = mesh.devices.ravel()[0]
    stats: Any = device.memory_stats()
    if stats and stats.get("bytes_limit"):
        return _USABLE * stats["bytes_limit"], f"one {device.device_kind}"
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # a container may be given less; "max" is no number
        installed = min(installed, int(_CONTAINER_LIMIT.read_text()))
    return _USABLE * installed, "this machine"


def _cure(plan: Parts, config: Config) -> str:
    """What makes the largest part smaller."""
    largest = max(("state", "copies", "cache", "update"), key=lambda name: getattr(plan, name))
    remat = "" if config.model.remat in ("block", "offload") else "model.remat: block, "
    return {
        "state": "spread it: raise mesh.fsdp or mesh.tensor, or take model.param_dtype: bfloat16",
        "copies": "spread it: raise mesh.fsdp or mesh.tensor; algorithm.kl_coef: 0 saves the reference",
        "cache": "lower sampling.slots or sampling.cache_length, or raise mesh.tensor",
        "update": f"{remat}lower batching.micro_batch_rows or batching.row_length, or raise mesh.fsdp",
    }[largest]


def _size(number: int) -> str:
    """Bytes for people."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} B"
