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
from jaxmtrl.learner.credit import Credit, credit
from jaxmtrl.learner.dials import Dials
from jaxmtrl.learner.score import Scores
from jaxmtrl.rl.episodes import episode_returns, overlong_penalties, spread
from jaxmtrl.rl.groups import uniform_groups
from jaxmtrl.rl.losses import kl_estimate, kl_penalised_rewards
from jaxmtrl.rl.masked import masked_mean, masked_variance, masked_whiten
from jaxmtrl.rl.off_policy import importance_weights


@flax.struct.dataclass
class TargetMetrics:
    """f32 scalars over the batch's action tokens unless said otherwise."""

    tokens: jax.Array  # i32, action tokens of the batch
    learnt: jax.Array  # share of them that the policy learns from
    advantage_mean: jax.Array  # before whitening
    advantage_std: jax.Array  # before whitening
    return_mean: jax.Array
    value_mean: jax.Array
    explained_variance: jax.Array  # 1 - var(return - value) / var(return); 0 if all returns are equal
    entropy: jax.Array  # nats a token
    kl_reference: jax.Array | None  # nats a token, k3 estimate; None without a reference
    logprob_gap_mean: jax.Array  # |sampler's log-prob - learner's|, nats
    logprob_gap_max: jax.Array
    uniform_groups: jax.Array  # share of the groups whose plays all earned the same
    importance_mean: jax.Array  # mean weight of what older weights played; 1 without correction


def make_targets(
    rows: TokenBatch, scores: Scores, ref_logprobs: jax.Array | None, algorithm: AlgorithmSection, dials: Dials
) -> tuple[Targets, TargetMetrics]:
    """Credit for every action token.

    Args:
        rows: fields [n, M, T], group_ids [E].
        scores: [n, M, T], by the policy before the update.
        ref_logprobs: f32 [n, M, T], or None if the run has no reference.

    Returns:
        Targets [n, M, T]; without a critic the returns are what `credit` compares, on each action token.
    """
    shape = rows.tokens.shape
    flat: Any = jax.tree.map(lambda x: x.reshape(-1, shape[-1]) if x.ndim == 3 else x, (rows, scores, ref_logprobs))
    flat_rows, flat_scores, flat_ref = flat
    mask = flat_rows.action_mask
    earned, uniform = _environment_returns(flat_rows)
    rewards = _rewards(flat_rows, flat_scores, flat_ref, algorithm, dials)
    raw = credit(flat_rows, rewards, flat_scores.values, algorithm)

    weights, kept = jnp.ones(mask.shape), mask
    if algorithm.importance_cap > 0:
        weights, kept = importance_weights(
            flat_scores.logprobs,
            flat_rows.behaviour_logprobs,
            mask,
            flat_rows.segment_ids,
            flat_rows.group_ids.shape[0],
            cap=algorithm.importance_cap,
            level=algorithm.importance_level,
            beyond=algorithm.importance_beyond,
            floor=algorithm.importance_floor,
        )
    learn = mask & kept & ~_left_out(flat_rows, uniform, algorithm)
    advantages = masked_whiten(raw.advantages, learn) if whitens(algorithm) else jnp.where(learn, raw.advantages, 0.0)
    targets = Targets(
        # The policy loss is linear in the advantages, so weighting them weights the loss, once.
        advantages=jnp.where(learn, advantages * weights, 0.0),
        returns=raw.returns,
        old_logprobs=flat_scores.logprobs,
        old_values=jnp.where(mask, flat_scores.values, 0.0),
        ref_logprobs=flat_ref if algorithm.kl_place == "loss" else None,
        learn=learn,
    )
    metrics = _metrics(flat_rows, flat_scores, flat_ref, raw, learn, weights, earned, uniform)
    return jax.tree.map(lambda x: x.reshape(shape), targets), metrics


def whitens(algorithm: AlgorithmSection) -> bool:
    """Whether advantages are whitened: as configured, or as the algorithm is defined."""
    if algorithm.whiten_advantages is not None:
        return algorithm.whiten_advantages
    return algorithm.name in ("ppo", "reinforce_plus_plus")


def _environment_returns(rows: TokenBatch) -> tuple[jax.Array, jax.Array]:
    """What each episode earned in its environment, f32 [E], and whether its group all earned that, bool [E]."""
    earned = episode_returns(rows.rewards, rows.action_mask, rows.segment_ids, rows.group_ids.shape[0])
    return earned, uniform_groups(earned, rows.group_ids)


def _rewards(
    rows: TokenBatch, scores: Scores, ref_logprobs: jax.Array | None, algorithm: AlgorithmSection, dials: Dials
) -> jax.Array:
    """Rewards as credit sees them: less the penalty of length, scaled, less the KL; f32 [B, T]."""
    rewards = jnp.where(rows.action_mask, rows.rewards, 0.0)
    if algorithm.overlong == "penalty":
        rewards = rewards - overlong_penalties(
            rows.action_mask,
            rows.segment_ids,
            rows.group_ids.shape[0],
            start=algorithm.overlong_from,
            limit=rows.tokens.shape[-1],
            penalty=algorithm.overlong_penalty,
        )
    rewards = rewards * dials.reward_scale
    if ref_logprobs is not None and algorithm.kl_place == "reward":
        rewards = kl_penalised_rewards(
            rewards,
            scores.logprobs,
            ref_logprobs,
            rows.action_mask,
            kl_coef=dials.kl_coef,
            kind=algorithm.kl_kind,
        )
    return rewards


def _left_out(rows: TokenBatch, uniform: jax.Array, algorithm: AlgorithmSection) -> jax.Array:
    """bool [B, T]: action tokens of episodes from which the policy is not to learn."""
    episodes = rows.group_ids.shape[0]
    out = jnp.zeros(episodes, bool)
    if algorithm.drop_uniform_groups:
        out = out | uniform
    if algorithm.overlong == "filter":
        cut = jax.ops.segment_sum(
            rows.bootstrap_mask.ravel().astype(jnp.int32),
            jnp.where(rows.valid, rows.segment_ids, episodes).ravel(),
            num_segments=episodes + 1,
        )
        out = out | (cut[:episodes] > 0)
    return spread(out, rows.segment_ids, rows.action_mask) > 0


def _metrics(
    rows: TokenBatch,
    scores: Scores,
    ref_logprobs: jax.Array | None,
    raw: Credit,
    learn: jax.Array,
    weights: jax.Array,
    earned: jax.Array,
    uniform: jax.Array,
) -> TargetMetrics:
    mask = rows.action_mask
    gap = jnp.abs(jnp.where(mask, rows.behaviour_logprobs - scores.logprobs, 0.0))
    variance = masked_variance(raw.returns, mask)
    unexplained = masked_variance(raw.returns - scores.values, mask)
    kl = None
    if ref_logprobs is not None:
        kl = masked_mean(kl_estimate(scores.logprobs, ref_logprobs, mask, kind="k3"), mask)
    tokens = jnp.sum(mask, dtype=jnp.int32)
    first = _first_of_group(rows.group_ids)
    return TargetMetrics(
        tokens=tokens,
        learnt=jnp.sum(learn) / jnp.maximum(tokens, 1),
        advantage_mean=masked_mean(raw.advantages, mask),
        advantage_std=jnp.sqrt(masked_variance(raw.advantages, mask)),
        return_mean=masked_mean(raw.returns, mask),
        value_mean=masked_mean(scores.values, mask),
        explained_variance=jnp.where(variance > 0, 1 - unexplained / jnp.where(variance > 0, variance, 1.0), 0.0),
        entropy=masked_mean(scores.entropies, mask),
        kl_reference=kl,
        logprob_gap_mean=masked_mean(gap, mask),
        logprob_gap_max=jnp.max(gap),
        uniform_groups=masked_mean(uniform, first),
        importance_mean=masked_mean(weights, mask),
    )


def _first_of_group(group_ids: jax.Array) -> jax.Array:
    """bool [E]: the first episode of each group."""
    earlier = jnp.tril(group_ids[:, None] == group_ids[None, :], k=-1)
    return (group_ids >= 0) & ~jnp.any(earlier, axis=1)
