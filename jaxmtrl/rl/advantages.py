"""Credit: from rewards and values to one advantage for every token that the policy sampled.

Works on packed rows: a row of [B, T] may hold several episodes back to back, told apart by `segment_ids`. The steps
of the decision process are action tokens only. The successor of an action token is the next action token of the same
episode, across whatever was read in between; what non-action columns hold, NaN included, changes nothing.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array


def gae(
    rewards: Array,
    values: Array,
    *,
    action_mask: Array,
    segment_ids: Array,
    bootstrap_mask: Array,
    discounts: Array,
    lam: Array | float,
) -> tuple[Array, Array]:
    """Generalised advantage estimation over action tokens.

    With t' the action token after t in the same episode:

        delta_t = r_t + gamma_t V_t' - V_t
        A_t     = delta_t + gamma_t lam_t A_t'
        R_t     = A_t + V_t

    After an episode's last action token V_t' and A_t' are 0, unless a bootstrap column follows: then V_t' is the
    value there, which stands for what a limit cut off.

    Args:
        rewards: f32 [B, T], read on action tokens only.
        values: f32 [B, T], value of the state before token t is chosen; read on action and bootstrap columns only.
        action_mask: bool [B, T].
        segment_ids: i32 [B, T], -1 on padding; the columns of an episode are contiguous but for padding.
        bootstrap_mask: bool [B, T], True on the column after a truncated episode; never on an action token.
        discounts: f32 [B, T], gamma of the step out of token t: see `token_discounts` and `turn_discounts`.
        lam: in [0, 1]; a float, or f32 [B, T] of the step out of token t.

    Returns:
        advantages and returns, f32 [B, T], 0 off-action.

    Source: Schulman et al. 2015, https://arxiv.org/abs/1506.02438.
    """
    lam = jnp.broadcast_to(jnp.asarray(lam, jnp.float32), jnp.shape(rewards))
    chex.assert_rank(rewards, 2)
    chex.assert_equal_shape([rewards, values, action_mask, segment_ids, bootstrap_mask, discounts, lam])
    chex.assert_type([action_mask, bootstrap_mask], bool)

    rewards = jnp.where(action_mask, jnp.asarray(rewards, jnp.float32), 0.0)
    values = jnp.where(action_mask | bootstrap_mask, jnp.asarray(values, jnp.float32), 0.0)
    discounts = jnp.where(action_mask, jnp.asarray(discounts, jnp.float32), 0.0)
    lam = jnp.where(action_mask, lam, 0.0)

    def step(carry: tuple[Array, Array, Array], column: tuple[Array, ...]) -> tuple[tuple[Array, Array, Array], Array]:
        next_value, next_advantage, next_segment = carry  # [B] each
        reward, value, discount, column_lam, is_action, is_bootstrap, segment = column  # [B] each
        # Padding belongs to no episode and carries through like an observation.
        inside = segment >= 0
        ends = inside & (segment != next_segment)
        next_value = jnp.where(ends, 0.0, next_value)
        next_advantage = jnp.where(ends, 0.0, next_advantage)

        advantage = reward + discount * next_value - value + discount * column_lam * next_advantage
        next_value = jnp.where(is_action | is_bootstrap, value, next_value)
        next_advantage = jnp.where(is_action, advantage, jnp.where(is_bootstrap, 0.0, next_advantage))
        carry = (next_value, next_advantage, jnp.where(inside, segment, next_segment))
        return carry, jnp.where(is_action, advantage, 0.0)

    rows = rewards.shape[0]
    start = (jnp.zeros(rows, jnp.float32), jnp.zeros(rows, jnp.float32), jnp.full(rows, -1, jnp.int32))
    columns = (rewards, values, discounts, lam, action_mask, bootstrap_mask, jnp.asarray(segment_ids, jnp.int32))
    _, advantages = jax.lax.scan(step, start, jax.tree.map(jnp.transpose, columns), reverse=True)
    advantages = advantages.T  # [T, B] -> [B, T]
    return advantages, jnp.where(action_mask, advantages + values, 0.0)


def reward_to_go(rewards: Array, *, discounts: Array, action_mask: Array, segment_ids: Array) -> Array:
    """Discounted sum of an episode's rewards from each action token on: G_t = r_t + gamma_t G_t'.

    Args:
        rewards: f32 [B, T], read on action tokens only.
        discounts: f32 [B, T], gamma of the step out of token t.
        action_mask: bool [B, T].
        segment_ids: i32 [B, T], -1 on padding.

    Returns:
        f32 [B, T], 0 off-action. A truncated episode counts what it earned and no more.
    """
    nothing = jnp.zeros(jnp.shape(rewards), jnp.float32)
    no_bootstrap = jnp.zeros(jnp.shape(rewards), bool)
    sums, _ = gae(
        rewards,
        nothing,
        action_mask=action_mask,
        segment_ids=segment_ids,
        bootstrap_mask=no_bootstrap,
        discounts=discounts,
        lam=1.0,
    )
    return sums


def token_discounts(gamma: float, action_mask: Array) -> Array:
    """The same discount out of every action token; f32 [B, T], 0 off-action. Long answers then cost more."""
    chex.assert_type(action_mask, bool)
    return jnp.where(action_mask, jnp.float32(gamma), 0.0)


def turn_discounts(gamma: float, action_mask: Array, turn_ids: Array, segment_ids: Array) -> Array:
    """Discounts once a turn: `gamma` out of a turn's last action token, 1 out of its other action tokens.

    Turns are told apart by their ids. Rewards cannot do it: a turn that earned 0 is still a turn.

    Args:
        gamma: in [0, 1].
        action_mask: bool [B, T].
        turn_ids: i32 [B, T], index of the turn within its episode, read on action tokens.
        segment_ids: i32 [B, T].

    Returns:
        f32 [B, T], 0 off-action.
    """
    chex.assert_rank(action_mask, 2)
    chex.assert_equal_shape([action_mask, turn_ids, segment_ids])
    chex.assert_type(action_mask, bool)
    rows, length = action_mask.shape
    columns = jnp.where(action_mask, jnp.arange(length), length)
    # Column of the next action token, `length` where there is none.
    following = jax.lax.cummin(columns, axis=1, reverse=True)[:, 1:]
    following = jnp.concatenate([following, jnp.full((rows, 1), length, following.dtype)], axis=1)
    at = jnp.minimum(following, length - 1)
    same_turn = jnp.take_along_axis(jnp.asarray(turn_ids), at, axis=1) == turn_ids
    same_episode = jnp.take_along_axis(jnp.asarray(segment_ids), at, axis=1) == segment_ids
    inside_turn = (following < length) & same_turn & same_episode
    return jnp.where(action_mask, jnp.where(inside_turn, 1.0, jnp.float32(gamma)), 0.0)


def episode_returns(rewards: Array, action_mask: Array, segment_ids: Array, num_episodes: int) -> Array:
    """Undiscounted sum of each episode's rewards on its action tokens.

    Args:
        rewards: f32 [B, T].
        action_mask: bool [B, T].
        segment_ids: i32 [B, T], in 0..E-1 on action tokens.
        num_episodes: E.

    Returns:
        f32 [E]; 0 for an index that no action token carries.
    """
    chex.assert_equal_shape([rewards, action_mask, segment_ids])
    chex.assert_type(action_mask, bool)
    kept = jnp.where(action_mask, jnp.asarray(rewards, jnp.float32), 0.0)
    # One bucket more than there are episodes takes what belongs to none of them.
    bucket = jnp.where(action_mask, segment_ids, num_episodes)
    return jax.ops.segment_sum(kept.ravel(), bucket.ravel(), num_segments=num_episodes + 1)[:num_episodes]


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
        squares = jnp.where(differs, squares, 1.0)  # the square root has no finite slope at 0
        centred = centred / (jnp.sqrt(squares / jnp.maximum(count - 1, 1)) + eps)
    return jnp.where(differs, centred, 0.0)


def spread(per_episode: Array, segment_ids: Array, action_mask: Array) -> Array:
    """Gives every action token its own episode's number.

    Args:
        per_episode: f32 [E].
        segment_ids: i32 [B, T], in 0..E-1 on action tokens.
        action_mask: bool [B, T].

    Returns:
        f32 [B, T], 0 off-action.
    """
    chex.assert_rank([per_episode, segment_ids], [1, 2])
    chex.assert_equal_shape([segment_ids, action_mask])
    chex.assert_type(action_mask, bool)
    per_episode = jnp.asarray(per_episode, jnp.float32)
    return jnp.where(action_mask, per_episode[jnp.where(action_mask, segment_ids, 0)], 0.0)


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
