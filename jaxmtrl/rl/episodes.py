"""Whole episodes in packed rows: where their actions lie, what they sum to, and one number for each of their tokens.

A row of [B, T] may hold several episodes back to back, told apart by `segment_ids`; -1 is padding. What non-action
columns hold, NaN included, changes nothing.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array

from jaxmtrl.rl.masked import masked_bucket_count, masked_bucket_sum


def next_action(action_mask: Array, segment_ids: Array) -> tuple[Array, Array]:
    """The next action token of the same episode, across whatever is read in between.

    Args:
        action_mask: bool [B, T].
        segment_ids: i32 [B, T].

    Returns:
        its column, i32 [B, T], in 0..T-1 even where there is none; and whether there is one, bool [B, T].
    """
    length = _length(action_mask, segment_ids)
    columns = jnp.where(action_mask, jnp.arange(length), length)
    # Of each column itself or behind it, then shifted by one: strictly behind it.
    nearest = jax.lax.cummin(columns, axis=1, reverse=True)
    behind = jnp.pad(nearest[:, 1:], ((0, 0), (0, 1)), constant_values=length)
    at = jnp.minimum(behind, length - 1)
    return at, (behind < length) & (at_columns(segment_ids, at) == segment_ids)


def previous_action(action_mask: Array, segment_ids: Array) -> tuple[Array, Array]:
    """The previous action token of the same episode; arguments and results as for `next_action`."""
    length = _length(action_mask, segment_ids)
    columns = jnp.where(action_mask, jnp.arange(length), -1)
    nearest = jax.lax.cummax(columns, axis=1)
    before = jnp.pad(nearest[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    at = jnp.maximum(before, 0)
    return at, (before >= 0) & (at_columns(segment_ids, at) == segment_ids)


def at_columns(x: Array, columns: Array) -> Array:
    """What `x` [B, T] holds at other columns, i32 [B, T], of the same row."""
    return jnp.take_along_axis(jnp.asarray(x), columns, axis=1)


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
    return masked_bucket_sum(rewards, action_mask, segment_ids, num_episodes)


def spread(per_episode: Array, segment_ids: Array, action_mask: Array) -> Array:
    """Gives every action token its own episode's number.

    Args:
        per_episode: f32 [E].
        segment_ids: i32 [..., B, T], in 0..E-1 on action tokens.
        action_mask: bool [..., B, T].

    Returns:
        f32 [..., B, T], 0 off-action.
    """
    chex.assert_rank(per_episode, 1)
    chex.assert_equal_shape([segment_ids, action_mask])
    chex.assert_type(action_mask, bool)
    per_episode = jnp.asarray(per_episode, jnp.float32)
    return jnp.where(action_mask, per_episode[jnp.where(action_mask, segment_ids, 0)], 0.0)


def adaptive_lambda(action_mask: Array, segment_ids: Array, num_episodes: int, *, alpha: float) -> Array:
    """A lambda for GAE that looks the further ahead the longer the episode: 1 - 1 / (alpha n), n its action tokens.

    A fixed lambda of .95 weighs what happens a hundred tokens on by .006; here the sum of the weights of GAE,
    1 / (1 - lambda), is alpha n, the same share of every episode.

    Args:
        action_mask: bool [B, T].
        segment_ids: i32 [B, T], in 0..E-1 on action tokens.
        num_episodes: E.
        alpha: > 0; .05 in the source.

    Returns:
        f32 [B, T] in [0, 1], 0 off-action; 0 for an episode of 1 / alpha tokens or fewer.

    Source: Yue et al. 2025 (VAPO), https://arxiv.org/abs/2504.05118.
    """
    tokens = masked_bucket_count(action_mask, segment_ids, num_episodes)
    lam = jnp.clip(1.0 - 1.0 / (alpha * jnp.maximum(tokens, 1.0)), 0.0, 1.0)
    return spread(lam, segment_ids, action_mask)


def overlong_penalties(
    action_mask: Array, segment_ids: Array, num_episodes: int, *, start: int, limit: int, penalty: float
) -> Array:
    """What an episode pays for coming near the length limit: penalty * clip((n - start) / (limit - start), 0, 1).

    To be taken from the rewards. It rises in proportion, so that near the limit every token less pays; a fine for
    crossing it would say nothing to an episode that is just short of it.

    Args:
        action_mask: bool [B, T].
        segment_ids: i32 [B, T], in 0..E-1 or -1; n counts all columns of the episode, read and written.
        num_episodes: E.
        start, limit: in tokens, start < limit; where the penalty begins, and where it is whole.
        penalty: >= 0, in units of the reward.

    Returns:
        f32 [B, T], >= 0, on each episode's last action token; 0 elsewhere.

    Raises:
        ValueError: if limit is not above start.

    Source: Yu et al. 2025 (DAPO), https://arxiv.org/abs/2503.14476.
    """
    if limit <= start:
        raise ValueError(f"limit must be above start, got start {start} and limit {limit}")
    _, goes_on = next_action(action_mask, segment_ids)
    columns = masked_bucket_count(jnp.asarray(segment_ids) >= 0, segment_ids, num_episodes)
    share = jnp.clip((columns - start) / (limit - start), 0.0, 1.0)
    return spread(penalty * share, segment_ids, action_mask & ~goes_on)


def _length(action_mask: Array, segment_ids: Array) -> int:
    chex.assert_rank(action_mask, 2)
    chex.assert_equal_shape([action_mask, segment_ids])
    chex.assert_type(action_mask, bool)
    return action_mask.shape[1]
