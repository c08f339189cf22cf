"""One estimator a name: from rewards and values to advantages, as the config says."""

from __future__ import annotations

import flax.struct
import jax

from jaxmtrl.batch import TokenBatch
from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.rl.advantages import gae, reward_to_go, token_discounts
from jaxmtrl.rl.episodes import adaptive_lambda, episode_returns, spread
from jaxmtrl.rl.groups import anchor_advantages, group_normalised, leave_one_out
from jaxmtrl.rl.turns import bilevel_gae, turn_discounts, turn_gae


@flax.struct.dataclass
class Credit:
    """f32 [B, T], 0 off-action."""

    advantages: jax.Array
    returns: jax.Array  # what the critic should say; without a critic, what was compared


def credit(rows: TokenBatch, rewards: jax.Array, values: jax.Array, algorithm: AlgorithmSection) -> Credit:
    """Advantages and returns by `algorithm.name`.

    Args:
        rows: fields [B, T], group_ids [E].
        rewards: f32 [B, T], penalties and scale included.
        values: f32 [B, T]; read by ppo only.
    """
    if algorithm.name == "ppo":
        return _ppo(rows, rewards, values, algorithm)
    if algorithm.name == "reinforce_plus_plus":
        return _reinforce_plus_plus(rows, rewards, algorithm)
    earned = episode_returns(rewards, rows.action_mask, rows.segment_ids, rows.group_ids.shape[0])
    if algorithm.name == "rloo":
        centred = leave_one_out(earned, rows.group_ids)
    else:
        centred = group_normalised(earned, rows.group_ids, scale_by_std=algorithm.scale_by_std)
    advantages = spread(centred, rows.segment_ids, rows.action_mask)
    if algorithm.name == "gigpo":
        advantages = advantages + algorithm.anchor_weight * anchor_advantages(
            rewards,
            action_mask=rows.action_mask,
            turn_ids=rows.turn_ids,
            segment_ids=rows.segment_ids,
            anchor_ids=rows.anchor_ids,
            discounts=_discounts(rows, algorithm),
            scale_by_std=algorithm.scale_by_std,
        )
    return Credit(advantages=advantages, returns=spread(earned, rows.segment_ids, rows.action_mask))


def _ppo(rows: TokenBatch, rewards: jax.Array, values: jax.Array, algorithm: AlgorithmSection) -> Credit:
    bootstrap = rows.bootstrap_mask & algorithm.bootstrap_truncated
    places = {"action_mask": rows.action_mask, "segment_ids": rows.segment_ids, "bootstrap_mask": bootstrap}
    if algorithm.credit == "turn":
        return Credit(
            *turn_gae(rewards, values, turn_ids=rows.turn_ids, gamma=algorithm.gamma, lam=algorithm.lam, **places)
        )
    if algorithm.credit == "bilevel":
        return Credit(
            *bilevel_gae(
                rewards,
                values,
                turn_ids=rows.turn_ids,
                gamma_turn=algorithm.gamma,
                gamma_token=algorithm.gamma_token,
                lam=algorithm.lam,
                **places,
            )
        )
    discounts = _discounts(rows, algorithm)
    lam = algorithm.lam
    if algorithm.lam_adaptive > 0:
        lam = adaptive_lambda(rows.action_mask, rows.segment_ids, rows.group_ids.shape[0], alpha=algorithm.lam_adaptive)
    advantages, returns = gae(rewards, values, discounts=discounts, lam=lam, **places)
    if algorithm.lam_critic is not None or algorithm.lam_adaptive > 0:
        lam_critic = algorithm.lam if algorithm.lam_critic is None else algorithm.lam_critic
        _, returns = gae(rewards, values, discounts=discounts, lam=lam_critic, **places)
    return Credit(advantages=advantages, returns=returns)


def _reinforce_plus_plus(rows: TokenBatch, rewards: jax.Array, algorithm: AlgorithmSection) -> Credit:
    """Reward to go of each token, or, with the baseline, the episode's return less the mean of its task's plays."""
    if algorithm.group_baseline:
        earned = episode_returns(rewards, rows.action_mask, rows.segment_ids, rows.group_ids.shape[0])
        centred = group_normalised(earned, rows.group_ids, scale_by_std=False)
        advantages, returns = (spread(part, rows.segment_ids, rows.action_mask) for part in (centred, earned))
        return Credit(advantages=advantages, returns=returns)
    returns = reward_to_go(
        rewards,
        discounts=_discounts(rows, algorithm),
        action_mask=rows.action_mask,
        segment_ids=rows.segment_ids,
    )
    return Credit(advantages=returns, returns=returns)


def _discounts(rows: TokenBatch, algorithm: AlgorithmSection) -> jax.Array:
    if algorithm.discount_per == "turn":
        return turn_discounts(algorithm.gamma, rows.action_mask, rows.turn_ids, rows.segment_ids)
    return token_discounts(algorithm.gamma, rows.action_mask)
