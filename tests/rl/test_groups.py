"""Credit by comparison: with the plays of the same task, and with the turns that began in the same state."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from ragged import check, check_layout_is_nothing, plays, ragged

from jaxmtrl.rl import groups
from jaxmtrl.rl.turns import turn_discounts

TOLERANCE = 1e-5
leave_one_out = jax.jit(groups.leave_one_out)
group_normalised = jax.jit(groups.group_normalised, static_argnames="scale_by_std")
uniform_groups = jax.jit(groups.uniform_groups)
discounts = jax.jit(turn_discounts)
anchor_advantages = jax.jit(groups.anchor_advantages, static_argnames="scale_by_std")


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
    tasks = np.zeros(len(returns), np.int32)
    slope = jax.jit(jax.grad(lambda r: groups.group_normalised(r, tasks, scale_by_std=scale_by_std)[0]))
    result = group_normalised(returns, tasks, scale_by_std=scale_by_std)
    np.testing.assert_array_equal(result, np.zeros(len(returns)))
    np.testing.assert_array_equal(slope(returns), np.zeros(len(returns)))


def test_failed_episodes_leave_the_group_statistics():
    # Group returns 1, 0, failed, 0. Scoring the failure 0 would give -.25 (centred) and -.333 (leave one out).
    returns = np.array([1, 0, np.nan, 0], np.float32)
    tasks = np.array([0, 0, -1, 0], np.int32)
    centred = group_normalised(returns, tasks, scale_by_std=False)
    np.testing.assert_allclose(centred, [0.666667, -0.333333, 0, -0.333333], atol=TOLERANCE)
    np.testing.assert_allclose(leave_one_out(returns, tasks), [1, -0.5, 0, -0.5], atol=TOLERANCE)


def test_episodes_without_a_group_are_not_a_group():
    returns = np.array([5, 7, 1, 0], np.float32)
    tasks = np.array([-1, -1, 3, 3], np.int32)
    np.testing.assert_allclose(leave_one_out(returns, tasks), [0, 0, 1, -1], atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(3))
def test_group_advantages_equal_a_slow_loop_and_follow_a_permutation(seed):
    random = np.random.default_rng(seed)
    returns = random.normal(size=12).astype(np.float32)
    tasks = random.integers(-1, 4, 12).astype(np.int32) * 100  # ids need not be small nor dense
    tasks[tasks < 0] = -1
    loo, normal = np.zeros(12), np.zeros(12)
    for i in range(12):
        mine = [returns[j] for j in range(12) if tasks[i] >= 0 and tasks[j] == tasks[i]]
        peers = [returns[j] for j in range(12) if j != i and tasks[i] >= 0 and tasks[j] == tasks[i]]
        if peers:
            loo[i] = returns[i] - np.mean(peers)
            normal[i] = (returns[i] - np.mean(mine)) / (np.std(mine, ddof=1) + 1e-6)
    np.testing.assert_allclose(leave_one_out(returns, tasks), loo, atol=TOLERANCE)
    np.testing.assert_allclose(group_normalised(returns, tasks, scale_by_std=True), normal, atol=TOLERANCE)
    order = random.permutation(12)
    np.testing.assert_allclose(leave_one_out(returns[order], tasks[order]), loo[order], atol=TOLERANCE)


@pytest.mark.parametrize(
    "returns, tasks, expected",
    [
        ([1, 0, 1, 1], [0, 0, 1, 1], [False, False, True, True]),
        ([0.3] * 3 + [0.1], [5, 5, 5, 2], [True] * 4),  # a group of one has no difference either
        ([1, 1, 0, np.nan], [3, 3, -1, -1], [True, True, False, False]),  # no group is no uniform group
    ],
)
def test_uniform_groups(returns, tasks, expected):
    result = uniform_groups(np.array(returns, np.float32), np.array(tasks, np.int32))
    np.testing.assert_array_equal(result, expected)


# --- turns that began in the same state ------------------------------------------------------------------------------

# One row, gamma .5 a turn. Episode 0: turns of 2 and 1 tokens earn 0 and 1, G = .5, 1. Episode 1: turns of 1, 1 and 2
# tokens earn 0, 0 and 1, G = .25, .5, 1. State 7: episode 0's first turn and episode 1's first two, which came back.
PLACE = {
    "action_mask": np.array([[1, 1, 0, 1, 1, 0, 1, 1, 1, 0]], bool),
    "turn_ids": np.array([[0, 0, -1, 1, 0, -1, 1, 2, 2, -1]], np.int32),
    "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 1, 1, 1, -1]], np.int32),
}
REWARDS = np.array([[0, 0, np.nan, 1, 0, np.nan, 0, 0, 1, np.nan]], np.float32)
ANCHORS = np.array([[7, 7, -1, 3, 7, -1, 7, 4, 4, -1]], np.int32)


def anchored(rewards=REWARDS, anchors=ANCHORS, gamma=0.5, scale_by_std=False, **place):
    place = {**PLACE, **place}
    return np.asarray(
        anchor_advantages(
            rewards,
            **place,
            anchor_ids=anchors,
            discounts=discounts(gamma, **place),
            scale_by_std=scale_by_std,
        )
    )


def test_turns_are_compared_with_turns_from_the_same_state():
    # G = .5, .25, .5, mean .416667. The mean would be .4375 if tokens counted, .375 if only first visits did.
    result = anchored()
    np.testing.assert_allclose(result, [[1 / 12, 1 / 12, 0, 0, -1 / 6, 0, 1 / 12, 0, 0, 0]], atol=1e-6)
    # Over the sample deviation sqrt((1 / 144 + 1 / 36 + 1 / 144) / 2) = .144338.
    result = anchored(scale_by_std=True)
    np.testing.assert_allclose(result, [[0.57735, 0.57735, 0, 0, -1.154701, 0, 0.57735, 0, 0, 0]], atol=2e-5)


@pytest.mark.parametrize("scale_by_std", [False, True])
def test_states_without_a_difference_teach_exactly_nothing(scale_by_std):
    # At gamma 1 every G is the .9 that its episode ends with: three of them in state 7, whose f32 mean is not quite .9.
    np.testing.assert_array_equal(anchored(REWARDS * np.float32(0.9), gamma=1.0, scale_by_std=scale_by_std), 0.0)


def test_an_unknown_state_is_nobodys_peer():
    # Without episode 1's second visit state 7 holds .5 and .25, mean .375; unknown states are not one state.
    anchors = np.where(PLACE["turn_ids"] == 1, -1, ANCHORS)
    np.testing.assert_allclose(anchored(anchors=anchors), [[0.125, 0.125, 0, 0, -0.125, 0, 0, 0, 0, 0]], atol=1e-6)
    np.testing.assert_array_equal(anchored(anchors=np.full_like(ANCHORS, -1)), 0.0)


def anchored_of(batch, scale_by_std=False):
    return anchored(batch.rewards, batch.anchor_ids, 0.9, scale_by_std, **batch.layout)


@pytest.mark.parametrize("scale_by_std", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_anchor_advantages_equal_a_slow_loop(seed, scale_by_std):
    batch = ragged(seed, dense=False)
    to_go, bucket = {}, {}
    for play in plays(batch):
        for turn in range(len(play.turns)):
            later = play.turns[turn:]
            to_go[play.number, turn] = sum(0.9**k * sum(play.rewards[t] for t in own) for k, own in enumerate(later))
            bucket.setdefault(play.anchors[turn], []).append(to_go[play.number, turn])

    def slow(play):
        result = []
        for turn, own in enumerate(play.turns):
            peers = bucket[play.anchors[turn]] if play.anchors[turn] >= 0 else []
            advantage = 0.0
            if len(peers) > 1:
                advantage = to_go[play.number, turn] - np.mean(peers)
                advantage /= np.std(peers, ddof=1) + 1e-6 if scale_by_std else 1.0
            result += [advantage] * len(own)
        return result

    assert max(map(len, bucket.values())) > 3
    check(batch, anchored_of(batch, scale_by_std), slow, atol=2e-5)


def test_anchor_advantages_do_not_depend_on_layout():
    check_layout_is_nothing(anchored_of)
    check_layout_is_nothing(lambda batch: anchored_of(batch, True))
