"""Puts a plan together: memory as compiled (or by formula), work by formula, time at the roofline, what fits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jaxmtrl.config.sections import Config
from jaxmtrl.devices import check_devices, mesh_of
from jaxmtrl.errors import ConfigError
from jaxmtrl.models.decoder import parameter_count
from jaxmtrl.parallel.mesh import AXES, TENSOR, sampling_mesh
from jaxmtrl.planning.formula import memory_parts
from jaxmtrl.planning.programs import Memory, plan_memory, planned_network
from jaxmtrl.planning.topology import Topology, host_devices, tpu_devices
from jaxmtrl.planning.work import Estimate, block_weights, estimate, forward_flops, head_weights, update_flops

SPARE = 0.05  # of a chip's memory that a plan leaves for what nobody counted
ACTION_SHARE = 0.1  # of a row's tokens that were sampled, where nothing better is known


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that is printed."""

    source: str
    topology: Topology
    mesh: Mapping[str, int]
    parameters: int
    memory: Memory | None  # None: by formula
    formula: Mapping[str, int]  # bytes a chip by what holds them; empty if compiled
    tokens: int  # an update reads
    model_flops: float  # of an update, all chips
    computed_flops: float
    estimates: Mapping[str, Estimate]
    largest: Mapping[str, int]  # by setting; empty without a search

    @property
    def peak(self) -> int:
        """Bytes a chip."""
        return self.memory.peak if self.memory else sum(self.formula.values())

    @property
    def spare(self) -> float:
        """Share of a chip's memory that is left."""
        return 1 - self.peak / self.topology.chip.memory

    @property
    def fits(self) -> bool:
        """With some to spare."""
        return self.spare >= SPARE

    @property
    def mfu(self) -> float:
        """Model FLOPs over what the chips could do in the update's estimated time."""
        return self.model_flops / (self.topology.count * self.topology.chip.flops * self.estimates["update"].seconds)


def make_plan(config: Config, topology: Topology, *, source: str, formula: bool, action_share: float) -> Plan:
    """A plan of a config for a slice.

    Args:
        config: of `sizes.with_sizes`.
        formula: count memory instead of compiling for it; always so for what is no TPU.
        action_share: share of a row's tokens that were sampled.

    Raises:
        ConfigError: the mesh does not fit the slice, or nothing can be compiled for it here.
    """
    network = planned_network(config)
    compiled = topology.is_tpu and not formula
    mesh = planned_mesh(config, topology, compiled=compiled)
    check_devices(config, mesh, topology.platform, training=True)
    playing = _playing(config, topology, mesh, compiled)
    memory = plan_memory(config, mesh, playing) if compiled else None
    rows = config.rl.tasks_per_iteration * config.algorithm.group_size
    rows = -(-rows // config.batching.micro_batch_rows) * config.batching.micro_batch_rows
    model, computed = update_flops(
        network.config, rows=rows, row_length=config.batching.row_length, action_share=action_share
    )
    passes = config.algorithm.epochs
    return Plan(
        source=source,
        topology=topology,
        mesh={name: int(mesh.shape[name]) for name in AXES},
        parameters=parameter_count(network.whole.shapes()["policy"]),
        memory=memory,
        formula={}
        if compiled
        else dataclasses.asdict(memory_parts(config, config.text.vocab_size, network.config.compute_dtype, mesh)),
        tokens=passes * rows * config.batching.row_length,
        model_flops=passes * model,
        computed_flops=passes * computed,
        estimates=_estimates(config, topology, memory, computed * passes, playing),
        largest={},
    )


def planned_mesh(config: Config, topology: Topology, *, compiled: bool) -> Mesh:
    """The config's mesh over the slice; of stand-ins where nothing is compiled."""
    if compiled:
        return mesh_of(config, tpu_devices(topology))
    section = config.mesh
    others = section.fsdp * section.sequence * section.tensor
    data = topology.count // others if section.data == -1 else section.data
    if data < 1 or data * others != topology.count:
        sizes = f"{section.data} * {section.fsdp} * {section.sequence} * {section.tensor}"
        raise ConfigError(
            "the mesh",
            [
                f"mesh.data * mesh.fsdp * mesh.sequence * mesh.tensor = {sizes} must equal the {topology.count} chips "
                f"of {topology.name}; mesh.data=-1 takes what the others leave"
            ],
        )
    stand_ins = np.full((data, section.fsdp, section.sequence, section.tensor), jax.devices()[0])
    return Mesh(stand_ins, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _playing(config: Config, topology: Topology, mesh: Mesh, compiled: bool) -> Mesh:
    """The mesh of a host's sampler; of stand-ins where nothing is compiled, all chips one host's."""
    kv_heads, tensor = config.model.kv_heads, config.mesh.sampling_tensor
    if compiled:
        own = host_devices(topology, list(mesh.devices.flat))
        return sampling_mesh(mesh, kv_heads=kv_heads, tensor=tensor, own=own)
    split = tensor or math.gcd(mesh.size, kv_heads)
    return Mesh(np.full((mesh.size // split, 1, 1, split), jax.devices()[0]), AXES)


def _estimates(
    config: Config, topology: Topology, memory: Memory | None, computed: float, playing: Mesh
) -> dict[str, Estimate]:
    """A chip's share of an update, of one call of the smallest prefill, and of one decode step of a host's slots."""
    chip, chips, section = topology.chip, topology.count, config.sampling
    network = planned_network(config)
    sizes = network.config
    width = 4 if sizes.compute_dtype == "float32" else 2
    whole = (block_weights(sizes) + head_weights(sizes)) * width
    weights, own, split = whole / chips, playing.size, playing.shape[TENSOR]
    micro_batches = config.algorithm.epochs * math.ceil(
        config.rl.tasks_per_iteration * config.algorithm.group_size / config.batching.micro_batch_rows
    )
    steps = config.algorithm.epochs * config.algorithm.minibatches
    state = memory.state if memory else weights * 6
    received = {name: getattr(memory, name).received if memory else 0 for name in ("update", "prefill", "decode")}
    tokens = section.prefill_rows * section.prefill_buckets[0]
    cached = 2 * sizes.layers * sizes.kv_heads * sizes.head_dim * width * section.slots * section.cache_length / 2
    prefill = forward_flops(sizes, tokens=tokens, columns=section.cache_length / 2, scored=section.prefill_rows)
    decode = forward_flops(sizes, tokens=section.slots, columns=section.cache_length / 2, scored=section.slots)
    # An update reads the weights three times a micro-batch (forward, again, backward), and state and gradient a step.
    read = micro_batches * 3 * weights + steps * 2 * state
    return {
        "update": estimate(chip, flops=computed / chips, read=read, received=received["update"]),
        # Every chip reads all rows of a prompt call, by its part of the heads.
        "prefill call": estimate(chip, flops=prefill / split, read=whole / split, received=received["prefill"]),
        "decode step": estimate(
            chip,
            flops=decode / own,
            read=whole / split + cached / own,
            received=received["decode"] / section.decode_chunk,
        ),
    }


def largest(
    config: Config, topology: Topology, fits: Callable[[Config], bool], say: Callable[[str], None]
) -> dict[str, int]:
    """The most of two settings, each by itself, that still fits; by doubling and halving.

    Args:
        fits: whether a config's plan fits, with some to spare.
        say: is told of every try.

    Returns:
        By dotted name; 0 where not even the smallest fits.
    """
    others = config.mesh.fsdp * config.mesh.sequence * config.mesh.tensor
    data = topology.count // others if config.mesh.data == -1 else config.mesh.data
    shards = data * config.mesh.fsdp

    def with_rows(rows: int) -> Config:
        return dataclasses.replace(config, batching=dataclasses.replace(config.batching, micro_batch_rows=rows))

    def with_length(length: int) -> Config:
        return dataclasses.replace(config, batching=dataclasses.replace(config.batching, row_length=length))

    capacity = config.rl.tasks_per_iteration * config.algorithm.group_size
    return {
        "batching.micro_batch_rows": _most(
            with_rows, fits, say, "batching.micro_batch_rows", step=shards, most=capacity
        ),
        "batching.row_length": _most(with_length, fits, say, "batching.row_length", step=1024, most=131_072),
    }


def _most(
    make: Callable[[int], Config],
    fits: Callable[[Config], bool],
    say: Callable[[str], None],
    name: str,
    *,
    step: int,
    most: int,
) -> int:
    """The largest multiple of `step` up to `most` that fits, if whatever is smaller than what fits does too."""

    def tried(number: int) -> bool:
        good = fits(make(number * step))
        say(f"{name} {number * step}: {'fits' if good else 'does not fit'}")
        return good

    low, high, limit = 0, 1, max(1, most // step)
    while high <= limit and tried(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > max(1, low // 8):  # to about an eighth: a try is a compilation
        middle = (low + high) // 2
        low, high = (middle, high) if tried(middle) else (low, middle)
    return low * step
