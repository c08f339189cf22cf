"""What the full model of a config needs in memory, before it is made.

Parameters, moments and the cache are counted exactly, a device's part of each; the temporaries of an update are an
estimate of what is alive at its peak. Letters: M rows, T tokens, D embed, N heads, F mlp, V vocab, L layers.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxmtrl.assembly import make_optimizers
from jaxmtrl.config.sections import Config
from jaxmtrl.diagnosis.finding import Finding
from jaxmtrl.diagnosis.gauge import kl_weight
from jaxmtrl.learner.score import CHUNK_COLUMNS
from jaxmtrl.learner.state import abstract_base, abstract_state
from jaxmtrl.models.decoder import Network
from jaxmtrl.models.kv_cache import empty_cache
from jaxmtrl.parallel.mesh import row_shards
from jaxmtrl.parallel.slots import cache_sharding

_USABLE = 0.95  # of a device's memory; the rest is the runtime's
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Bytes a device."""

    state: int  # parameters, those under adapters too, and Adam's moments
    copies: int  # the sampler's weights, and the KL reference's
    cache: int  # keys and values of all slots
    update: int  # gradients and activations of a micro-batch

    @property
    def total(self) -> int:
        return self.state + self.copies + self.cache + self.update


def check_memory(config: Config, vocab: int, mesh: Mesh) -> list[Finding]:
    """The plan of the full model against the memory of a device, or of this machine where devices share it."""
    plan = plan_memory(config, vocab, mesh)
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


def plan_memory(config: Config, vocab: int, mesh: Mesh) -> Plan:
    """Bytes a device needs at the peak of an update, the sampler's cache beside it."""
    dtype = config.model.compute_dtype
    if dtype == "auto":
        dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    network = Network.from_section(config.model, vocab, dtype, config.lora)
    state = abstract_state(network, make_optimizers(config, network)["policy"], mesh)
    params, policy, base = _bytes(state.params), _bytes(state.params["policy"]), _bytes(abstract_base(network, mesh))
    width = jnp.dtype(dtype).itemsize
    sampling = config.sampling
    kept = dtype if sampling.cache_dtype == "auto" else sampling.cache_dtype
    shapes = jax.eval_shape(
        lambda: empty_cache(network.config, slots=sampling.slots, length=sampling.cache_length, dtype=kept)
    )
    sharding = cache_sharding(mesh, slots=sampling.slots, kv_heads=config.model.kv_heads)
    cache = sum(math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    gradients = 4 * sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in jax.tree.leaves(state.params))
    return Plan(
        state=base + params + _bytes(state.opt_state),
        copies=base + policy + (policy if kl_weight(config.algorithm) > 0 else 0),
        cache=cache,
        update=2 * gradients + _activations(config, vocab, width, mesh),
    )


def _activations(config: Config, vocab: int, width: int, mesh: Mesh) -> int:
    """Bytes alive while one micro-batch's gradient is taken: what blocks keep, one block and one chunk of logits."""
    model, tokens = config.model, config.batching.row_length
    rows = max(1, config.batching.micro_batch_rows // row_shards(mesh))
    stream = rows * tokens * model.embed * width  # one [M, T, D]
    heads = model.heads * model.head_dim + 2 * model.kv_heads * model.head_dim
    block = rows * tokens * (4 * model.embed + 2 * heads + 3 * model.mlp) * width
    queries = max(64, -(-tokens // 8))
    scores = rows * model.heads * queries * tokens * 4 * 3  # scores, shares and their gradient, f32, one query block
    kept = model.layers * stream
    if not model.remat:
        # Without remat every block keeps what its backward pass reads: all query blocks' shares, half a square.
        kept += model.layers * (block + rows * model.heads * tokens * tokens // 2 * (4 + width))
    logits = 3 * rows * CHUNK_COLUMNS * vocab * 4
    trunks = 2 if model.critic == "separate" else 1  # a critic's own decoder keeps as much
    return trunks * (kept + 4 * stream) + 2 * block + scores + logits


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


def _bytes(tree: Any) -> int:
    """A device's part of a tree of shapes with shardings."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _cure(plan: Plan, config: Config) -> str:
    """What makes the largest part smaller."""
    largest = max(("state", "copies", "cache", "update"), key=lambda name: getattr(plan, name))
    remat = "" if config.model.remat else "model.remat: true, "
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
