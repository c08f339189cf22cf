"""The network: a causal decoder with a critic head, as pure functions of a plain dict of parameters.

`Network` is hashable and static, so it may be closed over or passed as a static argument. Inside it flax nnx
modules say what a block looks like; outside there are only parameters and arrays.
Letters: B rows, T tokens, D embed, V vocab, L layers, S slots, C cache length.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.config.sections import ModelSection
from jaxmtrl.models.attention import CacheAttention
from jaxmtrl.models.critic import CriticHead
from jaxmtrl.models.layers import Array, Block, Place, RMSNorm, weight
from jaxmtrl.models.projection import INPUTS, is_adapter, join, matrix_by_rows, quantised, split, turned
from jaxmtrl.models.remat import BLOCK_INPUT, Remat, named, rematerialised
from jaxmtrl.models.rope import Rope, Turns
from jaxmtrl.models.row_attention import RowAttention, RowAttentionKind
from jaxmtrl.parallel.mesh import SEQUENCE
from jaxmtrl.parallel.sharding import constrain_lookup_table, constrain_tokens

Params = dict[str, Any]

# Logit of a row that only pads the table. Its probability is exactly 0 at any temperature from 1e-8 to 1e8, and unlike
# -inf it stays finite when divided by one, so that 0 * log 0 in an entropy is 0 and not NaN.
NO_TOKEN = -1e30


class Outside(nnx.Module):
    """What stands around the blocks: embedding table, final norm and, unless tied, the output head."""

    def __init__(self, config: DecoderConfig, key: Array):
        table, head = jax.random.split(key)
        shape = (config.vocab_rows, config.embed)
        # Variance 1/D: blocks add about as much to the residual stream. At the usual 0.02 they drown the token itself,
        # and a small model takes several times as long to learn to copy a name.
        self.embedding = weight(table, shape, ("vocab", "embed"), fan_in=config.embed)
        self.final_norm = RMSNorm(config.embed, config.norm_eps)
        if not config.tied_head:
            self.head = weight(head, shape, ("vocab", "embed"), fan_in=config.embed)
        self.vocab, self.cpu_layout = config.vocab, config.cpu_layout

    def embed(self, tokens: Array, dtype: Any) -> Array:
        return constrain_tokens(constrain_lookup_table(self.embedding[...].astype(dtype))[tokens])

    def logits(self, hidden: Array) -> Array:
        table = self.embedding if not hasattr(self, "head") else self.head
        matrix = table[...].astype(hidden.dtype)
        if self.cpu_layout:
            logits = matrix_by_rows(matrix, hidden).astype(jnp.float32)
        else:
            logits = jnp.einsum("...d,vd->...v", hidden, matrix).astype(jnp.float32)
        if table.shape[0] == self.vocab:
            return logits
        return jnp.where(jnp.arange(table.shape[0]) < self.vocab, logits, NO_TOKEN)


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder; see `config.sections.ModelSection` and `LoraSection` for what each means."""

    vocab: int
    layers: int
    embed: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    tied_head: bool
    qkv_bias: bool
    qk_norm: bool
    rope_theta: float
    rope_scaling: str
    rope_factor: float
    rope_original_length: int
    rope_low_frequency: float
    rope_high_frequency: float
    rope_beta_fast: float
    rope_beta_slow: float
    rope_truncate: bool
    rope_attention_factor: float | None
    norm_eps: float
    vocab_multiple: int
    critic: str
    remat: Remat
    param_dtype: str
    compute_dtype: str
    lora: LoraSection = LoraSection()
    row_attention: RowAttention = RowAttention()  # as the learner wants it; see `Network.for_learning`
    # As the sampler wants them; see `Network.for_sampling`.
    cpu_layout: bool = False  # blocks' weights lie, and products are taken, as suits one CPU
    cache_attention: CacheAttention = CacheAttention()

    @property
    def vocab_rows(self) -> int:
        """Rows of the embedding table and the head: V up to the next multiple."""
        return -(-self.vocab // self.vocab_multiple) * self.vocab_multiple

    @property
    def rope(self) -> Rope:
        """How positions turn a head."""
        fields = [field.name for field in dataclasses.fields(Rope) if field.name != "width"]
        return Rope(width=self.head_dim, **{name: getattr(self, f"rope_{name}") for name in fields})


@functools.lru_cache
def _graph(module: type, config: DecoderConfig) -> tuple[Any, Any, Any]:
    """(graphdef, treedef of its state, axes tree) of a module, without making arrays."""
    abstract = nnx.eval_shape(lambda: module(config, jax.random.key(0)))
    graphdef, state = nnx.split(abstract)
    axes = jax.tree.map(
        lambda variable: variable.get_metadata()["axes"], state, is_leaf=lambda x: isinstance(x, nnx.Variable)
    )
    return graphdef, jax.tree.structure(state), nnx.to_pure_dict(axes)


def _init(module: Callable[..., nnx.Module], config: DecoderConfig, key: Array) -> Params:
    """Fresh parameters in `param_dtype`, but adapters in f32, which small steps need, and integers as they are."""
    dtype = jnp.dtype(config.param_dtype)

    def cast(path: tuple[Any, ...], x: Array) -> Array:
        stays = is_adapter(str(getattr(path[-1], "key", ""))) or not jnp.issubdtype(x.dtype, jnp.floating)
        return x if stays else x.astype(dtype)

    return jax.tree_util.tree_map_with_path(cast, nnx.to_pure_dict(nnx.split(module(config, key))[1]))


def _bind(module: type, config: DecoderConfig, params: Params) -> Any:
    graphdef, treedef, _ = _graph(module, config)
    return nnx.merge(graphdef, jax.tree.unflatten(treedef, jax.tree.leaves(params)))


@dataclasses.dataclass(frozen=True)
class Network:
    """A decoder and its critic. Parameters: {"policy": {"outside", "layers" (stacked [L, …])}, "critic": {…}}.

    The critic's are those of its head, or {"outside", "layers", "head"} if it has a decoder of its own.
    With adapters (`config.lora`) "policy" and "critic" hold no more than those and the critic's head: what is trained.
    The frozen decoder under both is the part "base" of what `init_base` gives; whoever calls the network joins them.
    """

    config: DecoderConfig

    @classmethod
    def from_section(
        cls, section: ModelSection, vocab_size: int, compute_dtype: str, lora: LoraSection | None = None
    ) -> Network:
        """A network of the configured sizes; `compute_dtype` is "float32" or "bfloat16"; the caller resolves auto."""
        sizes = {
            field.name: getattr(section, field.name)
            for field in dataclasses.fields(DecoderConfig)
            if field.name not in ("vocab", "compute_dtype", "lora", "row_attention", "cpu_layout", "cache_attention")
        }
        return cls(DecoderConfig(vocab=vocab_size, compute_dtype=compute_dtype, lora=lora or LoraSection(), **sizes))

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained over a frozen base, and not the decoder itself."""
        return self.config.lora.rank > 0

    @property
    def whole(self) -> Network:
        """The same decoder without adapters, nothing quantised."""
        return Network(dataclasses.replace(self.config, lora=LoraSection()))

    def init(self, key: Array) -> Params:
        """Fresh parameters; a pure function of the key, made to be jitted with output shardings."""
        outside, layers, critic = jax.random.split(key, 3)
        head = _init(CriticHead, self.config, critic)
        policy = self._trained(self._init_trunk(self.config, outside, layers))
        if self.config.critic == "head":
            return {"policy": policy, "critic": head}
        own = self._trained(self._init_trunk(self._critic_config, *jax.random.split(jax.random.fold_in(critic, 1))))
        return {"policy": policy, "critic": own | {"head": head}}

    def shapes(self) -> Params:
        """The tree of `init` with a shape in place of every array."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def init_base(self, key: Array) -> Params:
        """{"base": …}, the fresh decoder that stays as it is under adapters; {} without them."""
        if not self.adapted:
            return {}
        outside, layers, _ = jax.random.split(key, 3)
        return {"base": split(self._init_trunk(self.config, outside, layers), adapters=False)}

    def as_frozen(self, name: str, weight: Array) -> Any:
        """A base's weight (stacked by layer) of this name as it is kept: quantised by config."""
        lora = self.config.lora
        if not self.adapted or lora.frozen == "whole" or name not in INPUTS:
            return weight
        return jax.vmap(lambda one: quantised(one, INPUTS[name], lora))(weight)

    def axes(self) -> Params:
        """The tree of `init` with a tuple of logical axis names in place of every array."""
        head = _graph(CriticHead, self.config)[2]
        policy = self._trained(self._trunk_axes(self.config))
        own = self._trained(self._trunk_axes(self._critic_config)) | {"head": head}
        return {"policy": policy, "critic": head if self.config.critic == "head" else own}

    def base_axes(self) -> Params:
        """The tree of `init_base` with a tuple of names in place of every array, quantised ones as one."""
        return {"base": split(self._trunk_axes(self.config), adapters=False)} if self.adapted else {}

    def critic_from_policy(self, params: Params) -> Params:
        """The same parameters, a separate critic reading with a copy of the policy's decoder; its head stays."""
        if self.config.critic == "head":
            return params
        policy, critic = jax.tree.map(lambda leaf: leaf.copy(), params["policy"]), params["critic"]
        # A critic has no output head; with adapters neither has anything outside the blocks.
        outside = {"outside": {name: policy["outside"][name] for name in critic.get("outside", ())}}
        return {**params, "critic": critic | (outside if "outside" in critic else {}) | {"layers": policy["layers"]}}

    def hidden(
        self, params: Params, tokens: Array, positions: Array, segment_ids: Array, noise: Array | None = None
    ) -> Array:
        """The trunk's normed output for whole rows.

        Args:
            tokens, positions: i32 [B, T].
            segment_ids: i32 [B, T]; a token sees earlier tokens of its own segment only; -1 is padding.
            noise: key of the adapters' dropout; None leaves everything in.

        Returns:
            [B, T, D] in the compute dtype; column t has read tokens 0..t.
        """
        return self._read(self.config, self.trunk(params), tokens, positions, segment_ids, noise)

    def critic_hidden(
        self, params: Params, hidden: Array, tokens: Array, positions: Array, segment_ids: Array
    ) -> Array:
        """What `values` reads, [B, T, D]: the policy's `hidden`, or the output of the critic's own trunk."""
        if self.config.critic == "head":
            return hidden
        own = {name: part for name, part in params["critic"].items() if name != "head"}
        trunk = join(params["base"], own) if self.adapted else own
        return self._read(self._critic_config, trunk, tokens, positions, segment_ids)

    def logits(self, params: Params, hidden: Array) -> Array:
        """hidden [..., D] → f32 [..., V], rounded up to `vocab_rows`; rows beyond V have logit NO_TOKEN."""
        return _bind(Outside, self.config, self.trunk(params)["outside"]).logits(hidden)

    def values(self, params: Params, hidden: Array) -> Array:
        """hidden [..., D] → f32 [...], the critic's estimate of the return still to come."""
        critic = params["critic"]
        return _bind(CriticHead, self.config, critic if self.config.critic == "head" else critic["head"])(hidden)

    def trunk(self, params: Params) -> Params:
        """The policy's whole decoder, {"outside", "layers"}, its adapters beside what they adapt."""
        return join(params["base"], params["policy"]) if self.adapted else params["policy"]

    @property
    def _critic_config(self) -> DecoderConfig:
        # It reads only. Over a frozen base it finds that base's output head there, and does not use it.
        return self.config if self.adapted else dataclasses.replace(self.config, tied_head=True)

    def _trained(self, trunk: Params) -> Params:
        """What of a trunk is trained: all, or its adapters."""
        return split(trunk, adapters=True) if self.adapted else trunk

    def _trunk_axes(self, config: DecoderConfig) -> Params:
        stacked = jax.tree.map(
            lambda names: ("layers", *names), _graph(Block, config)[2], is_leaf=lambda x: isinstance(x, tuple)
        )
        return {"outside": _graph(Outside, config)[2], "layers": stacked}

    def _init_trunk(self, config: DecoderConfig, outside: Array, layers: Array) -> Params:
        return {
            "outside": _init(Outside, config, outside),
            "layers": jax.vmap(lambda key: _init(Block, config, key))(jax.random.split(layers, config.layers)),
        }

    def _read(
        self,
        config: DecoderConfig,
        trunk: Params,
        tokens: Array,
        positions: Array,
        segment_ids: Array,
        noise: Array | None = None,
    ) -> Array:
        outside = _bind(Outside, config, trunk["outside"])

        turns = config.rope.turns(positions)

        def step(x: Array, at: tuple[Params, Array | None]) -> tuple[Array, None]:
            layer, noise = at
            x = named(x, BLOCK_INPUT)
            return _bind(Block, config, layer)(x, turns, segment_ids, noise), None

        x = outside.embed(tokens, jnp.dtype(config.compute_dtype))
        noises = None if noise is None else jax.random.split(noise, config.layers)
        x, _ = jax.lax.scan(rematerialised(step, config.remat), x, (trunk["layers"], noises))
        return outside.final_norm(x)

    def for_learning(self, mesh: Mesh, attention: Literal["auto", "xla", "splash", "cudnn"]) -> Network:
        """The same network as the learner computes it on this mesh; auto is what suits the device."""
        kind: RowAttentionKind = "blocks" if attention == "auto" or attention == "xla" else attention
        if attention == "auto" and mesh.shape[SEQUENCE] == 1:
            platform = mesh.devices.flat[0].platform
            kind = "splash" if platform == "tpu" else "flash" if platform == "cpu" else "blocks"
        way = RowAttention(kind, mesh if mesh.size > 1 else None)
        return Network(dataclasses.replace(self.config, row_attention=way))

    def for_sampling(self, mesh: Mesh, attention: CacheAttention | None = None) -> Network:
        """The same network as the sampler computes it on this mesh: on one CPU, laid out as suits that.

        Args:
            attention: how it attends to the cache; None for what suits a CPU or any other device.
        """
        frozen = self.adapted and self.config.lora.frozen != "whole"
        alone = mesh.size == 1 and mesh.devices.flat[0].platform == "cpu" and not frozen
        usual = CacheAttention(prefill="one_by_one" if alone else "together")
        return Network(dataclasses.replace(self.config, cpu_layout=alone, cache_attention=attention or usual))

    def unstack(self, params: Params) -> list[Params]:
        """The blocks' parameters one by one, as decode wants them: slicing them anew every step costs a third of it."""
        stacked = self.trunk(params)["layers"]
        return [
            self._laid_out(jax.tree.map(lambda leaf, at=layer: leaf[at], stacked))
            for layer in range(self.config.layers)
        ]

    def unstacked_axes(self) -> list[Params]:
        """The tree of `unstack` with a tuple of logical axis names in place of every array."""
        stacked = self.trunk({**self.axes(), **self.base_axes()})["layers"]
        layer = jax.tree.map(lambda names: names[1:], stacked, is_leaf=lambda node: isinstance(node, tuple))
        return [self._laid_out(layer)] * self.config.layers

    def _laid_out(self, layer: Params) -> Params:
        if not self.config.cpu_layout:
            return layer
        return jax.tree_util.tree_map_with_path(
            lambda path, weight: turned(path[-1].key, weight), layer, is_leaf=lambda node: isinstance(node, tuple)
        )

    def cached_hidden(
        self,
        outside_params: Params,
        layers: list[Params],
        tokens: Array,
        positions: Array,
        cache: Any,
        rows: Array | None = None,
        last: Array | None = None,
        turns: Turns | None = None,
    ) -> tuple[Array, Any]:
        """The trunk's normed output for new tokens that continue cached rows.

        Args:
            outside_params: trunk(params)["outside"].
            layers: of `unstack`.
            tokens, positions: i32 [B, T]; a position is a cache column; ≥ C means padding.
            cache: L pairs of keys and values [S, K, C, H].
            rows: i32 [B], which cache rows they continue; ≥ S for an empty one. None: row b continues row b.
            last: i32 [B], the one token of each row whose output is wanted; None wants all.
            turns: of the positions; None computes them, which XLA on CPU does anew for every use.

        Returns:
            [B, T, D] (or [B, 1, D] of `last`) and the cache with the new columns written.
        """
        outside = _bind(Outside, self.config, outside_params)
        x = outside.embed(tokens, jnp.dtype(self.config.compute_dtype))
        at, written = Place(positions, turns or self.config.rope.turns(positions), rows), []
        for number, (layer, layer_cache) in enumerate(zip(layers, cache, strict=True), 1):
            asked = last if number == self.config.layers else None
            x, layer_cache = _bind(Block, self.config, layer).cached(x, at, layer_cache, asked)
            written.append(layer_cache)
        return outside.final_norm(x), tuple(written)

    def cached_logits(self, outside_params: Params, hidden: Array) -> Array:
        """hidden [B, D] → f32 [B, V], from trunk(params)["outside"] alone."""
        return _bind(Outside, self.config, outside_params).logits(hidden)


def parameter_count(params: Params) -> int:
    """How many numbers a parameter tree (or its shapes) holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
