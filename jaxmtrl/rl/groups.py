"""Credit by comparison: with the other plays of the same task, and with other visits of the same state.

None of it needs a critic. What was never different teaches exactly nothing, and what has no peer has advantage 0.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array

from jaxmtrl.rl.advantages import reward_to_go
from jaxmtrl.rl.episodes import spread
from jaxmtrl.rl.masked import masked_bucket_count, masked_bucket_mean, masked_bucket_sum
from jaxmtrl.rl.turns import spread_from_starts, turn_starts


def leave_one_out(returns: Array, group_ids: Array) -> Array:
    """Return minus the mean return of the other plays of the same task: A_i = R_i - mean_{j != i} R_j (RLOO).

    Args:
        returns: f32 [E].
        group_ids: i32 [E], which task an episode played; any numbers >= 0 in any order. -1 is no episode (failed or
            padding): it has advantage 0 and is nobody's peer.

    Returns:
        f32 [E]; 0 for a group of one, which has no peers, and exactly 0 in a group of equal returns.

    Source: Ahmadian et al. 2024, https://arxiv.org/abs/2402.14740.
    """
    returns, same, count, mean = _group_means(returns, group_ids)
    peers = jnp.maximum(count - 1, 1)
    return jnp.where(_differs(returns, same), (returns - mean) * count / peers, 0.0)


def group_normalised(returns: Array, group_ids: Array, *, scale_by_std: bool, eps: float = 1e-6) -> Array:
    """Return minus its group's mean, over the group's *sample* standard deviation (ddof 1) plus `eps` (GRPO).

    Args:
        returns: f32 [E].
        group_ids: i32 [E], as for `leave_one_out`.
        scale_by_std: False leaves the division out (Dr. GRPO): it favours tasks whose outcome is rarely different.
        eps: added to the standard deviation.

    Returns:
        f32 [E]; 0 for a group of one, and exactly 0 in a group of equal returns.

    Sources: Shao et al. 2024, https://arxiv.org/abs/2402.03300; Liu et al. 2025, https://arxiv.org/abs/2503.20783.
    """
    returns, same, count, mean = _group_means(returns, group_ids)
    differs = _differs(returns, same)
    centred = returns - mean
    if scale_by_std:
        squares = jnp.sum(jnp.where(same, jnp.square(returns[None, :] - mean[:, None]), 0.0), axis=1)
        centred = centred / (_sample_std(squares, count, differs) + eps)
    return jnp.where(differs, centred, 0.0)


def uniform_groups(returns: Array, group_ids: Array) -> Array:
    """Which episodes are of a group whose plays all earned the same, so that comparing them says nothing.

    Args:
        returns: f32 [E].
        group_ids: i32 [E], as for `leave_one_out`.

    Returns:
        bool [E]; True for a group of one, False for -1, which is of no group.
    """
    returns, same, _, _ = _group_means(returns, group_ids)
    return (jnp.asarray(group_ids) >= 0) & ~_differs(returns, same)


def anchor_advantages(
    rewards: Array,
    *,
    action_mask: Array,
    turn_ids: Array,
    segment_ids: Array,
    anchor_ids: Array,
    discounts: Array,
    scale_by_std: bool,
    eps: float = 1e-6,
) -> Array:
    """Compares turns that began in the same state of the same task (GiGPO's step advantage).

    With G_k the discounted sum of the episode's rewards from turn k on:

        A_k = G_k - mean of G over the turns with the same anchor

    over the *sample* standard deviation of these G plus `eps` if `scale_by_std`. A turn counts once, however many
    tokens it takes. An episode that returns to a state enters its bucket once a visit: every visit is a decision taken
    there, and what came of it differs.

    Args:
        rewards: f32 [B, T], read on action tokens only.
        action_mask: bool [B, T].
        turn_ids: i32 [B, T], index of the turn within its episode, read on action tokens.
        segment_ids: i32 [B, T], -1 on padding.
        anchor_ids: i32 [B, T], read on each turn's first action token: a number in 0..B*T-1 for the task and the state
            that the turn began in, or -1 where that is not known.
        discounts: f32 [B, T], of `turn_discounts`.
        scale_by_std: divide by the deviation.
        eps: added to the standard deviation.

    Returns:
        f32 [B, T], A_k on every action token of turn k, 0 off-action; 0 for an anchor of -1, for one that a single
        turn has, and exactly 0 where all turns of an anchor have the same G.

    Source: Feng et al. 2025 (GiGPO), https://arxiv.org/abs/2505.10978.
    """
    chex.assert_equal_shape([rewards, action_mask, anchor_ids])
    to_go = reward_to_go(rewards, discounts=discounts, action_mask=action_mask, segment_ids=segment_ids)
    anchor_ids = jnp.asarray(anchor_ids)
    compared = turn_starts(action_mask, turn_ids, segment_ids) & (anchor_ids >= 0)
    where = (compared, anchor_ids, compared.size)  # each turn once, at its first token

    def own(per_anchor: Array) -> Array:
        return spread(per_anchor, anchor_ids, compared)

    centred = to_go - own(masked_bucket_mean(to_go, *where))
    bucket = jnp.where(compared, anchor_ids, compared.size).ravel()
    largest = jax.ops.segment_max(to_go.ravel(), bucket, num_segments=compared.size + 1)
    smallest = jax.ops.segment_min(to_go.ravel(), bucket, num_segments=compared.size + 1)
    # As for groups: in a bucket of equals the rounding of the mean is all that is left.
    differs = compared & (own(largest) > own(smallest))
    if scale_by_std:
        squares = own(masked_bucket_sum(jnp.square(centred), *where))
        centred = centred / (_sample_std(squares, own(masked_bucket_count(*where)), differs) + eps)
    return spread_from_starts(jnp.where(differs, centred, 0.0), action_mask, turn_ids, segment_ids)


def _group_means(returns: Array, group_ids: Array) -> tuple[Array, Array, Array, Array]:
    """Returns [E] with 0 off-group, who is in whose group [E, E], and each episode's group size and mean [E].

    Pairs are compared rather than sums kept by group, so that group ids need no upper bound; sums are not matrix
    products, which a TPU would round to bf16.
    """
    chex.assert_rank(returns, 1)
    chex.assert_equal_shape([returns, group_ids])
    group_ids = jnp.asarray(group_ids)
    returns = jnp.where(group_ids >= 0, jnp.asarray(returns, jnp.float32), 0.0)
    same = (group_ids[:, None] == group_ids[None, :]) & (group_ids >= 0)[:, None]  # [E, E]
    count = jnp.sum(same, axis=1)
    mean = jnp.sum(jnp.where(same, returns[None, :], 0.0), axis=1) / jnp.maximum(count, 1)
    return returns, same, count, mean


def _differs(returns: Array, same: Array) -> Array:
    """bool [E]: the episode's group holds two different returns.

    Where it does not, the rounding of the mean is all that is left, and a division by a tiny deviation would turn it
    into advantages of some hundredths.
    """
    return jnp.any(same & (returns[None, :] != returns[:, None]), axis=1)


def _sample_std(squares: Array, count: Array, differs: Array) -> Array:
    """Standard deviation (ddof 1) from summed squared deviations; 1 / sqrt(count - 1) or so where nothing differs."""
    squares = jnp.where(differs, squares, 1.0)  # the square root has no finite slope at 0
    return jnp.sqrt(squares / jnp.maximum(count - 1, 1))
