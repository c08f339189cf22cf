"""Credit by turns: worked numbers, slow sums over single episodes, and what must not change the answer."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from ragged import check, check_layout_is_nothing, plays, ragged

from jaxmtrl.rl import advantages, turns

reward_to_go = jax.jit(advantages.reward_to_go)
turn_discounts = jax.jit(turns.turn_discounts)
turn_ends = jax.jit(turns.turn_ends)
turn_starts = jax.jit(turns.turn_starts)
turn_gae = jax.jit(turns.turn_gae)
bilevel_gae = jax.jit(turns.bilevel_gae)

# Two episodes in a row: turns of 2, 1 and 1 tokens, then an episode of one turn of 2; observations between.
MASK = np.array([[1, 1, 0, 1, 0, 1, 0, 1, 1, 0]], bool)
TURNS = np.array([[0, 0, -1, 1, -1, 2, -1, 0, 0, -1]], np.int32)
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0, 1, 1, 1, -1]], np.int32)


def place(lengths, bootstrap=False):
    """One episode in one row: turns of these many tokens with a column of observation between, maybe cut off."""
    ids = np.concatenate([[turn] * length + [-1] for turn, length in enumerate(lengths)]).astype(np.int32)[None]
    return {
        "action_mask": ids >= 0,
        "turn_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "bootstrap_mask": (np.arange(ids.shape[1]) == ids.shape[1] - 1)[None] & bootstrap,
    }


def row(layout, actions, bootstrap=np.nan):
    """A row with these numbers on action tokens, one on the last column, and NaN elsewhere."""
    result = np.full(layout["turn_ids"].shape, np.nan, np.float32)
    result[layout["action_mask"]] = actions
    result[0, -1] = bootstrap
    return result


def on_actions(layout, pair):
    return [np.asarray(array)[layout["action_mask"]] for array in pair]


# --- where turns begin and end ---------------------------------------------------------------------------------------


def test_turns_begin_and_end_with_their_action_tokens():
    np.testing.assert_array_equal(turn_ends(MASK, TURNS, SEGMENTS), [[0, 1, 0, 1, 0, 1, 0, 0, 1, 0]])
    np.testing.assert_array_equal(turn_starts(MASK, TURNS, SEGMENTS), [[1, 0, 0, 1, 0, 1, 0, 1, 0, 0]])


def test_a_turn_ends_with_its_episode_even_if_the_next_turn_has_the_same_index():
    mask, ids, segments = np.ones((1, 4), bool), np.zeros((1, 4), np.int32), np.array([[0, 0, 1, 1]], np.int32)
    np.testing.assert_array_equal(turn_ends(mask, ids, segments), [[0, 1, 0, 1]])
    np.testing.assert_array_equal(turn_starts(mask, ids, segments), [[1, 0, 1, 0]])


@pytest.mark.parametrize("seed", range(3))
def test_ends_starts_and_buckets_equal_a_slow_loop(seed):
    batch = ragged(seed)
    ends, starts = np.zeros(batch.action_mask.shape, bool), np.zeros(batch.action_mask.shape, bool)
    numbers, count = turns.turn_buckets(batch.turn_ids, batch.segment_ids, batch.action_mask)
    seen = []
    for play in plays(batch):
        for own in play.turns:
            starts[play.where[0][own[0]], play.where[1][own[0]]] = True
            ends[play.where[0][own[-1]], play.where[1][own[-1]]] = True
            (number,) = {int(np.asarray(numbers)[play.where][token]) for token in own}  # one for all its tokens
            seen.append(number)
    np.testing.assert_array_equal(turn_ends(**batch.layout), ends)
    np.testing.assert_array_equal(turn_starts(**batch.layout), starts)
    assert len(set(seen)) == len(seen)
    assert 0 <= min(seen) <= max(seen) < count == batch.action_mask.size
    np.testing.assert_array_equal(np.asarray(numbers)[~batch.action_mask], -1)


def test_discounts_fall_on_each_turns_last_action_token():
    discounts = turn_discounts(0.9, MASK, TURNS, SEGMENTS)
    np.testing.assert_allclose(discounts, [[1, 0.9, 0, 0.9, 0, 0.9, 0, 1, 0.9, 0]])


def test_what_is_to_come_does_not_depend_on_how_long_answers_are():
    # A turn that earns 1, two turns after: gamma^2 however many tokens the turns take; gamma^(tokens) otherwise.
    def first(lengths, by_turn):
        layout = place(lengths)
        layout.pop("bootstrap_mask")
        ids = layout.pop("turn_ids")
        discounts = turn_discounts(0.9, turn_ids=ids, **layout) if by_turn else np.full(ids.shape, 0.9, np.float32)
        rewards = row({**layout, "turn_ids": ids}, [0] * (sum(lengths) - 1) + [1])
        return float(reward_to_go(rewards, discounts=discounts, **layout)[0, 0])

    assert first([1, 1, 1], True) == pytest.approx(0.81)
    assert first([4, 3, 2], True) == pytest.approx(0.81)
    assert first([4, 3, 2], False) == pytest.approx(0.9**8)


def test_what_stands_on_first_tokens_reaches_their_turns():
    x = np.array([[5, np.nan, np.nan, 6, np.nan, 7, np.nan, 8, np.nan, np.nan]], np.float32)
    np.testing.assert_array_equal(turns.spread_from_starts(x, MASK, TURNS, SEGMENTS), [[5, 5, 0, 6, 0, 7, 0, 8, 8, 0]])


# --- whole turns as steps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("final, second, first", [(None, 0.3, 0.646), (0.5, 0.75, 0.97)])
def test_turn_gae_golden(final, second, first):
    # Two turns of two tokens, gamma .9, lambda .8; values at their starts .5 and .7, rewards .1 + .2 and 0 + 1.
    # Finished: A_1 = 1 - .7 = .3, A_0 = .3 + .9 * .7 - .5 + .72 * .3 = .646. Cut off in a state worth .5:
    # A_1 = 1 + .45 - .7 = .75, A_0 = .43 + .72 * .75 = .97. What the critic says within a turn is nobody's business.
    layout = place([2, 2], bootstrap=final is not None)
    rewards, values = row(layout, [0.1, 0.2, 0, 1]), row(layout, [0.5, 99, 0.7, -99], final or np.nan)
    got, returns = on_actions(layout, turn_gae(rewards, values, **layout, gamma=0.9, lam=0.8))
    np.testing.assert_allclose(got, [first, first, second, second], atol=1e-6)
    np.testing.assert_allclose(returns, [first + 0.5] * 2 + [second + 0.7] * 2, atol=1e-6)


def slow_turn_gae(play, gamma=0.9, lam=0.7):
    """A_k = sum_l (gamma lam)^l delta_{k+l}, written as sums rather than as a recursion."""
    starts = [play.values[own[0]] for own in play.turns] + [play.final_value]
    earned = [sum(play.rewards[token] for token in own) for own in play.turns]
    count = len(earned)
    delta = [earned[k] + gamma * starts[k + 1] - starts[k] for k in range(count)]
    result = []
    for k, own in enumerate(play.turns):
        result += [sum((gamma * lam) ** (j - k) * delta[j] for j in range(k, count))] * len(own)
    return result


def ragged_turn_gae(batch):
    return turn_gae(
        batch.rewards, batch.values, **batch.layout, bootstrap_mask=batch.bootstrap_mask, gamma=0.9, lam=0.7
    )


@pytest.mark.parametrize("seed", range(3))
def test_turn_gae_equals_a_slow_loop(seed):
    batch = ragged(seed)
    got, returns = ragged_turn_gae(batch)
    check(batch, got, slow_turn_gae)

    def slow_returns(play):
        first = [play.values[own[0]] for own in play.turns for _ in own]
        return [advantage + value for advantage, value in zip(slow_turn_gae(play), first, strict=True)]

    check(batch, returns, slow_returns)


def test_turn_gae_does_not_depend_on_layout():
    check_layout_is_nothing(lambda batch: ragged_turn_gae(batch)[0])


# --- turns, then tokens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("final, expected", [(None, [0.394, 0.735, 0.38, 0.3]), (0.5, [0.475, 0.9375, 0.56, 0.75])])
def test_bilevel_gae_golden(final, expected):
    # Two turns of two tokens a b | c d; gamma .9 by turn and .8 by token, lambda .5; values .4 .5 | .6 .7, rewards
    # .1 .2 | .3 1. Last tokens: A_d = 1 - .7 = .3; A_b = .2 + .9 (.3 + .7) - .5 + .45 * .3 = .735, with c's reward on
    # the way to d. Others: A_c = .3 + .8 * .7 - .6 + .4 * .3 = .38; A_a = .1 + .8 * .5 - .4 + .4 * .735 = .394.
    # Cut off in a state worth .5: A_d = 1.45 - .7 = .75, A_b = .6 + .3375, A_c = .26 + .3, A_a = .1 + .375.
    layout = place([2, 2], bootstrap=final is not None)
    values = [0.4, 0.5, 0.6, 0.7]
    got, returns = on_actions(
        layout,
        bilevel_gae(
            row(layout, [0.1, 0.2, 0.3, 1]),
            row(layout, values, final or np.nan),
            **layout,
            gamma_turn=0.9,
            gamma_token=0.8,
            lam=0.5,
        ),
    )
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(returns, np.add(expected, values), atol=1e-6)


def slow_bilevel_gae(play, gamma_turn=0.9, gamma_token=0.8, lam=0.7):
    """Sums over last tokens, then sums over each turn's tokens up to its last."""
    last = [own[-1] for own in play.turns]
    count = len(last)
    value = [play.values[token] for token in last] + [play.final_value]
    on_the_way = [sum(play.rewards[token] for token in own[:-1]) for own in play.turns] + [0.0]
    delta = [play.rewards[last[k]] + gamma_turn * (on_the_way[k + 1] + value[k + 1]) - value[k] for k in range(count)]
    result = []
    for k, own in enumerate(play.turns):
        of_turn = sum((gamma_turn * lam) ** (j - k) * delta[j] for j in range(k, count))
        for i in range(len(own)):
            advantage = (gamma_token * lam) ** (len(own) - 1 - i) * of_turn
            for j in range(i, len(own) - 1):
                t, after = own[j], own[j + 1]
                step = play.rewards[t] + gamma_token * play.values[after] - play.values[t]
                advantage += (gamma_token * lam) ** (j - i) * step
            result.append(advantage)
    return result


def ragged_bilevel_gae(batch, gamma_turn=0.9, gamma_token=0.8, lam=0.7):
    return bilevel_gae(
        batch.rewards,
        batch.values,
        **batch.layout,
        bootstrap_mask=batch.bootstrap_mask,
        gamma_turn=gamma_turn,
        gamma_token=gamma_token,
        lam=lam,
    )


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_bilevel_gae_equals_a_slow_loop(seed, dense):
    batch = ragged(seed, dense=dense)
    got, returns = ragged_bilevel_gae(batch)
    check(batch, got, slow_bilevel_gae)
    check(batch, returns, lambda play: list(np.add(slow_bilevel_gae(play), play.values)))


def test_bilevel_gae_does_not_depend_on_layout():
    check_layout_is_nothing(lambda batch: ragged_bilevel_gae(batch)[0])


def test_bilevel_returns_without_lambda_are_rewards_to_go_discounted_once_a_turn():
    # Dense rewards: wherever a reward sits, it is worth gamma for each turn that ends before it.
    batch = ragged(5)
    finished = {"bootstrap_mask": np.zeros_like(batch.bootstrap_mask)}
    _, returns = bilevel_gae(
        batch.rewards, batch.values, **batch.layout, **finished, gamma_turn=0.9, gamma_token=1.0, lam=1.0
    )
    to_go = reward_to_go(
        batch.rewards,
        discounts=turn_discounts(0.9, **batch.layout),
        action_mask=batch.action_mask,
        segment_ids=batch.segment_ids,
    )
    np.testing.assert_allclose(returns, to_go, atol=1e-5)


# --- both ------------------------------------------------------------------------------------------------------------

TURN = functools.partial(turn_gae, gamma=0.99, lam=0.95)
BILEVEL = functools.partial(bilevel_gae, gamma_turn=0.99, gamma_token=0.5, lam=0.95)


@pytest.mark.parametrize("estimate", [TURN, BILEVEL])
def test_turns_of_one_token_are_gae_and_a_win_and_a_loss_differ(estimate):
    # The numbers of token-wise GAE; forgetting the last reward gives .353 .271 .185 .095 0 for both.
    layout = place([1] * 5)
    values = row(layout, [0.1, 0.2, 0.3, 0.4, 0.5])
    win, _ = on_actions(layout, estimate(row(layout, [0, 0, 0, 0, 1]), values, **layout))
    loss, _ = on_actions(layout, estimate(row(layout, [0, 0, 0, 0, 0]), values, **layout))
    np.testing.assert_allclose(win, [0.744, 0.687, 0.628, 0.565, 0.5], atol=6e-4)
    np.testing.assert_allclose(loss, [-0.038, -0.145, -0.257, -0.375, -0.5], atol=6e-4)


@pytest.mark.parametrize("estimate", [TURN, BILEVEL])
def test_a_turn_that_earned_nothing_is_still_a_turn(estimate):
    # Three turns of two tokens, the last one wins, all values 0, lambda 1: .99^2, .99, 1 on their last tokens. Turns
    # taken from the rewards would be a single one, and give 1 all over.
    layout = place([2, 2, 2])
    nothing = row(layout, [0.0] * 6)
    got, _ = on_actions(layout, estimate(row(layout, [0, 0, 0, 0, 0, 1]), nothing, **layout, lam=1.0))
    np.testing.assert_allclose(got[1::2], [0.9801, 0.99, 1.0], atol=1e-6)


@pytest.mark.parametrize("estimate", [TURN, BILEVEL])
def test_slopes_are_finite_and_reach_no_junk(estimate):
    batch = ragged(2)

    def total(rewards, values):
        got, returns = estimate(rewards, values, **batch.layout, bootstrap_mask=batch.bootstrap_mask)
        return got.sum() + returns.sum()

    for slope in jax.jit(jax.grad(total, argnums=(0, 1)))(batch.rewards, batch.values):
        assert np.all(np.isfinite(slope))
        assert np.any(np.asarray(slope)[batch.action_mask])
        np.testing.assert_array_equal(np.asarray(slope)[~(batch.action_mask | batch.bootstrap_mask)], 0.0)


@pytest.mark.parametrize("estimate", [TURN, BILEVEL])
def test_lambda_may_differ_by_token(estimate):
    batch = ragged(4)
    where = {**batch.layout, "bootstrap_mask": batch.bootstrap_mask}
    same, _ = estimate(batch.rewards, batch.values, **where, lam=0.6)
    lam = np.where(batch.action_mask, np.float32(0.6), np.nan)
    np.testing.assert_array_equal(estimate(batch.rewards, batch.values, **where, lam=lam)[0], same)
    # Lambda 0 in one episode is its one-step estimate, and does not touch the others.
    own = batch.segment_ids == 2
    mixed, _ = estimate(batch.rewards, batch.values, **where, lam=np.where(own, 0.0, lam).astype(np.float32))
    short, _ = estimate(batch.rewards, batch.values, **where, lam=0.0)
    np.testing.assert_allclose(mixed, np.where(own, short, same), atol=1e-6)
