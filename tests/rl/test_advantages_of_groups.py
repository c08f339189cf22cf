"""Credit for whole episodes: returns, baselines within the group, and how they reach the tokens."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxmtrl.rl import advantages as adv

TOLERANCE = 1e-5
leave_one_out = jax.jit(adv.leave_one_out)
group_normalised = jax.jit(adv.group_normalised, static_argnames="scale_by_std")

# Two episodes in a row, with 4 and 2 action tokens; observations between, padding at the end.
ACTIONS = np.array([[1, 1, 0, 1, 0, 1, 0, 1, 1, 0]], bool)
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0, 1, 1, 1, -1]], np.int32)


def test_episode_returns_sum_action_rewards_by_episode():
    rewards = np.array([[0, 1, 9, 2, 9, 3, np.nan, 0, 4, np.nan]], np.float32)
    result = adv.episode_returns(rewards, ACTIONS, SEGMENTS, 4)
    np.testing.assert_array_equal(result, [6, 4, 0, 0])


@pytest.mark.parametrize(
    "returns, expected",
    [([1, 0, 0], [1.0, -0.5, -0.5]), ([2, 2, 2, 2], [0, 0, 0, 0]), ([0.7], [0]), ([0.1] * 3, [0] * 3)],
)
def test_leave_one_out_golden(returns, expected):
    result = leave_one_out(np.array(returns, np.float32), np.zeros(len(returns), np.int32))
    np.testing.assert_allclose(result, expected, atol=TOLERANCE)
    if not any(expected):
        np.testing.assert_array_equal(result, expected)


def test_group_normalisation_uses_the_sample_standard_deviation():
    # Returns 1 0 0 1: deviations of .5; ddof 1: sqrt(1 / 3) = .57735 -> .866024. ddof 0 would give .999998.
    result = group_normalised(np.array([1, 0, 0, 1], np.float32), np.zeros(4, np.int32), scale_by_std=True)
    np.testing.assert_allclose(result, [0.866024, -0.866024, -0.866024, 0.866024], atol=TOLERANCE)


@pytest.mark.parametrize("returns", [[1.0], [0.3] * 4, [0.9] * 3, [0.3] * 7])
@pytest.mark.parametrize("scale_by_std", [True, False])
def test_groups_without_a_difference_teach_exactly_nothing(returns, scale_by_std):
    # A group of one is not normalised by 1 and 0 (that would give 1.0). The f32 mean of three .9 is not quite .9: over
    # a deviation of nearly nothing that would be an advantage of .056.
    returns = np.array(returns, np.float32)
    groups = np.zeros(len(returns), np.int32)
    slope = jax.jit(jax.grad(lambda r: adv.group_normalised(r, groups, scale_by_std=scale_by_std)[0]))
    result = group_normalised(returns, groups, scale_by_std=scale_by_std)
    np.testing.assert_array_equal(result, np.zeros(len(returns)))
    np.testing.assert_array_equal(slope(returns), np.zeros(len(returns)))


def test_failed_episodes_leave_the_group_statistics():
    # Group returns 1, 0, failed, 0. Scoring the failure 0 would give -.25 (centred) and -.333 (leave one out).
    returns = np.array([1, 0, np.nan, 0], np.float32)
    groups = np.array([0, 0, -1, 0], np.int32)
    centred = group_normalised(returns, groups, scale_by_std=False)
    np.testing.assert_allclose(centred, [0.666667, -0.333333, 0, -0.333333], atol=TOLERANCE)
    np.testing.assert_allclose(leave_one_out(returns, groups), [1, -0.5, 0, -0.5], atol=TOLERANCE)


def test_episodes_without_a_group_are_not_a_group():
    returns = np.array([5, 7, 1, 0], np.float32)
    groups = np.array([-1, -1, 3, 3], np.int32)
    np.testing.assert_allclose(leave_one_out(returns, groups), [0, 0, 1, -1], atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(3))
def test_group_advantages_equal_a_slow_loop_and_follow_a_permutation(seed):
    random = np.random.default_rng(seed)
    returns = random.normal(size=12).astype(np.float32)
    groups = random.integers(-1, 4, 12).astype(np.int32) * 100  # ids need not be small nor dense
    groups[groups < 0] = -1
    loo, normal = np.zeros(12), np.zeros(12)
    for i in range(12):
        mine = [returns[j] for j in range(12) if groups[i] >= 0 and groups[j] == groups[i]]
        peers = [returns[j] for j in range(12) if j != i and groups[i] >= 0 and groups[j] == groups[i]]
        if peers:
            loo[i] = returns[i] - np.mean(peers)
            normal[i] = (returns[i] - np.mean(mine)) / (np.std(mine, ddof=1) + 1e-6)
    np.testing.assert_allclose(leave_one_out(returns, groups), loo, atol=TOLERANCE)
    np.testing.assert_allclose(group_normalised(returns, groups, scale_by_std=True), normal, atol=TOLERANCE)
    order = random.permutation(12)
    np.testing.assert_allclose(leave_one_out(returns[order], groups[order]), loo[order], atol=TOLERANCE)


def test_an_episodes_advantage_reaches_all_its_action_tokens_and_no_others():
    # One episode over three rows with 2, 3 and 1 action tokens, advantage .7: sums 1.4, 2.1, .7; 4.2 in all.
    mask = np.array([[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 0, 0]], bool)
    result = adv.spread(np.array([0.7, np.nan], np.float32), np.where(mask, 0, [[-1], [0], [0]]), mask)
    np.testing.assert_allclose(np.sum(result, axis=1), [1.4, 2.1, 0.7], atol=TOLERANCE)
    np.testing.assert_array_equal(np.asarray(result)[~mask], 0.0)
    assert float(np.sum(result)) == pytest.approx(4.2, abs=TOLERANCE)  # .7 if only the last step's tokens had it


def test_spread_keeps_packed_episodes_apart():
    result = adv.spread(np.array([1.5, -2.0], np.float32), SEGMENTS, ACTIONS)
    np.testing.assert_allclose(result, [[1.5, 1.5, 0, 1.5, 0, 1.5, 0, -2, -2, 0]])
