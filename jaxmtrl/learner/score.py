"""What the network says of every action token: log-probability, entropy, and the value of the state before it.

The one place where positions shift by one: the hidden state that has read tokens 0..t-1 speaks of token t, and from
here on column t of every array does. No array of logits larger than one chunk of columns exists, forward or backward.
Letters: M rows, T tokens, A readout columns (T rounded up to whole chunks), D embed, V vocab.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxmtrl.batch import TokenBatch
from jaxmtrl.models.decoder import NO_TOKEN, Network
from jaxmtrl.parallel.sharding import constrain_rows

CHUNK_COLUMNS = 64  # columns of logits alive at once: M * 64 * V numbers


@flax.struct.dataclass
class Scores:
    """f32 [M, T] each (or [n, M, T] for whole batches)."""

    logprobs: jax.Array  # of the token, at the temperature; 0 off-action
    entropies: jax.Array  # of the distribution it was chosen from, at the temperature, in nats; 0 off-action
    values: jax.Array  # of the state before the token is chosen; 0 but on action and bootstrap columns


def score(
    network: Network,
    params: Any,
    rows: TokenBatch,
    *,
    temperature: float,
    entropy_gradient: bool = False,
    noise: jax.Array | None = None,
) -> Scores:
    """Scores the action tokens and bootstrap columns of packed rows.

    Args:
        rows: [M, T] fields; an action token must have a token of its own context before it, or it scores 0.
        temperature: logits are divided by it, as in sampling.
        entropy_gradient: whether a gradient flows through `entropies`; False saves work in the backward pass.
        noise: key of the network's dropout; None leaves everything in.
    """
    contexts = jnp.where(rows.valid, jnp.cumsum(rows.first, axis=1, dtype=jnp.int32), -1)
    read = (rows.tokens, rows.positions, contexts)
    hidden = constrain_rows(network.hidden(params, *read, noise))  # [M, T, D]
    critic_hidden = network.critic_hidden(params, hidden, *read)
    actions, readout = _readable(rows)
    columns, live = _compact(readout)  # [M, A]

    def states(hidden: jax.Array) -> jax.Array:
        """[M, A, D], the states before the readout columns."""
        before = jnp.take_along_axis(hidden, jnp.maximum(columns - 1, 0)[..., None], axis=1)
        # Whatever a padding column holds must not reach the head: 0 * inf in its backward pass would be NaN.
        return constrain_rows(jnp.where(live[..., None], before, 0))

    before = states(hidden)
    critic_before = before if critic_hidden is hidden else states(constrain_rows(critic_hidden))
    chosen = jnp.take_along_axis(rows.tokens, columns, axis=1)

    supports = None
    if rows.supports is not None and rows.support_ids is not None:
        supports = (rows.supports, jnp.take_along_axis(rows.support_ids, columns, axis=1))

    logprobs, entropies = _chunked_head(
        network, params, before, chosen, live, supports, temperature=temperature, entropy_gradient=entropy_gradient
    )
    rank = jnp.maximum(jnp.cumsum(readout, axis=1) - 1, 0)  # [M, T], where a readout column went

    def expand(compact: jax.Array, mask: jax.Array) -> jax.Array:
        return jnp.where(mask, jnp.take_along_axis(compact, rank, axis=1), 0.0)

    return Scores(
        logprobs=expand(logprobs, actions),
        entropies=expand(entropies, actions),
        values=expand(network.values(params, critic_before), readout),
    )


def _readable(rows: TokenBatch) -> tuple[jax.Array, jax.Array]:
    """bool [M, T] twice: action tokens that their own context predicts; those and bootstrap columns."""
    nothing = jnp.full_like(rows.segment_ids[:, :1], -1)
    previous = jnp.concatenate([nothing, rows.segment_ids[:, :-1]], axis=1)
    inside = previous >= 0
    actions = rows.action_mask & inside & (previous == rows.segment_ids) & ~rows.first
    # A bootstrap column reads the end of the episode before it, whether or not it is counted as part of it.
    return actions, actions | (rows.bootstrap_mask & inside)


def _compact(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The columns of a mask [M, T] first and in order: columns i32 [M, A], and which of them are in the mask."""
    length = mask.shape[1]
    width = -(-length // CHUNK_COLUMNS) * CHUNK_COLUMNS
    columns = jnp.argsort(~mask, axis=1, stable=True).astype(jnp.int32)
    live = jnp.arange(width) < jnp.sum(mask, axis=1, keepdims=True)
    return jnp.pad(columns, ((0, 0), (0, width - length))), live


def _chunked_head(
    network: Network,
    params: Any,
    hidden: jax.Array,
    chosen: jax.Array,
    live: jax.Array,
    supports: tuple[jax.Array, jax.Array] | None,
    *,
    temperature: float,
    entropy_gradient: bool,
) -> tuple[jax.Array, jax.Array]:
    """Log-probability of the chosen tokens and entropy, f32 [M, A], chunk of columns by chunk of columns.

    Chunks cut columns and not rows, so that every device that holds rows has a part in every chunk. Live columns come
    first in a row, and only chunks that have any are computed: the head costs what the actions are, not what the rows
    are.

    Args:
        supports: bool [N, V], and i32 [M, A], which row of it a token was drawn under; None: any token could be.
    """

    def read(hidden: jax.Array, chosen: jax.Array, mask: _Mask = None) -> tuple[jax.Array, jax.Array]:
        logits = network.logits(params, hidden).astype(jnp.float32) / temperature  # [M, chunk, V]
        if mask is not None:
            logits = jnp.where(mask[0][mask[1]], logits, NO_TOKEN)
        logprobs = jax.nn.log_softmax(logits, axis=-1)
        # A sum over V instead of a gather, which would bring all of a vocabulary-sharded array to every device.
        is_chosen = jnp.arange(logits.shape[-1]) == chosen[..., None]
        chosen_logprobs = jnp.sum(jnp.where(is_chosen, logprobs, 0.0), axis=-1)
        whole = logprobs if entropy_gradient else jax.lax.stop_gradient(logprobs)
        return chosen_logprobs, -jnp.sum(jnp.exp(whole) * whole, axis=-1)

    parts = _chunks(hidden), _chunks(chosen)
    convert: Any = jax.closure_convert  # whose annotation says object
    mask = None if supports is None else (supports[0], _chunks(supports[1]))
    read_with, weights = convert(read, parts[0][0], parts[1][0], _of_chunk(mask, 0))
    used = -(-jnp.max(jnp.sum(live, axis=1, dtype=jnp.int32)) // CHUNK_COLUMNS)
    scored: Any = _read_chunks(read_with, weights, *parts, used, mask)
    logprobs, entropies = (part.swapaxes(0, 1).reshape(chosen.shape) for part in scored)
    return logprobs, entropies


_Read = Callable[..., tuple[jax.Array, jax.Array]]  # of hidden [M, chunk, D], chosen [M, chunk], mask, head's weights
_Mask = tuple[jax.Array, jax.Array] | None  # bool [N, V] and its rows, i32 [M, chunk] or [A / chunk, M, chunk]


def _of_chunk(mask: _Mask, index: Any) -> _Mask:
    return None if mask is None else (mask[0], mask[1][index])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _read_chunks(
    read: _Read, weights: Sequence[jax.Array], hidden: jax.Array, chosen: jax.Array, used: jax.Array, mask: _Mask
) -> tuple[jax.Array, jax.Array]:
    """`read` of the first `used` chunks, f32 [A / chunk, M, chunk] twice; 0 in the others.

    The backward pass reads each of them again, so that no logits are kept, and adds to the gradient of the weights once
    for each: an array as large as the vocabulary, which a `scan` over all chunks would go through for empty ones too.
    """
    nothing = jnp.zeros(chosen.shape, jnp.float32)

    def one(index: jax.Array, scored: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found = read(hidden[index], chosen[index], _of_chunk(mask, index), *weights)
        return scored[0].at[index].set(found[0]), scored[1].at[index].set(found[1])

    return jax.lax.fori_loop(0, used, one, (nothing, nothing))


def _read_chunks_forward(read: _Read, *inputs: Any) -> tuple[tuple[jax.Array, jax.Array], Any]:
    return _read_chunks(read, *inputs), inputs


def _read_chunks_backward(read: _Read, inputs: Any, cotangents: tuple[jax.Array, jax.Array]) -> Any:
    weights, hidden, chosen, used, mask = inputs

    def one(index: jax.Array, sums: tuple[list[jax.Array], jax.Array]) -> tuple[list[jax.Array], jax.Array]:
        d_weights, d_hidden = sums

        def of_chunk(hidden: jax.Array, *weights: jax.Array) -> tuple[jax.Array, jax.Array]:
            return read(hidden, chosen[index], _of_chunk(mask, index), *weights)

        _, pull = jax.vjp(of_chunk, hidden[index], *weights)
        mine, *theirs = pull((cotangents[0][index], cotangents[1][index]))
        return [all_ + part for all_, part in zip(d_weights, theirs)], d_hidden.at[index].set(mine)

    start = [jnp.zeros(part.shape, jnp.float32) for part in weights], jnp.zeros_like(hidden)
    d_weights, d_hidden = jax.lax.fori_loop(0, used, one, start)
    return [part.astype(like.dtype) for part, like in zip(d_weights, weights)], d_hidden, None, None, None


_read_chunks.defvjp(_read_chunks_forward, _read_chunks_backward)


def _chunks(array: jax.Array) -> jax.Array:
    """[M, A, ...] → [A / chunk, M, chunk, ...]."""
    return array.reshape(array.shape[0], -1, CHUNK_COLUMNS, *array.shape[2:]).swapaxes(0, 1)
