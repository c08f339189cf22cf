"""From played and scored episodes to what the update learns from: rewards, advantages, returns.

Works on a whole batch at once, since group baselines and whitening look across micro-batches.
"""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxmtrl.batch import Targets, TokenBatch
from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.learner.score import Scores
from jaxmtrl.rl.advantages import episode_returns, gae, leave_one_out, spread, token_discounts, turn_discounts
from jaxmtrl.rl.losses import importance_weights, kl_estimate, kl_penalised_rewards
from jaxmtrl.rl.masked import masked_mean, masked_variance, masked_whiten


@flax.struct.dataclass
class TargetMetrics:
    """f32 scalars over the batch's action tokens."""

    tokens: jax.Array  # i32, action tokens of the batch
    advantage_mean: jax.Array  # before whitening
    advantage_std: jax.Array  # before whitening
    return_mean: jax.Array
    value_mean: jax.Array
    explained_variance: jax.Array  # 1 - var(return - value) / var(return); 0 if all returns are equal
    entropy: jax.Array  # nats a token
    kl_reference: jax.Array | None  # nats a token, k3 estimate; None without a reference
    logprob_gap_mean: jax.Array  # |sampler's log-prob - learner's|, nats
    logprob_gap_max: jax.Array


def make_targets(
    rows: TokenBatch, scores: Scores, ref_logprobs: jax.Array | None, algorithm: AlgorithmSection
) -> tuple[Targets, TargetMetrics]:
    """Credit for every action token.

    Args:
        rows: fields [n, M, T], group_ids [E].
        scores: [n, M, T], by the policy before the update.
        ref_logprobs: f32 [n, M, T], or None if the run has no reference.

    Returns:
        Targets [n, M, T]; for rloo the returns are the episode's return on each of its action tokens.
    """
    shape = rows.tokens.shape
    flat: Any = jax.tree.map(lambda x: x.reshape(-1, shape[-1]) if x.ndim == 3 else x, (rows, scores, ref_logprobs))
    flat_rows, flat_scores, flat_ref = flat
    mask = flat_rows.action_mask
    rewards = jnp.where(mask, flat_rows.rewards, 0.0)
    if flat_ref is not None and algorithm.kl_place == "reward":
        rewards = kl_penalised_rewards(rewards, flat_scores.logprobs, flat_ref, mask, kl_coef=algorithm.kl_coef)

    raw, returns = _credit(flat_rows, rewards, flat_scores.values, algorithm)
    advantages = masked_whiten(raw, mask) if algorithm.whiten_advantages else raw
    if algorithm.importance_cap > 0:
        weights = importance_weights(
            flat_scores.logprobs, flat_rows.behaviour_logprobs, mask, cap=algorithm.importance_cap
        )
        # The policy loss is linear in the advantages, so weighting them weights the loss, once.
        advantages = advantages * weights
    targets = Targets(
        advantages=advantages,
        returns=returns,
        old_logprobs=flat_scores.logprobs,
        old_values=jnp.where(mask, flat_scores.values, 0.0),
        ref_logprobs=flat_ref if algorithm.kl_place == "loss" else None,
    )
    metrics = _metrics(flat_rows, flat_scores, flat_ref, raw, returns)
    return jax.tree.map(lambda x: x.reshape(shape), targets), metrics


def _credit(
    rows: TokenBatch, rewards: jax.Array, values: jax.Array, algorithm: AlgorithmSection
) -> tuple[jax.Array, jax.Array]:
    """Advantages and returns, f32 [B, T]."""
    if algorithm.name == "ppo":
        if algorithm.discount_per == "turn":
            discounts = turn_discounts(algorithm.gamma, rows.action_mask, rows.turn_ids, rows.segment_ids)
        else:
            discounts = token_discounts(algorithm.gamma, rows.action_mask)
        return gae(
            rewards,
            values,
            action_mask=rows.action_mask,
            segment_ids=rows.segment_ids,
            bootstrap_mask=rows.bootstrap_mask & algorithm.bootstrap_truncated,
            discounts=discounts,
            lam=algorithm.lam,
        )
    earned = episode_returns(rewards, rows.action_mask, rows.segment_ids, rows.group_ids.shape[0])
    centred = leave_one_out(earned, rows.group_ids)
    return (
        spread(centred, rows.segment_ids, rows.action_mask),
        spread(earned, rows.segment_ids, rows.action_mask),
    )


def _metrics(
    rows: TokenBatch, scores: Scores, ref_logprobs: jax.Array | None, advantages: jax.Array, returns: jax.Array
) -> TargetMetrics:
    mask = rows.action_mask
    gap = jnp.abs(jnp.where(mask, rows.behaviour_logprobs - scores.logprobs, 0.0))
    variance = masked_variance(returns, mask)
    unexplained = masked_variance(returns - scores.values, mask)
    kl = None
    if ref_logprobs is not None:
        kl = masked_mean(kl_estimate(scores.logprobs, ref_logprobs, mask, kind="k3"), mask)
    return TargetMetrics(
        tokens=jnp.sum(mask, dtype=jnp.int32),
        advantage_mean=masked_mean(advantages, mask),
        advantage_std=jnp.sqrt(masked_variance(advantages, mask)),
        return_mean=masked_mean(returns, mask),
        value_mean=masked_mean(scores.values, mask),
        explained_variance=jnp.where(variance > 0, 1 - unexplained / jnp.where(variance > 0, variance, 1.0), 0.0),
        entropy=masked_mean(scores.entropies, mask),
        kl_reference=kl,
        logprob_gap_mean=masked_mean(gap, mask),
        logprob_gap_max=jnp.max(gap),
    )
