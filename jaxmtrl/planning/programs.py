"""Compiles a config's real update, prefill and decode for devices that need not be here, and reads off what they need.

Letters: M rows a micro-batch, T tokens, S slots.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from jax.sharding import Mesh

from jaxmtrl.assembly import make_learner, make_optimizers
from jaxmtrl.config.sections import Config
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.learner.device import abstract_batch
from jaxmtrl.learner.state import abstract_base, abstract_state
from jaxmtrl.models.attention import CacheAttention
from jaxmtrl.models.decoder import Network
from jaxmtrl.planning.formula import bytes_of
from jaxmtrl.planning.hlo import Traffic, collectives
from jaxmtrl.sampling.compiled import Builder

DTYPE = "bfloat16"  # of activations on what is planned for, where the config leaves it open


class TooLarge(JaxmtrlError):
    """A program needs more memory than a chip has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """One program, a chip's part; bytes."""

    name: str
    arguments: int  # what it takes, given-up buffers included
    temporaries: int  # beside that while it runs, results that reuse nothing included
    host: int  # in the host's memory
    traffic: Mapping[str, Traffic]  # by kind of collective
    compile_s: float

    @property
    def received(self) -> int:
        """Bytes that a chip gets from others in one run."""
        return sum(kind.received for kind in self.traffic.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """What a chip holds at the two peaks of an iteration, bytes."""

    state: int  # parameters and optimizer
    sampler: int  # the sampler's copy of the weights
    reference: int  # the KL reference's
    cache: int  # keys and values of all slots at full length
    shortest: int  # and at the length they are never shorter than
    update: Planned
    prefill: Planned
    decode: Planned
    overlap: bool  # playing and learning at once

    @property
    def learning(self) -> int:
        """While it learns: the sampler has given its weights back, and its cache but for the shortest."""
        return self.update.arguments + self.update.temporaries + self.reference + self.shortest

    @property
    def playing(self) -> int:
        """While it plays."""
        calls = max(call.arguments + call.temporaries for call in (self.prefill, self.decode))
        return self.state + self.reference + calls

    @property
    def peak(self) -> int:
        """The larger of the two, or both with rollout.overlap."""
        if self.overlap:
            return self.learning + self.playing - self.state - self.reference - self.shortest
        return max(self.learning, self.playing)


def planned_network(config: Config) -> Network:
    """The config's network in the dtype it has on an accelerator."""
    dtype = config.model.compute_dtype if config.model.compute_dtype != "auto" else DTYPE
    return Network.from_section(config.model, config.text.vocab_size, dtype, config.lora)


def plan_memory(config: Config, mesh: Mesh, playing: Mesh) -> Memory:
    """Compiles the three programs that decide what fits: the update of RL, the largest prefill, the longest decode.

    Args:
        mesh: the update's.
        playing: the sampler's, over one host's devices.

    Raises:
        TooLarge: the compiler refuses one of them, as it needs more memory than a chip has.
    """
    network = planned_network(config)
    optimizers, base = make_optimizers(config, network), abstract_base(network, mesh)
    learner = make_learner(config, network, mesh, base, optimizers)
    state = abstract_state(network, optimizers["policy"], mesh)
    capacity = config.rl.tasks_per_iteration * config.algorithm.group_size
    batch = abstract_batch(
        micro_batch_rows=config.batching.micro_batch_rows,
        max_rows=capacity,
        row_length=config.batching.row_length,
        episodes=capacity,
        mesh=mesh,
    )
    count = batch.rows.tokens.shape[0]
    update = _planned(
        "update", lambda: learner.planned("policy", batch), trips=math.ceil(count / config.algorithm.minibatches)
    )
    section, tpu = config.sampling, mesh.devices.flat[0].platform == "tpu"
    # As the engine would choose where the kernel wins; what it holds beside its arguments is the same either way.
    attention = CacheAttention(decode="ragged", mesh=playing if playing.size > 1 else None) if tpu else None
    build = Builder(network.for_sampling(playing, attention), section, (), playing)
    bucket, length = section.prefill_buckets[-1], section.cache_length
    moments = 0 if config.optimizer.memory == "host" else bytes_of(state.opt_state)
    referring = config.algorithm.kl_weight > 0 and config.algorithm.kl_memory == "device"
    return Memory(
        state=bytes_of(state.params) + moments + bytes_of(base),
        sampler=bytes_of(build.shapes.weights),
        reference=bytes_of(state.params["policy"]) if referring else 0,
        cache=bytes_of(build.shapes.caches[length]),
        shortest=bytes_of(build.shapes.caches[section.attention_buckets[0]]),
        update=update,
        prefill=_planned("prefill", lambda: build.prefill(bucket, length)),
        decode=_planned("decode", lambda: build.decode(length), trips=section.decode_chunk),
        overlap=config.rollout.overlap,
    )


def _planned(name: str, build: Callable[[], Any], *, trips: int = 1) -> Planned:
    """
    Args:
        trips: turns of loops whose number the compiler does not know.
    """
    began = time.perf_counter()
    try:
        program = build()
    except RuntimeError as err:  # jax's, in the compiler's words
        if "RESOURCE_EXHAUSTED" not in str(err):
            raise
        said = next((line for line in str(err).splitlines() if "xceeded" in line or "sed " in line), str(err))
        raise TooLarge(f"{name} does not fit a chip: {said.strip()[:300]}") from err
    took = time.perf_counter() - began
    sizes = program.memory_analysis()
    return Planned(
        name=name,
        arguments=sizes.argument_size_in_bytes,
        temporaries=sizes.temp_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
        host=sizes.host_temp_size_in_bytes + sizes.host_argument_size_in_bytes,
        traffic=collectives(program.as_text(), dynamic_trips=trips),
        compile_s=took,
    )
