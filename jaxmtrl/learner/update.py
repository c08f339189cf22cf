"""One update: epochs × minibatches × micro-batches inside a single compiled call.

Gradients of a minibatch are summed over its micro-batches with the minibatch's own denominators, so the result does
not depend on how it was cut. Letters: n micro-batches, M rows, T tokens, K minibatches.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from jaxmtrl.batch import Targets, TokenBatch
from jaxmtrl.learner.device import DeviceBatch, take, take_micro_batch
from jaxmtrl.learner.dials import Dials
from jaxmtrl.learner.elastic import Anchor, pull
from jaxmtrl.learner.objective import LossParts, Objective, Weights, zero_parts
from jaxmtrl.learner.optimizer import Optimizer
from jaxmtrl.learner.score import Scores, score
from jaxmtrl.learner.state import TrainState
from jaxmtrl.models.decoder import Network
from jaxmtrl.rl.masked import masked_mean


@flax.struct.dataclass
class UpdateMetrics:
    """Means over the optimizer steps of one update, f32 [] unless said otherwise."""

    parts: LossParts
    gradient_norm: jax.Array  # before clipping
    first_clip_fraction: jax.Array  # of the very first step: 0 as long as the old log-probs are the learner's own
    steps: jax.Array  # i32 [], optimizer steps taken; 0 means that the other numbers say nothing
    nonfinite: jax.Array  # i32 [], steps left out because loss or gradient was NaN or infinite
    bad_micro_batch: jax.Array  # i32 [], a micro-batch behind the first of them; -1 if there is none


@flax.struct.dataclass
class _Step:
    """What one minibatch reports."""

    parts: LossParts
    gradient_norm: jax.Array
    taken: jax.Array  # bool [], whether the optimizer moved
    bad_micro_batch: jax.Array  # i32 [], -1 if all was finite


def score_batch(network: Network, params: Any, batch: DeviceBatch, *, temperature: float) -> Scores:
    """Scores of a whole batch, f32 [n, M, T]; unused micro-batches are skipped and score 0."""
    nothing = jnp.zeros(batch.rows.tokens.shape, jnp.float32)

    def body(index: jax.Array, scores: Scores) -> Scores:
        new = score(network, params, take_micro_batch(batch.rows, index), temperature=temperature)
        return jax.tree.map(lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, index, 0), scores, new)

    return jax.lax.fori_loop(0, batch.used, body, Scores(logprobs=nothing, entropies=nothing, values=nothing))


def mean_loss(network: Network, objective: Objective, params: Any, batch: DeviceBatch) -> jax.Array:
    """The objective's loss on a whole batch without learning from it, f32 []: validation of sft."""
    weights = objective.weights(batch.rows, None, jnp.ones(batch.rows.tokens.shape[0], bool))

    def body(index: jax.Array, total: jax.Array) -> jax.Array:
        rows, share = take_micro_batch(batch.rows, index), take(weights, index)
        return total + objective.loss(network, params, rows, None, share)[0]

    return jax.lax.fori_loop(0, batch.used, body, jnp.zeros(()))


def update(
    network: Network,
    optimizer: Optimizer,
    objective: Objective,
    minibatches: int,
    state: TrainState,
    batch: DeviceBatch,
    targets: Targets | None,
    order: jax.Array,
    dials: Dials | None = None,
    base: Any = None,
    noise: jax.Array | None = None,
    anchor: Anchor | None = None,
) -> tuple[TrainState, UpdateMetrics]:
    """Learns from one batch.

    Minibatch k of an epoch takes entries floor(k * used / K) up to floor((k + 1) * used / K) of the epoch's order. One
    without action tokens changes nothing, neither parameters nor moments nor step count; nor does one whose loss or
    gradient is not finite.

    Args:
        minibatches: K, static.
        targets: fields [n, M, T]; None for pretrain and sft.
        order: i32 [epochs, n], see `device.micro_batch_order`.
        dials: None for those of the config.
        base: parameters beside the state's that stay as they are.
        noise: key of dropout, different for every optimizer step and micro-batch; None leaves everything in.
        anchor: what holds the policy by algorithm.ewc_coef; None lets it go.
    """

    def minibatch(state: TrainState, which: tuple[jax.Array, jax.Array]) -> tuple[TrainState, _Step]:
        micro_batches, part = which  # [n], []
        low, high = part * batch.used // minibatches, (part + 1) * batch.used // minibatches
        places = jnp.arange(micro_batches.size)
        chosen = jnp.zeros(places.size, bool).at[micro_batches].set((places >= low) & (places < high))
        weights = objective.weights(batch.rows, targets, chosen)

        def body(place: jax.Array, total: _Accumulated) -> _Accumulated:
            index = micro_batches[place]
            rows, credit, share = take_micro_batch(batch.rows, index), take(targets, index), take(weights, index)
            key = None if noise is None else jax.random.fold_in(jax.random.fold_in(noise, state.step), index)
            params = {**(base or {}), **state.params}
            return _accumulate(network, objective, params, rows, credit, share, dials, key, index, total)

        total = jax.lax.fori_loop(low, high, body, _nothing(objective, state.params))
        if anchor is not None:
            total = _held(total, anchor, state.params["policy"], objective.algorithm.ewc_coef)
        norm = optax.tree.norm(total.grads)
        finite = jnp.isfinite(norm) & jnp.isfinite(total.parts.loss)
        taken = finite & jnp.any(objective.learns_from(weights) > 0)
        state = jax.lax.cond(taken, lambda: _step(optimizer, state, total.grads, norm), lambda: state)
        bad = jnp.where(finite, -1, jnp.where(total.bad_micro_batch >= 0, total.bad_micro_batch, micro_batches[low]))
        return state, _Step(parts=total.parts, gradient_norm=norm, taken=taken, bad_micro_batch=bad)

    epochs = order.shape[0]
    visits = (jnp.repeat(order, minibatches, axis=0), jnp.tile(jnp.arange(minibatches), epochs))
    state, steps = jax.lax.scan(minibatch, state, visits)
    return state, _summary(steps)


@flax.struct.dataclass
class _Accumulated:
    """Sums over the micro-batches of a minibatch so far."""

    grads: Any  # f32, of the trained halves
    parts: LossParts
    bad_micro_batch: jax.Array  # i32 [], the first after which the sums were not finite; -1 if there is none


def _nothing(objective: Objective, params: Any) -> _Accumulated:
    grads = {name: jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params[name]) for name in objective.trained}
    return _Accumulated(grads=grads, parts=zero_parts(), bad_micro_batch=jnp.int32(-1))


def _accumulate(
    network: Network,
    objective: Objective,
    params: Any,
    rows: TokenBatch,
    targets: Targets | None,
    weights: Weights,
    dials: Dials | None,
    noise: jax.Array | None,
    index: jax.Array,
    total: _Accumulated,
) -> _Accumulated:
    """Adds one micro-batch's gradient and loss."""

    def loss(trained: Any) -> tuple[jax.Array, LossParts]:
        return objective.loss(network, {**params, **trained}, rows, targets, weights, dials, noise)

    trained = {name: params[name] for name in objective.trained}
    (_, parts), grads = jax.value_and_grad(loss, has_aux=True)(trained)
    grads = jax.tree.map(lambda all_, one: all_ + one.astype(jnp.float32), total.grads, grads)
    parts = jax.tree.map(jnp.add, total.parts, parts)
    finite = jnp.isfinite(optax.tree.norm(grads)) & jnp.isfinite(parts.loss)
    bad = jnp.where((total.bad_micro_batch < 0) & ~finite, index, total.bad_micro_batch)
    return _Accumulated(grads=grads, parts=parts, bad_micro_batch=bad)


def _held(total: _Accumulated, anchor: Anchor, policy: Any, coef: float) -> _Accumulated:
    """With the pull of the anchor; once a minibatch, since it is of no episode."""
    pulled, penalty = pull(anchor, policy, coef)
    grads = {**total.grads, "policy": jax.tree.map(jnp.add, total.grads["policy"], pulled)}
    parts = dataclasses.replace(total.parts, loss=total.parts.loss + penalty, elastic=penalty)
    return dataclasses.replace(total, grads=grads, parts=parts)


def _step(optimizer: Optimizer, state: TrainState, grads: Any, norm: jax.Array) -> TrainState:
    params, opt_state = optimizer.step(grads, state.opt_state, state.params, norm=norm)
    return TrainState(params=params, opt_state=opt_state, step=state.step + 1)


def _summary(steps: _Step) -> UpdateMetrics:
    """Means over the steps taken; fields of `steps` are [epochs * K]."""
    bad = steps.bad_micro_batch >= 0
    return UpdateMetrics(
        parts=jax.tree.map(lambda x: masked_mean(x, steps.taken), steps.parts),
        gradient_norm=masked_mean(steps.gradient_norm, steps.taken),
        first_clip_fraction=steps.parts.clip_fraction[jnp.argmax(steps.taken)],
        steps=jnp.sum(steps.taken, dtype=jnp.int32),
        nonfinite=jnp.sum(bad, dtype=jnp.int32),
        bad_micro_batch=jnp.where(jnp.any(bad), steps.bad_micro_batch[jnp.argmax(bad)], -1),
    )
