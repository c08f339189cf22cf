"""The sampler's compiled programs: a fixed list of shapes, compiled ahead, each updating the slots in place.

Letters: S slots, R prefill rows, P prefill bucket, A action cap, C cache length, L layers, V vocab.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmtrl.config.sections import SamplingSection
from jaxmtrl.models.decoder import Network, Params
from jaxmtrl.models.kv_cache import Cache, empty_cache, put_columns, put_rows, take_columns, take_rows
from jaxmtrl.parallel.sharding import named_shardings, replicated
from jaxmtrl.parallel.slots import cache_sharding
from jaxmtrl.sampling.logits import sample

Array = jax.Array


@flax.struct.dataclass
class SlotState:
    """Everything the device remembers of the slots; donated to every program."""

    cache: Cache
    tokens: Array  # i32 [S, A], the action so far
    logprobs: Array  # f32 [S, A]
    emitted: Array  # i32 [S], length of the action so far; its last token is not in the cache yet
    active: Array  # bool [S], the action is not finished
    position: Array  # i32 [S], cache column that the last emitted token will take
    budget: Array  # i32 [S], cap of this action
    keys: Array  # u32 [S, 2], of the episode
    drawn: Array  # i32 [S], tokens drawn in the episode so far; with `keys` it seeds the next draw
    temperature: Array  # f32 [S]


@flax.struct.dataclass
class Weights:
    """Parameters as the sampler reads them: no critic, blocks one by one."""

    outside: Params
    layers: list[Params]


def _draw(state_keys: Array, drawn: Array, logits: Array, temperature: Array) -> tuple[Array, Array]:
    """One token a row; a row's draw depends on its episode's key and count alone."""
    keys = jax.vmap(lambda key, count: jax.random.fold_in(jax.random.wrap_key_data(key), count))(state_keys, drawn)
    return jax.vmap(sample)(keys, logits, temperature)


def _is_stop(tokens: Array, stop_ids: tuple[int, ...]) -> Array:
    return (tokens[..., None] == jnp.asarray(stop_ids, jnp.int32)).any(axis=-1)


def prefill(
    network: Network,
    stop_ids: tuple[int, ...],
    length: int,
    weights: Weights,
    state: SlotState,
    slots: Array,
    tokens: Array,
    starts: Array,
    counts: Array,
    last: Array,
    budgets: Array,
) -> SlotState:
    """Feeds new tokens to R slots and, where the prompt ends, samples the action's first token.

    Args:
        length: static; cache columns attended to.
        slots: i32 [R]; S marks an empty row.
        tokens: i32 [R, P], padded at the end.
        starts, counts: i32 [R], first cache column and number of real tokens.
        last: bool [R], the prompt ends with this piece.
        budgets: i32 [R], cap of the action that follows.
    """
    offsets = jnp.arange(tokens.shape[1])
    positions = jnp.where(offsets < counts[:, None], starts[:, None] + offsets, length)
    read = take_rows(state.cache, slots, length)
    hidden, rows = network.cached_hidden(weights.outside, weights.layers, tokens, positions, read)
    final = jnp.take_along_axis(hidden, jnp.maximum(counts - 1, 0)[:, None, None], axis=1)[:, 0]
    logits = network.cached_logits(weights.outside, final)
    token, logprob = _draw(state.keys[slots], state.drawn[slots], logits, state.temperature[slots])
    ended = jnp.where(last, slots, state.active.shape[0])  # rows that sample; the others are dropped below
    return dataclasses.replace(
        state,
        cache=put_rows(state.cache, slots, rows),
        tokens=state.tokens.at[ended, 0].set(token, mode="drop"),
        logprobs=state.logprobs.at[ended, 0].set(logprob, mode="drop"),
        emitted=state.emitted.at[ended].set(1, mode="drop"),
        active=state.active.at[ended].set(~_is_stop(token, stop_ids) & (budgets > 1), mode="drop"),
        position=state.position.at[ended].set(starts + counts, mode="drop"),
        budget=state.budget.at[ended].set(budgets, mode="drop"),
        drawn=state.drawn.at[ended].add(1, mode="drop"),
    )


def decode(
    network: Network, stop_ids: tuple[int, ...], length: int, chunk: int, weights: Weights, state: SlotState
) -> SlotState:
    """Up to `chunk` tokens for every active slot; ends early when no slot is active."""
    rows = jnp.arange(state.active.shape[0])

    def step(carry: tuple[Array, SlotState]) -> tuple[Array, SlotState]:
        done, s = carry
        fed = s.tokens[rows, s.emitted - 1]
        positions = jnp.where(s.active, s.position, length)
        hidden, cache = network.cached_hidden(
            weights.outside, weights.layers, fed[:, None], positions[:, None], s.cache
        )
        logits = network.cached_logits(weights.outside, hidden[:, 0])
        token, logprob = _draw(s.keys, s.drawn, logits, s.temperature)
        column = jnp.where(s.active, s.emitted, s.tokens.shape[1])
        emitted = s.emitted + s.active
        return done + 1, dataclasses.replace(
            s,
            cache=cache,
            tokens=s.tokens.at[rows, column].set(token, mode="drop"),
            logprobs=s.logprobs.at[rows, column].set(logprob, mode="drop"),
            emitted=emitted,
            active=s.active & ~_is_stop(token, stop_ids) & (emitted < s.budget),
            position=s.position + s.active,
            drawn=s.drawn + s.active,
        )

    short = dataclasses.replace(state, cache=take_columns(state.cache, length))
    _, short = jax.lax.while_loop(lambda carry: (carry[0] < chunk) & carry[1].active.any(), step, (jnp.int32(0), short))
    return dataclasses.replace(short, cache=put_columns(state.cache, short.cache))


def open_slot(state: SlotState, slot: Array, key: Array, temperature: Array) -> SlotState:
    """Forgets the slot's last episode. Its cache needs no clearing: a column is read only after it was written."""
    return dataclasses.replace(
        state,
        keys=state.keys.at[slot].set(key),
        drawn=state.drawn.at[slot].set(0),
        temperature=state.temperature.at[slot].set(temperature),
        active=state.active.at[slot].set(False),
    )


def copy_slot(state: SlotState, source: Array, target: Array) -> SlotState:
    """Gives slot `target` the cache of slot `source`, whose first columns hold the same tokens."""
    return dataclasses.replace(
        state, cache=jax.tree.map(lambda buffer: buffer.at[target].set(buffer[source]), state.cache)
    )


def stop_slot(state: SlotState, slot: Array) -> SlotState:
    """Ends the slot's action where it is."""
    return dataclasses.replace(state, active=state.active.at[slot].set(False))


@dataclasses.dataclass(kw_only=True)
class Programs:
    """The compiled list and how to choose from it."""

    stop_ids: tuple[int, ...]
    lengths: tuple[int, ...]  # attention buckets, ascending
    empty: Callable[[], SlotState]
    weights: Callable[[Params], Weights]
    open: Callable[..., SlotState]
    stop: Callable[..., SlotState]
    copy: Callable[..., SlotState]
    prefills: dict[tuple[int, int], Any]  # (P, length) → program
    decodes: dict[int, Any]  # length → program

    @property
    def plan(self) -> str:
        """What was compiled, in one line."""
        prefills = ", ".join(f"{tokens}x{length}" for tokens, length in sorted(self.prefills))
        return f"{self.count} sampler programs: prefill {prefills}; decode {', '.join(map(str, sorted(self.decodes)))}"

    @property
    def count(self) -> int:
        return len(self.prefills) + len(self.decodes) + 5

    def _length(self, needed: int) -> int:
        return next((length for length in self.lengths if length >= needed), self.lengths[-1])

    def prefill(self, weights: Weights, state: SlotState, needed: int, slots: np.ndarray, tokens: np.ndarray, *rest):
        """The smallest prefill whose attention covers `needed` columns."""
        return self.prefills[tokens.shape[1], self._length(needed)](weights, state, slots, tokens, *rest)

    def decode(self, weights: Weights, state: SlotState, needed: int) -> SlotState:
        """The smallest decode whose attention covers `needed` columns."""
        return self.decodes[self._length(needed)](weights, state)


def _empty_state(network: Network, section: SamplingSection) -> SlotState:
    slots, cap = section.slots, section.max_action_tokens
    dtype = network.config.compute_dtype if section.cache_dtype == "auto" else section.cache_dtype
    return SlotState(
        cache=empty_cache(network.config, slots=slots, length=section.cache_length, dtype=dtype),
        tokens=jnp.zeros((slots, cap), jnp.int32),
        logprobs=jnp.zeros((slots, cap), jnp.float32),
        emitted=jnp.ones((slots,), jnp.int32),
        active=jnp.zeros((slots,), bool),
        position=jnp.zeros((slots,), jnp.int32),
        budget=jnp.zeros((slots,), jnp.int32),
        keys=jnp.zeros((slots, 2), jnp.uint32),
        drawn=jnp.zeros((slots,), jnp.int32),
        temperature=jnp.zeros((slots,), jnp.float32),
    )


def compile_programs(network: Network, section: SamplingSection, stop_ids: tuple[int, ...], mesh: Mesh) -> Programs:
    """Compiles every program of the plan, two at a time."""
    everywhere = replicated(mesh)
    shapes = {**jax.eval_shape(network.init, jax.random.key(0)), **jax.eval_shape(network.init_base, jax.random.key(0))}
    axes = {**network.axes(), **network.base_axes()}
    param_shardings = named_shardings(mesh, axes, shapes)
    state_shapes = jax.eval_shape(lambda: _empty_state(network, section))
    cache = cache_sharding(mesh, slots=section.slots, kv_heads=network.config.kv_heads)
    state_shardings = jax.tree.map(lambda leaf: cache if leaf.ndim == 4 else everywhere, state_shapes)

    def placed(tree: Any, shardings: Any) -> Any:
        return jax.tree.map(lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where), tree, shardings)

    def row(*shape: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=everywhere)

    def pick(params: Params) -> Weights:
        return Weights(outside=network.trunk(params)["outside"], layers=network.unstack(params))

    weight_shapes = jax.eval_shape(pick, shapes)
    trunk = network.trunk(axes)
    layer_axes = jax.tree.map(lambda names: names[1:], trunk["layers"], is_leaf=lambda node: isinstance(node, tuple))
    weight_shardings = named_shardings(
        mesh, Weights(outside=trunk["outside"], layers=[layer_axes] * network.config.layers), weight_shapes
    )
    state, weights = placed(state_shapes, state_shardings), placed(weight_shapes, weight_shardings)
    r = section.prefill_rows

    def build(job: tuple[str, int, int]) -> Any:
        kind, tokens, length = job
        if kind == "prefill":
            program = jax.jit(
                lambda *args: prefill(network, stop_ids, length, *args), donate_argnums=1, out_shardings=state_shardings
            )
            arguments = (row(r), row(r, tokens), row(r), row(r), row(r, dtype=bool), row(r))
            return program.lower(weights, state, *arguments).compile()
        program = jax.jit(
            lambda w, s: decode(network, stop_ids, length, section.decode_chunk, w, s),
            donate_argnums=1,
            out_shardings=state_shardings,
        )
        return program.lower(weights, state).compile()

    jobs = [("prefill", p, c) for p in section.prefill_buckets for c in section.attention_buckets if c >= p]
    jobs += [("decode", 1, c) for c in section.attention_buckets]
    with ThreadPoolExecutor(max_workers=2) as pool:
        built = dict(zip(jobs, pool.map(build, jobs), strict=True))
    opener = jax.jit(open_slot, donate_argnums=0, out_shardings=state_shardings)
    stopper = jax.jit(stop_slot, donate_argnums=0, out_shardings=state_shardings)
    copier = jax.jit(copy_slot, donate_argnums=0, out_shardings=state_shardings)
    picker = jax.jit(pick, out_shardings=weight_shardings)
    empty = jax.jit(lambda: _empty_state(network, section), out_shardings=state_shardings)
    return Programs(
        stop_ids=stop_ids,
        lengths=tuple(section.attention_buckets),
        empty=empty.lower().compile(),
        weights=picker.lower(placed(shapes, param_shardings)).compile(),
        open=opener.lower(state, row(), row(2, dtype=jnp.uint32), row(dtype=jnp.float32)).compile(),
        stop=stopper.lower(state, row()).compile(),
        copy=copier.lower(state, row(), row()).compile(),
        prefills={(p, c): program for (kind, p, c), program in built.items() if kind == "prefill"},
        decodes={c: program for (kind, _, c), program in built.items() if kind == "decode"},
    )
