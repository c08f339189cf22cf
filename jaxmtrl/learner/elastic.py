"""Elastic weight consolidation: what was important for earlier levels is held where it was while new ones are learnt.

The loss gains coef / 2 · Σ F (θ − θ*)², where θ* are the weights at the end of the last level and F is the diagonal of
the Fisher information of action tokens, summed over levels with a decay: the online form.

Sources: Kirkpatrick et al. 2017, https://arxiv.org/abs/1612.00796; Schwarz et al. 2018, https://arxiv.org/abs/1805.06370.
"""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxmtrl.learner.device import DeviceBatch, take_micro_batch
from jaxmtrl.learner.score import score
from jaxmtrl.models.decoder import Network


@flax.struct.dataclass
class Anchor:
    """What holds the policy; both trees are like its parameters."""

    params: Any  # θ*
    fisher: Any  # F, f32, each at least 0


def abstract_anchor(policy: Any) -> Anchor:
    """What a checkpoint's anchor is restored into, from shapes and shardings of the policy's parameters."""

    def number(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, jnp.float32, sharding=leaf.sharding)

    return Anchor(params=policy, fisher=jax.tree.map(number, policy))


def pull(anchor: Anchor, policy: Any, coef: jax.Array | float) -> tuple[Any, jax.Array]:
    """The gradient of the penalty, f32, and the penalty itself, f32 [].

    Args:
        policy: the parameters as they are.
        coef: what the penalty counts beside the other losses.
    """
    away = jax.tree.map(lambda now, then: now.astype(jnp.float32) - then.astype(jnp.float32), policy, anchor.params)
    grads = jax.tree.map(lambda fisher, distance: coef * fisher * distance, anchor.fisher, away)
    halves = jax.tree.map(lambda grad, distance: jnp.sum(grad * distance) / 2, grads, away)
    return grads, jax.tree.reduce(jnp.add, halves, jnp.zeros(()))


def fisher_diagonal(
    network: Network, params: dict[str, Any], batch: DeviceBatch, *, temperature: float, base: Any = None
) -> Any:
    """The diagonal of the Fisher information of one action token, a tree like the policy's parameters, f32.

    It is the mean square of the gradient of an action's log-probability. Gradients are squared a micro-batch at a time:
    those of different samples are independent with mean 0 where the policy itself has sampled them, so that the square
    of their sum is, in the mean, the sum of their squares, and episodes need not be taken apart.

    Args:
        params: those that have played the batch.
        temperature: of play.
        base: parameters beside the state's that stay as they are.
    """
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), params["policy"])

    def body(index: jax.Array, total: Any) -> Any:
        rows = take_micro_batch(batch.rows, index)

        def log_likelihood(policy: Any) -> jax.Array:
            whole = {**(base or {}), **params, "policy": policy}
            scores = score(network, whole, rows, temperature=temperature)
            return jnp.sum(jnp.where(rows.action_mask, scores.logprobs, 0.0))

        grads = jax.grad(log_likelihood)(params["policy"])
        return jax.tree.map(lambda sum_, grad: sum_ + jnp.square(grad.astype(jnp.float32)), total, grads)

    sums = jax.lax.fori_loop(0, batch.used, body, zeros)
    tokens = jnp.maximum(jnp.sum(batch.rows.action_mask), 1)
    return jax.tree.map(lambda sum_: sum_ / tokens, sums)


def consolidated(anchor: Anchor | None, fisher: Any, policy: Any, *, decay: float) -> Anchor:
    """The anchor after a level: it holds the policy where it is now, by what counted then and, decayed, before.

    Args:
        anchor: of the levels before; None after the first.
        fisher: of `fisher_diagonal`, on this level's episodes.
        policy: the parameters at its end.
        decay: share of the earlier importance that is kept.
    """
    if anchor is not None:
        fisher = jax.tree.map(lambda before, new: decay * before + new, anchor.fisher, fisher)
    return Anchor(params=jax.tree.map(jnp.copy, policy), fisher=fisher)
