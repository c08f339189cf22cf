"""TPU slices by name: what their chips can do, and devices of them to compile for where no TPU is.

Figures a chip are those of Google's pages on Cloud TPU (v4, v5e, v5p, v6e), peak and bf16.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxmtrl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Chip:
    """What one device has; every rate is a peak."""

    name: str
    memory: float  # bytes of HBM
    flops: float  # a second, bf16
    bandwidth: float  # bytes a second from HBM
    link: float  # bytes a second that reach a chip from its neighbours


_GIB = 2**30
CHIPS = {
    chip.name: chip
    for chip in (
        Chip(name="v4", memory=32 * _GIB, flops=275e12, bandwidth=1228e9, link=300e9),
        Chip(name="v5e", memory=16 * _GIB, flops=197e12, bandwidth=819e9, link=200e9),
        Chip(name="v5p", memory=95 * _GIB, flops=459e12, bandwidth=2765e9, link=600e9),
        Chip(name="v6e", memory=32 * _GIB, flops=918e12, bandwidth=1640e9, link=448e9),
        # For estimates by formula; nothing is compiled for these.
        Chip(name="h200", memory=141e9, flops=989e12, bandwidth=4800e9, link=450e9),
        Chip(name="h100", memory=80e9, flops=989e12, bandwidth=3350e9, link=450e9),
        Chip(name="a100", memory=80e9, flops=312e12, bandwidth=2039e9, link=300e9),
        Chip(name="cpu", memory=16 * _GIB, flops=0.15e12, bandwidth=30e9, link=10e9),
    )
}
MOST_CHIPS = 10_000
TPUS = ("v4", "v5e", "v5p", "v6e")
_FORM = re.compile(r"^(?P<chip>[a-z0-9]+):(?P<size>\d+(x\d+){0,2})$")


@dataclass(frozen=True)
class Topology:
    """A slice: so many chips of one kind in a grid."""

    chip: Chip
    grid: tuple[int, ...]

    @property
    def count(self) -> int:
        """Chips."""
        return math.prod(self.grid)

    @property
    def name(self) -> str:
        """As it is written."""
        return f"{self.chip.name}:{'x'.join(map(str, self.grid))}"

    @property
    def platform(self) -> str:
        """As jax names it."""
        return "tpu" if self.is_tpu else "cpu" if self.chip.name == "cpu" else "gpu"

    @property
    def is_tpu(self) -> bool:
        """Whether programs can be compiled for it here."""
        return self.chip.name in TPUS


def parse_topology(text: str) -> Topology:
    """A topology such as v5e:2x4, v5p:2x2x2, h200:8 or cpu:1.

    Raises:
        ConfigError: it is none.
    """
    found = _FORM.match(text)
    if not found or found["chip"] not in CHIPS:
        known = ", ".join(CHIPS)
        raise ConfigError(
            "the command line",
            [
                f"--topology: got {text!r}, wanted CHIP:GRID with a chip of {known}; for example v5e:2x4, v5p:2x2x2 or "
                "h200:8"
            ],
        )
    grid = tuple(int(side) for side in found["size"].split("x"))
    if math.prod(grid) > MOST_CHIPS:
        raise ConfigError("the command line", [f"--topology: got {text!r}, wanted at most {MOST_CHIPS} chips"])
    if min(grid) < 1:
        raise ConfigError("the command line", [f"--topology: got {text!r}, wanted at least one chip along each side"])
    return Topology(CHIPS[found["chip"]], grid)


# The chips of one host in slices of several.
_HOST_GRIDS = {"v4": (2, 2, 1), "v5e": (2, 2), "v5p": (2, 2, 1), "v6e": (2, 2)}


def host_devices(topology: Topology, devices: Sequence[Any]) -> list[Any]:
    """Devices of one host of a slice, as a slice of their own: the compiler takes no part of a larger one.

    Args:
        devices: of `tpu_devices`.
    """
    hosts = {device.process_index for device in devices}
    return list(devices) if len(hosts) == 1 else tpu_devices(Topology(topology.chip, _HOST_GRIDS[topology.chip.name]))


def tpu_devices(topology: Topology) -> list[Any]:
    """Devices of a TPU slice for ahead-of-time compilation: programs for them can be compiled and not run.

    Raises:
        ConfigError: the compiler, `libtpu`, is not installed, or knows no such slice.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise ConfigError(
            "this environment",
            [
                "the TPU compiler is not installed, so nothing can be compiled for "
                f"{topology.name}; pip install -e '.[tpu]' (no TPU is needed), or plan by formula with --formula"
            ],
        )
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else it asks a server that is there on Cloud TPU VMs alone
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # it locks the chips, of which there are none here
    from jax.experimental import topologies  # late: a plan by formula needs no jax

    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology.name)
    except Exception as err:  # of the compiler's own kinds
        reason = str(err).strip().splitlines()[0][:200]
        raise ConfigError(
            "the command line", [f"--topology: the TPU compiler knows no {topology.name} ({reason})"]
        ) from err
    return list(described.devices)
