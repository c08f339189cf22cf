"""Whole episodes in packed rows: neighbours, sums, and numbers that reach every token of their own episode."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from ragged import EPISODES, check, check_layout_is_nothing, ragged

from jaxmtrl.rl import episodes

TOLERANCE = 1e-5
next_action = jax.jit(episodes.next_action)
previous_action = jax.jit(episodes.previous_action)
spread = jax.jit(episodes.spread)
overlong_penalties = jax.jit(episodes.overlong_penalties, static_argnums=2, static_argnames=["start", "limit"])
adaptive_lambda = jax.jit(episodes.adaptive_lambda, static_argnums=2)

# Two episodes in a row, with 4 and 2 action tokens; observations between, padding at the end.
ACTIONS = np.array([[1, 1, 0, 1, 0, 1, 0, 1, 1, 0]], bool)
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0, 1, 1, 1, -1]], np.int32)


def test_neighbours_are_action_tokens_of_the_same_episode():
    columns, exists = next_action(ACTIONS, SEGMENTS)
    # Column 5 is the first episode's last action token; 7 is the next one, but another episode's.
    np.testing.assert_array_equal(exists, [[1, 1, 1, 1, 1, 0, 1, 1, 0, 0]])
    np.testing.assert_array_equal(np.asarray(columns)[exists], [1, 3, 3, 5, 5, 7, 8])
    columns, exists = previous_action(ACTIONS, SEGMENTS)
    np.testing.assert_array_equal(exists, [[0, 1, 1, 1, 1, 1, 0, 0, 1, 0]])
    np.testing.assert_array_equal(np.asarray(columns)[exists], [0, 1, 1, 3, 3, 7])


@pytest.mark.parametrize("seed", range(2))
def test_neighbours_equal_a_slow_search(seed):
    batch = ragged(seed)
    mask, segments = batch.action_mask, batch.segment_ids
    for function, step in ((next_action, 1), (previous_action, -1)):
        columns, exists = map(np.asarray, function(mask, segments))
        for row, column in np.argwhere(segments >= 0):
            own = np.flatnonzero(mask[row] & (segments[row] == segments[row, column]))
            further = sorted(own[(own - column) * step > 0] * step)
            assert exists[row, column] == bool(further)
            assert not further or columns[row, column] == further[0] * step


def test_episode_returns_sum_action_rewards_by_episode():
    rewards = np.array([[0, 1, 9, 2, 9, 3, np.nan, 0, 4, np.nan]], np.float32)
    result = episodes.episode_returns(rewards, ACTIONS, SEGMENTS, 4)
    np.testing.assert_array_equal(result, [6, 4, 0, 0])


def test_an_episodes_number_reaches_all_its_action_tokens_and_no_others():
    # One episode over three rows with 2, 3 and 1 action tokens, advantage .7: sums 1.4, 2.1, .7; 4.2 in all.
    mask = np.array([[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 0, 0]], bool)
    result = spread(np.array([0.7, np.nan], np.float32), np.where(mask, 0, [[-1], [0], [0]]), mask)
    np.testing.assert_allclose(np.sum(result, axis=1), [1.4, 2.1, 0.7], atol=TOLERANCE)
    np.testing.assert_array_equal(np.asarray(result)[~mask], 0.0)
    assert float(np.sum(result)) == pytest.approx(4.2, abs=TOLERANCE)  # .7 if only the last step's tokens had it


def test_spread_keeps_packed_episodes_apart():
    result = spread(np.array([1.5, -2.0], np.float32), SEGMENTS, ACTIONS)
    np.testing.assert_allclose(result, [[1.5, 1.5, 0, 1.5, 0, 1.5, 0, -2, -2, 0]])


# --- lambda by length ------------------------------------------------------------------------------------------------


def test_lambda_grows_with_the_episodes_action_tokens():
    # 4 tokens: 1 - 1 / (.4 * 4) = .375; 2 tokens: 1 - 1 / .8 < 0. With the 6 and 3 columns it would be .583 and .167.
    lam = adaptive_lambda(ACTIONS, SEGMENTS, 3, alpha=0.4)
    np.testing.assert_allclose(lam, [[0.375, 0.375, 0, 0.375, 0, 0.375, 0, 0, 0, 0]], atol=1e-6)
    # The numbers of the source: .05 and 1000 tokens, 1 - 1 / 50.
    mask = np.ones((1, 1000), bool)
    np.testing.assert_allclose(adaptive_lambda(mask, np.zeros((1, 1000), int), 1, alpha=0.05), 0.98, atol=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_lambda_equals_a_slow_count(seed):
    batch = ragged(seed)
    lam = adaptive_lambda(batch.action_mask, batch.segment_ids, EPISODES, alpha=0.25)

    def slow(play):
        return [max(0.0, 1 - 1 / (0.25 * len(play.rewards))) for _ in play.rewards]

    assert len({round(float(x), 4) for x in np.asarray(lam)[batch.action_mask]}) > 2
    check(batch, lam, slow)
    check_layout_is_nothing(lambda b: adaptive_lambda(b.action_mask, b.segment_ids, EPISODES, alpha=0.25), seed)


# --- penalties of length ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start, limit, first, second", [(2, 10, 1.0, 0.25), (4, 6, 2.0, 0.0), (0, 3, 2.0, 2.0)])
def test_the_overlong_pay_in_proportion_on_their_last_action_token(start, limit, first, second):
    # Episodes of 6 and 3 columns, penalty 2: from 2 to 10: 2 * 4 / 8 and 2 * 1 / 8; from 4 to 6: all, and nothing.
    result = overlong_penalties(ACTIONS, SEGMENTS, 3, start=start, limit=limit, penalty=2.0)
    np.testing.assert_allclose(result, [[0, 0, 0, 0, 0, first, 0, 0, second, 0]], atol=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_penalties_equal_a_slow_loop(seed):
    batch = ragged(seed)
    expected = np.zeros(batch.rewards.shape)
    for number in range(EPISODES):
        actions = np.argwhere(batch.action_mask & (batch.segment_ids == number))
        if len(actions):
            size = np.sum(batch.segment_ids == number)
            expected[tuple(actions[-1])] = 0.5 * min(max((size - 6) / 8, 0.0), 1.0)
    assert len(np.unique(expected)) > 3
    result = overlong_penalties(batch.action_mask, batch.segment_ids, EPISODES, start=6, limit=14, penalty=0.5)
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_a_limit_below_the_start_is_refused():
    with pytest.raises(ValueError, match="limit must be above start, got start 8 and limit 8"):
        episodes.overlong_penalties(ACTIONS, SEGMENTS, 2, start=8, limit=8, penalty=1.0)
