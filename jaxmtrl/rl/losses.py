"""Losses per token, and the weights that turn them into one number.

Every loss comes back as f32 [B, T], 0 off the mask; the loss of a batch is `sum(weights * per_token)` with weights
from `loss_weights`, whose denominators count the whole batch. Sums over its pieces then add up to the same number,
however the batch is cut. Whatever masked-out entries hold, NaN included, neither values nor gradients notice.
"""

from __future__ import annotations

from typing import Literal

import chex
import jax
import jax.numpy as jnp
from jax import Array

from jaxmtrl.rl.episodes import spread
from jaxmtrl.rl.masked import masked_bucket_count, masked_bucket_mean

# exp(20) is 5e8: far outside any clip range and still finite in f32, squared as well.
MAX_LOG_RATIO = 20.0

LossMean = Literal["token", "sequence_token_mean", "sequence_token_sum", "constant"]
KlKind = Literal["k1", "k2", "k3"]


def log_ratio(logprobs: Array, fixed_logprobs: Array, mask: Array) -> Array:
    """logprobs - fixed_logprobs, clamped to +-20 without gradient beyond; f32 [B, T], 0 off the mask.

    Args:
        logprobs: f32 [B, T]; the gradient flows through it.
        fixed_logprobs: f32 [B, T], held fixed.
        mask: bool [B, T].
    """
    logprobs, fixed_logprobs = _kept(mask, logprobs, fixed_logprobs)
    return jnp.clip(logprobs - jax.lax.stop_gradient(fixed_logprobs), -MAX_LOG_RATIO, MAX_LOG_RATIO)


def policy_ratio(logprobs: Array, old_logprobs: Array, mask: Array) -> Array:
    """How much likelier a token is under the policy than under the old one: exp(logprobs - old_logprobs).

    Args:
        logprobs: f32 [B, T], of the policy; the gradient flows through it.
        old_logprobs: f32 [B, T], held fixed.
        mask: bool [B, T].

    Returns:
        f32 [B, T], 0 off the mask. The log-ratio is clamped to +-20, without gradient beyond.
    """
    return jnp.where(mask, jnp.exp(log_ratio(logprobs, old_logprobs, mask)), 0.0)


def pooled_logprobs(logprobs: Array, old_logprobs: Array, mask: Array, bucket_ids: Array, num_buckets: int) -> Array:
    """Log-probs whose ratio to the old ones is the same all over a bucket: the geometric mean of its tokens' ratios.

        pooled_t = old_t + mean over the bucket of (logprobs - old)

    in value, while the gradient of pooled_t is that of logprobs_t alone. So `policy_ratio`, `clipped_policy_loss` and
    `clip_fraction` of (pooled, old) are those of GSPO, whose ratio and clip are an episode's. Weighted 1 / N_e within
    an episode of N_e tokens and one advantage, the loss has the value and the gradient of
    -min(s A, clip(s) A), s = exp(mean of log-ratios); with advantages that differ by token each token pulls by its own.

    Args:
        logprobs: f32 [B, T], of the policy; the gradient flows through it.
        old_logprobs: f32 [B, T], held fixed.
        mask: bool [B, T]; the mean is over these tokens of the bucket.
        bucket_ids: i32 [B, T], in 0..num_buckets-1 on the mask: `segment_ids` for episodes, `turns.turn_buckets` for
            turns. A bucket must not be cut over several calls.
        num_buckets: fixed when compiled.

    Returns:
        f32 [B, T], 0 off the mask; exactly the old log-probs where the policy is the old one.

    Source: Zheng et al. 2025 (GSPO), https://arxiv.org/abs/2507.18071.
    """
    logprobs, old_logprobs = _kept(mask, logprobs, old_logprobs)
    means = masked_bucket_mean(logprobs - old_logprobs, mask, bucket_ids, num_buckets)
    pooled = jax.lax.stop_gradient(old_logprobs + spread(means, bucket_ids, mask))
    return pooled + (logprobs - jax.lax.stop_gradient(logprobs))


def clipped_policy_loss(
    logprobs: Array,
    old_logprobs: Array,
    advantages: Array,
    mask: Array,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float = 0.0,
) -> Array:
    """PPO's pessimistic surrogate per token: -min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A).

    Args:
        logprobs: f32 [B, T], of the policy; the gradient flows through it.
        old_logprobs, advantages: f32 [B, T], held fixed.
        mask: bool [B, T].
        clip_low, clip_high: >= 0; how far below and above 1 the ratio counts.
        dual_clip: c > 1; where A < 0 the loss is at most -c A, against huge ratios on bad tokens. 0 turns it off.

    Returns:
        f32 [B, T], 0 off the mask. At ratio 1 the gradient is the plain policy gradient.

    Sources: Schulman et al. 2017, https://arxiv.org/abs/1707.06347; dual clip: Ye et al. 2020,
    https://arxiv.org/abs/1912.09729; unequal bounds: Yu et al. 2025, https://arxiv.org/abs/2503.14476.
    """
    plain, clipped, fixed = _surrogates(logprobs, old_logprobs, advantages, mask, clip_low, clip_high)
    # `where` rather than `minimum`, which would halve the gradient of each side of a tie.
    loss = -jnp.where(plain <= clipped, plain, clipped)
    if dual_clip > 0:
        bound = -dual_clip * fixed
        loss = jnp.where((fixed < 0) & (loss > bound), bound, loss)
    return jnp.where(mask, loss, 0.0)


def clip_fraction(
    logprobs: Array, old_logprobs: Array, advantages: Array, mask: Array, *, clip_low: float, clip_high: float
) -> Array:
    """Which tokens the clip silences: 1 where the clipped side is the smaller one; f32 [B, T], 0 elsewhere.

    Per token like the losses, so that it is averaged like them: with the weights of `loss_weights(mean="token")` the
    sum is the fraction of action tokens. Arguments as for `clipped_policy_loss`.
    """
    plain, clipped, _ = _surrogates(logprobs, old_logprobs, advantages, mask, clip_low, clip_high)
    return jnp.where(mask & (clipped < plain), 1.0, 0.0)


def clipped_value_loss(values: Array, old_values: Array, returns: Array, mask: Array, *, value_clip: float) -> Array:
    """Squared error of the critic, pessimistic about moves away from its old value.

        max((V - R)^2, (clip(V, V_old - value_clip, V_old + value_clip) - R)^2) / 2

    Args:
        values: f32 [B, T], of the critic; the gradient flows through it.
        old_values, returns: f32 [B, T], held fixed.
        mask: bool [B, T].
        value_clip: > 0, in units of the return; 0 turns the clip off.

    Returns:
        f32 [B, T], 0 off the mask.
    """
    values, old_values, returns = _kept(mask, values, old_values, returns)
    old_values, returns = jax.lax.stop_gradient((old_values, returns))
    loss = jnp.square(values - returns)
    if value_clip > 0:
        near = old_values + jnp.clip(values - old_values, -value_clip, value_clip)
        clipped = jnp.square(near - returns)
        loss = jnp.where(loss >= clipped, loss, clipped)
    return jnp.where(mask, 0.5 * loss, 0.0)


def kl_estimate(logprobs: Array, ref_logprobs: Array, mask: Array, *, kind: KlKind) -> Array:
    """Estimates KL(policy || reference) from each sampled token; with d = logprobs - ref_logprobs:

        k1 = d                  unbiased; negative at times; useless as a loss (its expected gradient is 0)
        k2 = d^2 / 2            biased; as a loss, on-policy, it has the gradient of the reverse KL
        k3 = exp(-d) - 1 + d    unbiased, never negative; as a loss its gradient is not that of the reverse KL

    Args:
        logprobs: f32 [B, T], of the policy that sampled the tokens; the gradient flows through it.
        ref_logprobs: f32 [B, T], held fixed.
        mask: bool [B, T].
        kind: which of the three.

    Returns:
        f32 [B, T], 0 off the mask; exactly 0, value and gradient of k2 and k3, where policy and reference agree.
        d is clamped to +-20.

    Source: Schulman 2020, http://joschu.net/blog/kl-approx.html.
    """
    difference = log_ratio(logprobs, ref_logprobs, mask)
    if kind == "k1":
        return difference
    if kind == "k2":
        return 0.5 * jnp.square(difference)
    if kind == "k3":
        return jnp.expm1(-difference) + difference
    raise ValueError(f"kind must be k1, k2 or k3, got {kind!r}")


def kl_loss(logprobs: Array, ref_logprobs: Array, mask: Array, *, kind: KlKind) -> Array:
    """The KL to the reference as a loss: the value of `kl_estimate` of any kind, and always the gradient of k2.

    The gradient of the KL is E[d * grad logprobs]: its other term, E[grad logprobs], is 0. Token by token that is the
    slope of k2 = d^2 / 2. The slope of k1 is the term that averages to 0, and that of k3, 1 - exp(-d), is another
    divergence's. So the kind says what is reported and k2 what is learnt.

    Args:
        logprobs: f32 [B, T], of the policy, near the one that sampled the tokens; the gradient flows through it.
        ref_logprobs: f32 [B, T], held fixed.
        mask: bool [B, T].
        kind: as for `kl_estimate`.

    Returns:
        f32 [B, T], 0 off the mask.

    Source: Liu et al. 2025, "Rethinking KL Regularization in RLHF", https://arxiv.org/abs/2510.01555.
    """
    value = kl_estimate(logprobs, ref_logprobs, mask, kind=kind)
    slope = kl_estimate(logprobs, ref_logprobs, mask, kind="k2")
    return jax.lax.stop_gradient(value) + (slope - jax.lax.stop_gradient(slope))


def kl_penalised_rewards(
    rewards: Array,
    logprobs: Array,
    ref_logprobs: Array,
    mask: Array,
    *,
    kl_coef: Array | float,
    kind: KlKind = "k1",
) -> Array:
    """Takes the drift from the reference out of the reward: r_t - kl_coef * kl_t on every action token.

    In the reward the KL is a cost of acting like any other: it goes through the advantages, and no gradient flows
    through the penalty itself. There k1, unbiased and signed, is the one whose expected gradient is that of the KL.

    Args:
        rewards: f32 [B, T].
        logprobs, ref_logprobs: f32 [B, T], of the policy before the update and of the reference; both held fixed.
        mask: bool [B, T], action tokens.
        kl_coef: >= 0; a float, or f32 [] where it changes from one update to the next.
        kind: as for `kl_estimate`.

    Returns:
        f32 [B, T], 0 off the mask.
    """
    (rewards,) = _kept(mask, rewards)
    penalty = jax.lax.stop_gradient(kl_estimate(logprobs, ref_logprobs, mask, kind=kind))
    return rewards - kl_coef * penalty


def loss_weights(
    action_mask: Array, segment_ids: Array, *, num_episodes: int, mean: LossMean, constant: int = 1
) -> Array:
    """What each token's loss counts; the loss is sum(weights * per_token), with denominators of the whole batch.

    With N action tokens in all, N_e in episode e, and M episodes that have any:

        token                1 / N               the mean over tokens; long episodes weigh more
        sequence_token_mean  1 / (M N_e)         the mean over episodes of their token means; episodes weigh the same
        sequence_token_sum   1 / M               the mean over episodes of their token sums
        constant             1 / (M constant)    the same in the size of a mean, with nothing that depends on lengths
                                                 (Dr. GRPO)

    Call it on everything one optimizer step learns from, then cut the weights along with the rows.

    Args:
        action_mask: bool [B, T].
        segment_ids: i32 [B, T], in 0..E-1 on action tokens; an episode may lie in several rows.
        num_episodes: E.
        mean: one of the four.
        constant: > 0, in tokens, say the most an episode can have; read if `mean` is constant.

    Returns:
        f32 [B, T], 0 off-action; all 0 if there is no action token.

    Raises:
        ValueError: for another mean.
    """
    tokens = masked_bucket_count(action_mask, segment_ids, num_episodes)  # [E]
    episodes = jnp.maximum(jnp.sum(tokens > 0), 1)
    if mean == "token":
        weights = 1.0 / jnp.maximum(jnp.sum(action_mask), 1)
    elif mean == "sequence_token_mean":
        weights = spread(1.0 / (episodes * jnp.maximum(tokens, 1.0)), segment_ids, action_mask)
    elif mean == "sequence_token_sum":
        weights = 1.0 / episodes
    elif mean == "constant":
        weights = 1.0 / (episodes * constant)
    else:
        means = "token, sequence_token_mean, sequence_token_sum or constant"
        raise ValueError(f"mean must be {means}, got {mean!r}")
    return jnp.where(action_mask, weights, 0.0)


def _surrogates(
    logprobs: Array, old_logprobs: Array, advantages: Array, mask: Array, clip_low: float, clip_high: float
) -> tuple[Array, Array, Array]:
    """The plain and the clipped surrogate, and the advantages held fixed; f32 [B, T], finite off the mask."""
    (advantages,) = _kept(mask, advantages)
    advantages = jax.lax.stop_gradient(advantages)
    ratio = jnp.exp(log_ratio(logprobs, old_logprobs, mask))
    return ratio * advantages, jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high) * advantages, advantages


def _kept(mask: Array, *arrays: Array) -> tuple[Array, ...]:
    """The arrays in f32 with 0 off the mask, so that nothing computed from masked entries is NaN, forward or back."""
    chex.assert_equal_shape([mask, *arrays])
    chex.assert_type(mask, bool)
    return tuple(jnp.where(mask, jnp.asarray(array, jnp.float32), 0.0) for array in arrays)
