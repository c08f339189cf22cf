"""How much play by older weights counts: importance weights of tokens or of whole episodes."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxmtrl.rl.episodes import spread
from jaxmtrl.rl.losses import MAX_LOG_RATIO, log_ratio
from jaxmtrl.rl.masked import masked_bucket_mean, masked_bucket_sum

WeightLevel = Literal["token", "sequence", "sequence_mean"]
Beyond = Literal["truncate", "mask"]


def importance_weights(
    logprobs: Array,
    behaviour_logprobs: Array,
    action_mask: Array,
    segment_ids: Array,
    num_episodes: int,
    *,
    cap: float,
    level: WeightLevel,
    beyond: Beyond,
    floor: float = 0.0,
) -> tuple[Array, Array]:
    """The likelihood ratio π / μ of what a sampler μ played under the policy π that is about to be updated.

        token          its own π / μ; biased where earlier tokens of the episode drifted, but of small variance
        sequence       the product over the episode's action tokens; unbiased, and soon 0 or huge in long episodes
        sequence_mean  the geometric mean over them: how far the episode drifted a token, at any length

    Weights above `cap` are cut to it (truncate), or what has them is left out of the loss, and so is what has less
    than `floor` (mask). Truncation keeps every token's direction; masking drops what the policy would hardly have
    played.

    Args:
        logprobs: f32 [B, T], of π at the sampling temperature.
        behaviour_logprobs: f32 [B, T], of μ.
        action_mask: bool [B, T].
        segment_ids: i32 [B, T], in 0..E-1 on action tokens.
        num_episodes: E.
        cap: largest weight, at least 1.
        level, beyond: as above. Weights of episodes leave out whole episodes.
        floor: in [0, 1]; read if `beyond` is mask.

    Returns:
        weights, f32 [B, T], without gradient, 0 off-action and where left out; and which action tokens are kept, bool
        [B, T]. Log-ratios are clamped to +-20, each token's and an episode's sum.

    Raises:
        ValueError: for another level or another beyond.

    Sources: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561 (truncated, a token at a time); Yao et al. 2025,
    https://fengyao.notion.site/off-policy-rl (sampler and learner that differ).
    """
    log_weights = log_ratio(logprobs, behaviour_logprobs, action_mask)
    if level in ("sequence", "sequence_mean"):
        over_episodes = masked_bucket_sum if level == "sequence" else masked_bucket_mean
        of_episodes = over_episodes(log_weights, action_mask, segment_ids, num_episodes)
        log_weights = spread(jnp.clip(of_episodes, -MAX_LOG_RATIO, MAX_LOG_RATIO), segment_ids, action_mask)
    elif level != "token":
        raise ValueError(f"level must be token, sequence or sequence_mean, got {level!r}")
    weights = jax.lax.stop_gradient(jnp.exp(log_weights))
    if beyond == "truncate":
        return jnp.where(action_mask, jnp.minimum(weights, cap), 0.0), jnp.asarray(action_mask)
    if beyond == "mask":
        kept = action_mask & (weights >= floor) & (weights <= cap)
        return jnp.where(kept, weights, 0.0), kept
    raise ValueError(f"beyond must be truncate or mask, got {beyond!r}")
