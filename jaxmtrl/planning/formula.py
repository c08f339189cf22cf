"""What a model of a config needs in memory by formula, before it is made or compiled.

Parameters, moments and the cache are counted exactly, a device's part of each; the temporaries of an update are an
estimate of what is alive at its peak. Letters: M rows, T tokens, D embed, N heads, F mlp, V vocab, L layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxmtrl.assembly import make_optimizers
from jaxmtrl.config.sections import Config
from jaxmtrl.learner.score import CHUNK_COLUMNS
from jaxmtrl.learner.state import abstract_base, abstract_state
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import row_shards
from jaxmtrl.sampling.compiled import Shapes


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Bytes a device."""

    state: int  # parameters, those under adapters too, and Adam's moments
    copies: int  # the sampler's weights, and the KL reference's
    cache: int  # keys and values of all slots
    update: int  # gradients and activations of a micro-batch

    @property
    def total(self) -> int:
        return self.state + self.copies + self.cache + self.update


def memory_parts(config: Config, vocab: int, dtype: str, mesh: Mesh) -> Parts:
    """Bytes a device needs at the peak of an update, the sampler's cache beside it; `dtype` is that of activations."""
    network = Network.from_section(config.model, vocab, dtype, config.lora)
    state = abstract_state(network, make_optimizers(config, network)["policy"], mesh)
    params, policy, base = (
        bytes_of(state.params),
        bytes_of(state.params["policy"]),
        bytes_of(abstract_base(network, mesh)),
    )
    width, algorithm = jnp.dtype(dtype).itemsize, config.algorithm
    sampler = Shapes.of(network.for_sampling(mesh), config.sampling, mesh)
    gradients = 4 * sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in jax.tree.leaves(state.params))
    return Parts(
        state=base + params + (0 if config.optimizer.memory == "host" else bytes_of(state.opt_state)),
        copies=bytes_of(sampler.weights) + (policy if algorithm.kl_weight and algorithm.kl_memory == "device" else 0),
        cache=bytes_of(sampler.caches[config.sampling.cache_length]),
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
    asked = rows * tokens * model.heads * model.head_dim * width  # one [M, T, N, H]
    products = rows * tokens * (2 * model.embed + heads + 2 * model.mlp) * width
    # Without remat every block keeps what its backward pass reads: all query blocks' shares, half a square.
    everything = block + rows * model.heads * tokens * tokens // 2 * (4 + width)
    extra = {"offload": -stream, "block": 0, "attention": asked, "dots": products, "none": everything}[model.remat]
    kept = model.layers * (stream + extra)
    logits = 3 * rows * CHUNK_COLUMNS * vocab * 4
    trunks = 2 if model.critic == "separate" else 1  # a critic's own decoder keeps as much
    return trunks * (kept + 4 * stream) + 2 * block + scores + logits


def bytes_of(tree: Any) -> int:
    """A device's part of a tree of shapes with shardings."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
