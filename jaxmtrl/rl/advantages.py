"""Credit over time: from rewards and values to one advantage for every token that the policy sampled.

Works on packed rows: a row of [B, T] may hold several episodes back to back, told apart by `segment_ids`. The steps
of the decision process are action tokens only. The successor of an action token is the next action token of the same
episode, across whatever was read in between; what non-action columns hold, NaN included, changes nothing.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array

# Columns turned to [width, B] at a time. Turning whole arrays costs a CPU several times the scan; pieces stay in cache.
_PIECE = 64
_Carry = tuple[Array, Array, Array]


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
        discounts: f32 [B, T], gamma of the step out of token t: see `token_discounts` and `turns.turn_discounts`.
        lam: in [0, 1]; a float, or f32 [B, T] of the step out of token t.

    Returns:
        advantages and returns, f32 [B, T], 0 off-action.

    Source: Schulman et al. 2015, https://arxiv.org/abs/1506.02438.
    """
    lam = jnp.broadcast_to(jnp.asarray(lam, jnp.float32), jnp.shape(rewards))
    inputs = (rewards, values, discounts, lam, action_mask, bootstrap_mask, segment_ids)
    chex.assert_rank(rewards, 2)
    chex.assert_equal_shape(inputs)
    chex.assert_type([action_mask, bootstrap_mask], bool)
    rows, length = jnp.shape(rewards)

    def piece(carry: _Carry, at: Array | int, width: int) -> tuple[_Carry, Array]:
        cut = [jax.lax.dynamic_slice_in_dim(jnp.asarray(x), at, width, axis=1) for x in inputs]  # [B, width]
        columns = tuple(x.T for x in _read(*cut))  # [width, B]
        carry, advantages = jax.lax.scan(_gae_step, carry, columns, reverse=True)
        return carry, advantages.T

    def body(number: Array, state: tuple[_Carry, Array]) -> tuple[_Carry, Array]:
        carry, advantages = state
        at = whole - (number + 1) * _PIECE
        carry, part = piece(carry, at, _PIECE)
        return carry, jax.lax.dynamic_update_slice_in_dim(advantages, part, at, axis=1)

    whole = length - length % _PIECE  # what does not fill a piece stands at the end, and goes first
    carry = (jnp.zeros(rows, jnp.float32), jnp.zeros(rows, jnp.float32), jnp.full(rows, -1, jnp.int32))
    advantages = jnp.zeros((rows, length), jnp.float32)
    if whole < length:
        carry, part = piece(carry, whole, length - whole)
        advantages = jax.lax.dynamic_update_slice_in_dim(advantages, part, whole, axis=1)
    if whole > 0:
        _, advantages = jax.lax.fori_loop(0, whole // _PIECE, body, (carry, advantages))
    return advantages, jnp.where(action_mask, advantages + jnp.asarray(values, jnp.float32), 0.0)


def _read(
    rewards: Array, values: Array, discounts: Array, lam: Array, is_action: Array, is_bootstrap: Array, segment: Array
) -> tuple[Array, ...]:
    """The inputs in f32 with 0 where they are not read."""
    return (
        jnp.where(is_action, rewards.astype(jnp.float32), 0.0),
        jnp.where(is_action | is_bootstrap, values.astype(jnp.float32), 0.0),
        jnp.where(is_action, discounts.astype(jnp.float32), 0.0),
        jnp.where(is_action, lam, 0.0),
        is_action,
        is_bootstrap,
        segment.astype(jnp.int32),
    )


def _gae_step(carry: _Carry, column: tuple[Array, ...]) -> tuple[_Carry, Array]:
    next_value, next_advantage, next_segment = carry  # [B] each
    reward, value, discount, lam, is_action, is_bootstrap, segment = column  # [B] each
    # Padding belongs to no episode and carries through like an observation.
    inside = segment >= 0
    ends = inside & (segment != next_segment)
    next_value = jnp.where(ends, 0.0, next_value)
    next_advantage = jnp.where(ends, 0.0, next_advantage)

    advantage = reward + discount * next_value - value + discount * lam * next_advantage
    next_value = jnp.where(is_action | is_bootstrap, value, next_value)
    next_advantage = jnp.where(is_action, advantage, jnp.where(is_bootstrap, 0.0, next_advantage))
    carry = (next_value, next_advantage, jnp.where(inside, segment, next_segment))
    return carry, jnp.where(is_action, advantage, 0.0)


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
