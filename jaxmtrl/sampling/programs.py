"""What the sampler's compiled programs compute: pure functions of weights, cache and slots; see `compiled.py`.

Under a mask of actions (`text/action_mask.py`) every slot is in a state of its table, which says what may be sampled
and what state follows; without one the table and the slots' states are None, and nothing is computed for them.
Letters: S slots, R prefill rows, P prefill bucket, A action cap, C cache length, L layers, V vocab, N mask states.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxmtrl.models.decoder import Network, Params
from jaxmtrl.models.kv_cache import Cache, cache_length
from jaxmtrl.models.quantised import Quantised
from jaxmtrl.models.rope import Turns
from jaxmtrl.sampling.logits import sample, sample_allowed

Array = jax.Array


@flax.struct.dataclass
class SlotState:
    """What the device remembers of the slots besides their cache; both are donated to the programs that change them."""

    tokens: Array  # i32 [S, A], the action so far
    logprobs: Array  # f32 [S, A]
    emitted: Array  # i32 [S], length of the action so far; its last token is not in the cache yet
    fed: Array  # i32 [S], what decode reads next: that token, or the last of a prompt whose rest is in the cache
    active: Array  # bool [S], the action is not finished
    position: Array  # i32 [S], cache column that `fed` will take
    budget: Array  # i32 [S], cap of this action
    keys: Array  # u32 [S, 2], of the episode
    drawn: Array  # i32 [S], tokens drawn in the episode so far; with `keys` it seeds the next draw
    temperature: Array  # f32 [S]
    root: Array | None  # i32 [S], mask state in which the episode's actions begin
    support: Array | None  # i32 [S], mask state of the token that is drawn next


@flax.struct.dataclass
class Weights:
    """Parameters as the sampler reads them: no critic, blocks one by one."""

    outside: Params
    layers: list[Params]
    # `Rope.turns` of every cache column, [C, 1, H/2], where looking them up is faster than computing them.
    sin: Array | None
    cos: Array | None

    @classmethod
    def of(cls, network: Network, params: Params, columns: int) -> Weights:
        """From a tree of `as_read`, for a cache of up to `columns`."""
        sin, cos = network.config.rope.turns(jnp.arange(columns)) if network.config.cpu_layout else (None, None)
        return cls(outside=network.trunk(params)["outside"], layers=network.unstack(params), sin=sin, cos=cos)

    def turns_at(self, positions: Array) -> Turns | None:
        """Of positions i32 [B, T]; those of padding mean nothing."""
        if self.sin is None or self.cos is None:
            return None
        return self.sin.at[positions].get(mode="clip"), self.cos.at[positions].get(mode="clip")


def as_read(network: Network, params: Params) -> Params:
    """What the sampler reads of a whole tree, frozen parameters included: no critic, matrices as they are multiplied.

    Read at every step, f32 ones would take twice as long as bf16 ones for the same numbers.
    """
    dtype = jnp.dtype(network.config.compute_dtype)

    def cast(path: tuple[Any, ...], weight: Array | Quantised) -> Array | Quantised:
        if isinstance(weight, Quantised):
            return weight
        stacked = any(getattr(key, "key", None) == "layers" for key in path)
        return weight.astype(dtype) if weight.ndim >= 2 + stacked else weight

    read = {name: part for name, part in params.items() if name != "critic"}
    return jax.tree_util.tree_map_with_path(cast, read, is_leaf=lambda node: isinstance(node, Quantised))


def empty_state(slots: int, cap: int, masked: bool = False) -> SlotState:
    """All slots closed.

    Args:
        masked: whether sampling is under a mask of actions.
    """
    return SlotState(
        tokens=jnp.zeros((slots, cap), jnp.int32),
        logprobs=jnp.zeros((slots, cap), jnp.float32),
        emitted=jnp.zeros((slots,), jnp.int32),
        fed=jnp.zeros((slots,), jnp.int32),
        active=jnp.zeros((slots,), bool),
        position=jnp.zeros((slots,), jnp.int32),
        budget=jnp.zeros((slots,), jnp.int32),
        keys=jnp.zeros((slots, 2), jnp.uint32),
        drawn=jnp.zeros((slots,), jnp.int32),
        temperature=jnp.zeros((slots,), jnp.float32),
        root=jnp.zeros((slots,), jnp.int32) if masked else None,
        support=jnp.zeros((slots,), jnp.int32) if masked else None,
    )


def _draw(
    state_keys: Array, drawn: Array, logits: Array, temperature: Array, table: Array | None, support: Array | None
) -> tuple[Array, Array, Array | None]:
    """One token a row, its log-prob, the mask state after it; a draw depends on its episode's key and count alone."""
    keys = jax.vmap(lambda key, count: jax.random.fold_in(jax.random.wrap_key_data(key), count))(state_keys, drawn)
    if table is None:
        return *jax.vmap(sample)(keys, logits, temperature), None
    following = table[support]  # [rows, V]
    token, logprob = jax.vmap(sample_allowed)(keys, logits, temperature, following >= 0)
    return token, logprob, jnp.take_along_axis(following, token[:, None], axis=1)[:, 0].astype(jnp.int32)


def _at(array: Array | None, where: Array) -> Array | None:
    return None if array is None else array[where]


def _with(array: Array | None, where: Array, values: Array | None) -> Array | None:
    """`array` with values at some places; those beyond its end are dropped."""
    return None if array is None else array.at[where].set(values, mode="drop")


def _is_stop(tokens: Array, stop_ids: tuple[int, ...]) -> Array:
    return (tokens[..., None] == jnp.asarray(stop_ids, jnp.int32)).any(axis=-1)


def prefill(
    network: Network,
    stop_ids: tuple[int, ...],
    weights: Weights,
    cache: Cache,
    state: SlotState,
    slots: Array,
    tokens: Array,
    starts: Array,
    counts: Array,
    last: Array,
    budgets: Array,
    table: Array | None = None,
) -> tuple[Cache, SlotState]:
    """Feeds new tokens to R slots and, where the prompt ends, samples the action's first token.

    Args:
        slots: i32 [R]; S marks an empty row.
        tokens: i32 [R, P], padded at the end.
        starts, counts: i32 [R], first cache column and number of real tokens.
        last: bool [R], the prompt ends with this piece.
        budgets: i32 [R], cap of the action that follows.
        table: i16 [N, V], mask of actions; None without one.
    """
    offsets = jnp.arange(tokens.shape[1])
    positions = jnp.where(offsets < counts[:, None], starts[:, None] + offsets, cache_length(cache))
    final, cache = network.cached_hidden(
        weights.outside,
        weights.layers,
        tokens,
        positions,
        cache,
        rows=slots,
        last=jnp.maximum(counts - 1, 0),
        turns=weights.turns_at(positions),
    )
    logits = network.cached_logits(weights.outside, final[:, 0])
    token, logprob, support = _draw(
        state.keys[slots], state.drawn[slots], logits, state.temperature[slots], table, _at(state.root, slots)
    )
    ended = jnp.where(last, slots, state.active.shape[0])  # rows that sample; the others are dropped below
    return cache, dataclasses.replace(
        state,
        tokens=state.tokens.at[ended, 0].set(token, mode="drop"),
        logprobs=state.logprobs.at[ended, 0].set(logprob, mode="drop"),
        emitted=state.emitted.at[ended].set(1, mode="drop"),
        fed=state.fed.at[ended].set(token, mode="drop"),
        active=state.active.at[ended].set(~_is_stop(token, stop_ids) & (budgets > 1), mode="drop"),
        position=state.position.at[ended].set(starts + counts, mode="drop"),
        budget=state.budget.at[ended].set(budgets, mode="drop"),
        drawn=state.drawn.at[ended].add(1, mode="drop"),
        support=_with(state.support, ended, support),
    )


def decode(
    network: Network,
    stop_ids: tuple[int, ...],
    chunk: int,
    weights: Weights,
    cache: Cache,
    state: SlotState,
    table: Array | None = None,
) -> tuple[Cache, SlotState, Array]:
    """Up to `chunk` tokens for every active slot; ends early when no slot is active.

    Returns:
        The cache, the state, and `report` of it.
    """
    rows, length = jnp.arange(state.active.shape[0]), cache_length(cache)

    def step(carry: tuple[Array, Cache, SlotState]) -> tuple[Array, Cache, SlotState]:
        done, cache, s = carry
        positions = jnp.where(s.active, s.position, length)[:, None]
        hidden, cache = network.cached_hidden(
            weights.outside, weights.layers, s.fed[:, None], positions, cache, turns=weights.turns_at(positions)
        )
        logits = network.cached_logits(weights.outside, hidden[:, 0])
        token, logprob, support = _draw(s.keys, s.drawn, logits, s.temperature, table, s.support)
        column = jnp.where(s.active, s.emitted, s.tokens.shape[1])
        emitted = s.emitted + s.active
        return (
            done + 1,
            cache,
            dataclasses.replace(
                s,
                tokens=s.tokens.at[rows, column].set(token, mode="drop"),
                logprobs=s.logprobs.at[rows, column].set(logprob, mode="drop"),
                emitted=emitted,
                fed=token,
                active=s.active & ~_is_stop(token, stop_ids) & (emitted < s.budget),
                position=s.position + s.active,
                drawn=s.drawn + s.active,
                support=_with(s.support, jnp.where(s.active, rows, rows.size), support),
            ),
        )

    _, cache, state = jax.lax.while_loop(
        lambda carry: (carry[0] < chunk) & carry[2].active.any(), step, (jnp.int32(0), cache, state)
    )
    return cache, state, report(state)


def report(state: SlotState) -> Array:
    """What the host wants to know after a chunk, as one array and so one copy: i32 [S, 2 + 2A]."""
    logprobs = jax.lax.bitcast_convert_type(state.logprobs, jnp.int32)
    return jnp.concatenate([state.active[:, None], state.emitted[:, None], state.tokens, logprobs], axis=1)


@dataclasses.dataclass(frozen=True)
class Report:
    """`report` on the host."""

    active: np.ndarray  # bool [S]
    emitted: np.ndarray  # i32 [S]
    tokens: np.ndarray  # i32 [S, A]
    logprobs: np.ndarray  # f32 [S, A]

    @classmethod
    def of(cls, packed: Array) -> Report:
        """Waits for the chunk and copies its report."""
        host = np.asarray(packed)
        cap = (host.shape[1] - 2) // 2
        logprobs = np.ascontiguousarray(host[:, 2 + cap :]).view(np.float32)
        return cls(active=host[:, 0] != 0, emitted=host[:, 1], tokens=host[:, 2 : 2 + cap], logprobs=logprobs)


def open_slot(state: SlotState, slot: Array, key: Array, temperature: Array, root: Array | None = None) -> SlotState:
    """Forgets the slot's last episode. Its cache needs no clearing: a column is read only after it was written."""
    return dataclasses.replace(
        state,
        keys=state.keys.at[slot].set(key),
        drawn=state.drawn.at[slot].set(0),
        temperature=state.temperature.at[slot].set(temperature),
        active=state.active.at[slot].set(False),
        root=_with(state.root, slot, root),
    )


def begin_slot(state: SlotState, slot: Array, token: Array, position: Array, budget: Array) -> SlotState:
    """Starts an action of at most `budget` tokens in a slot whose cache lacks only the prompt's last token."""
    return dataclasses.replace(
        state,
        emitted=state.emitted.at[slot].set(0),
        fed=state.fed.at[slot].set(token),
        active=state.active.at[slot].set(True),
        position=state.position.at[slot].set(position),
        budget=state.budget.at[slot].set(budget),
        support=_with(state.support, slot, _at(state.root, slot)),
    )


def stop_slot(state: SlotState, slot: Array) -> SlotState:
    """Ends the slot's action where it is."""
    return dataclasses.replace(state, active=state.active.at[slot].set(False))
