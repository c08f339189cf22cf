"""Credit by turns: where turns begin and end in packed rows, and advantages whose steps are turns.

A turn is what the policy sampled between two observations. Turns are told apart by their ids; rewards cannot do it,
for a turn that earned 0 is still a turn, and a KL in the reward puts a number on every token.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array

from jaxmtrl.rl.advantages import gae, reward_to_go
from jaxmtrl.rl.episodes import at_columns, next_action, previous_action


def turn_ends(action_mask: Array, turn_ids: Array, segment_ids: Array) -> Array:
    """The last action token of every turn.

    Args:
        action_mask: bool [B, T].
        turn_ids: i32 [B, T], index of the turn within its episode, read on action tokens.
        segment_ids: i32 [B, T], -1 on padding.

    Returns:
        bool [B, T], False off-action.
    """
    return action_mask & ~_in_same_turn(turn_ids, *next_action(action_mask, segment_ids))


def turn_starts(action_mask: Array, turn_ids: Array, segment_ids: Array) -> Array:
    """The first action token of every turn; arguments and result as for `turn_ends`."""
    return action_mask & ~_in_same_turn(turn_ids, *previous_action(action_mask, segment_ids))


def turn_discounts(gamma: float, action_mask: Array, turn_ids: Array, segment_ids: Array) -> Array:
    """Discounts once a turn: `gamma` out of a turn's last action token, 1 out of its other action tokens.

    Args:
        gamma: in [0, 1].
        action_mask, turn_ids, segment_ids: as for `turn_ends`.

    Returns:
        f32 [B, T], 0 off-action.
    """
    ends = turn_ends(action_mask, turn_ids, segment_ids)
    return jnp.where(action_mask, jnp.where(ends, jnp.float32(gamma), 1.0), 0.0)


def spread_from_starts(x: Array, action_mask: Array, turn_ids: Array, segment_ids: Array) -> Array:
    """Gives every action token what stands on its turn's first one.

    Args:
        x: f32 [B, T], read on the first action token of each turn only.
        action_mask, turn_ids, segment_ids: as for `turn_ends`.

    Returns:
        f32 [B, T], 0 off-action.
    """
    starts = turn_starts(action_mask, turn_ids, segment_ids)
    kept = jnp.where(starts, jnp.asarray(x, jnp.float32), 0.0)
    return jnp.where(action_mask, at_columns(kept, _start_columns(starts)), 0.0)


def turn_buckets(turn_ids: Array, segment_ids: Array, mask: Array) -> tuple[Array, int]:
    """A number for every turn of the batch, for sums and means over its tokens.

    Args:
        turn_ids, segment_ids: as for `turn_ends`.
        mask: bool [B, T], the tokens to be told apart: action tokens, or some of them.

    Returns:
        i32 [B, T], the place of the turn's first kept token in the flattened array, the same on all its tokens, -1 off
        the mask; and how many buckets these numbers need, B * T, known when compiled.
    """
    rows, length = mask.shape
    first = _start_columns(turn_starts(mask, turn_ids, segment_ids))
    return jnp.where(mask, jnp.arange(rows)[:, None] * length + first, -1), rows * length


def turn_gae(
    rewards: Array,
    values: Array,
    *,
    action_mask: Array,
    turn_ids: Array,
    segment_ids: Array,
    bootstrap_mask: Array,
    gamma: float,
    lam: Array | float,
) -> tuple[Array, Array]:
    """Generalised advantage estimation whose step is a whole turn: one advantage for all of its tokens.

    With R_k the sum of turn k's rewards and V_k the value at its first action token, before anything of it is chosen:

        delta_k = R_k + gamma V_{k+1} - V_k
        A_k     = delta_k + gamma lam A_{k+1}

    After an episode's last turn V_{k+1} and A_{k+1} are 0, or V_{k+1} is the value of the bootstrap column.

    Args:
        rewards: f32 [B, T], read on action tokens only.
        values: f32 [B, T], value of the state before token t is chosen; read on the first action token of each turn
            and on bootstrap columns only.
        action_mask, segment_ids, bootstrap_mask: as for `gae`.
        turn_ids: as for `turn_ends`.
        gamma: in [0, 1], between two turns.
        lam: in [0, 1]; a float, or f32 [B, T], read on the first action token of each turn.

    Returns:
        advantages A_k and returns A_k + V_k on every action token of the turn, f32 [B, T], 0 off-action.

    Source: Li et al. 2025 (Turn-PPO), https://arxiv.org/abs/2512.17008.
    """
    layout = (action_mask, turn_ids, segment_ids)
    starts, ends = turn_starts(*layout), turn_ends(*layout)
    # A sum that stops at turn ends is, on a turn's first token, the turn's reward.
    earned = reward_to_go(
        rewards, discounts=jnp.where(ends, 0.0, 1.0), action_mask=action_mask, segment_ids=segment_ids
    )
    advantages, returns = gae(
        earned,
        values,
        action_mask=starts,
        segment_ids=segment_ids,
        bootstrap_mask=bootstrap_mask,
        discounts=jnp.full(earned.shape, gamma, jnp.float32),
        lam=lam,
    )
    return spread_from_starts(advantages, *layout), spread_from_starts(returns, *layout)


def bilevel_gae(
    rewards: Array,
    values: Array,
    *,
    action_mask: Array,
    turn_ids: Array,
    segment_ids: Array,
    bootstrap_mask: Array,
    gamma_turn: float,
    gamma_token: float,
    lam: Array | float,
) -> tuple[Array, Array]:
    """GAE over turns first, then over the tokens of each turn towards their turn's advantage.

    With e_k the last action token of turn k, and S_k the sum of the rewards on the turn's other tokens:

        delta_k = r_{e_k} + gamma_turn (S_{k+1} + V_{e_{k+1}}) - V_{e_k}
        A_{e_k} = delta_k + gamma_turn lam A_{e_{k+1}}

    and before e_k, with t' the next action token of the same turn:

        delta_t = r_t + gamma_token V_t' - V_t
        A_t     = delta_t + gamma_token lam A_t'

    After an episode's last turn S, V and A are 0, or V is the value of the bootstrap column.

    S_{k+1} is earned on the way from e_k to e_{k+1}, so it is what e_k brought about and not what e_{k+1} did. That way
    is one turn: all of it is discounted by gamma_turn once, however many tokens it takes, while gamma_token tells the
    tokens of one turn apart and never adds up over turns. At lam = gamma_token = 1 the returns are the rewards to go
    under `turn_discounts`. With rewards on last tokens alone S is 0, and this is the estimator of the source.

    Args:
        rewards: f32 [B, T], read on action tokens only.
        values: f32 [B, T], value of the state before token t is chosen; read on action and bootstrap columns only.
        action_mask, segment_ids, bootstrap_mask: as for `gae`.
        turn_ids: as for `turn_ends`.
        gamma_turn, gamma_token: in [0, 1], from turn to turn and from token to token within one.
        lam: in [0, 1]; a float, or f32 [B, T] of the step out of token t.

    Returns:
        advantages A and returns A + V, f32 [B, T], 0 off-action.

    Source: Wang et al. 2025 (VAGEN), https://arxiv.org/abs/2510.16907.
    """
    ends = turn_ends(action_mask, turn_ids, segment_ids)
    place = {"action_mask": action_mask, "segment_ids": segment_ids}
    # A sum over other than last tokens that stops at turn ends is, on a turn's first token, its S.
    on_the_way = reward_to_go(jnp.where(ends, 0.0, rewards), discounts=jnp.where(ends, 0.0, 1.0), **place)
    following, goes_on = next_action(action_mask, segment_ids)
    ahead = jnp.where(goes_on, at_columns(on_the_way, following), 0.0)
    of_turns, turn_returns = gae(
        rewards + gamma_turn * ahead,
        values,
        action_mask=ends,
        segment_ids=segment_ids,
        bootstrap_mask=bootstrap_mask,
        discounts=jnp.full(ahead.shape, gamma_turn, jnp.float32),
        lam=lam,
    )
    # A last token that earns its turn's return and has no successor has its turn's advantage, which its turn's other
    # tokens then look forward to.
    of_tokens, _ = gae(
        jnp.where(ends, turn_returns, rewards),
        values,
        bootstrap_mask=bootstrap_mask,
        discounts=jnp.where(ends, 0.0, jnp.float32(gamma_token)),
        lam=lam,
        **place,
    )
    advantages = jnp.where(ends, of_turns, of_tokens)
    return advantages, jnp.where(action_mask, advantages + values, 0.0)


def _in_same_turn(turn_ids: Array, neighbour: Array, exists: Array) -> Array:
    """bool [B, T]: the neighbouring action token, given by its column, exists and is of the same turn."""
    chex.assert_equal_shape([turn_ids, neighbour])
    return exists & (at_columns(turn_ids, neighbour) == turn_ids)


def _start_columns(starts: Array) -> Array:
    """i32 [B, T], on action tokens the column of their turn's first one."""
    return jnp.maximum(jax.lax.cummax(jnp.where(starts, jnp.arange(starts.shape[1]), -1), axis=1), 0)
