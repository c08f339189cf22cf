"""Figures of a batch: numbers worked out by hand, and what they must not depend on."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from alarm_plays import earning, episode, turn
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.alarms.figures import (
    batch_figures,
    finite,
    scaled_figures,
    share_error,
    standard_error,
    variance,
    within_groups,
)


def test_returns_within_and_between_tasks():
    """Task 0 earns 1 and 0, task 1 earns 0 and 0: mean .25, variance 3/16. Within: (.25 + 0)/2 = .125, which is 2/3 of
    it; deviations .5 and 0, mean .25. Sums off the mean .5 and -.5: √(2 · .5)/4 = .25."""
    batch = [earning(1, index=0), earning(0, index=1), earning(0, group=1), earning(0, 0, group=1, index=1)]
    figures = batch_figures(batch, known_verbs=())
    assert figures["return/variance"] == pytest.approx(3 / 16)
    assert figures["return/group_std"] == pytest.approx(0.25)
    assert figures["return/group_variance_share"] == pytest.approx(2 / 3)
    assert figures["return/standard_error"] == pytest.approx(0.25)
    assert figures["return/positive_share"] == pytest.approx(0.25)
    assert figures["episode/failed_share"] == 0


def test_plays_of_one_task_are_no_independent_plays():
    """1, 1 | 0, 0: sums off the mean 1 and -1, so √(2 · 2)/4 = .5; four tasks of one play: √(1/3)/2 = .289."""
    returns = np.array([1.0, 1.0, 0.0, 0.0])
    assert standard_error(returns, np.array([0, 0, 1, 1])) == pytest.approx(0.5)
    assert standard_error(returns, np.arange(4)) == pytest.approx(math.sqrt(1 / 3) / 2)
    assert standard_error(returns, np.zeros(4)) == pytest.approx(math.sqrt(1 / 3) / 2), "one task: no other way"


def test_the_standard_error_is_that_of_the_mean():
    """4000 batches of 6 tasks with 3 plays, tasks apart by deviation 1, plays by .5: the means deviate as it says."""
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(6), 3)
    batches = rng.normal(size=(4000, 6)).repeat(3, axis=1) + 0.5 * rng.normal(size=(4000, 18))
    guessed = math.sqrt(np.mean([standard_error(batch, groups) ** 2 for batch in batches]))
    assert guessed == pytest.approx(batches.mean(axis=1).std(), rel=0.05)


def test_equal_returns_have_no_spread_whatever_they_are():
    """Three times .1 sums to .30000000000000004: the rounding must not pass for a difference."""
    same = np.array([0.1, 0.1, 0.1])
    assert variance(same) == 0 and within_groups(same, np.zeros(3))[0] == 0 and standard_error(same, np.arange(3)) == 0


def test_groups_of_one_have_no_spread_to_tell():
    assert all(math.isnan(number) for number in within_groups(np.array([1.0, 0.0]), np.array([0, 1])))
    std, share = within_groups(np.array([1.0, 0.0, 5.0]), np.array([0, 0, 1]))
    assert std == 0.5 and share == 1, "the third play has no peer and counts in neither"


def test_the_error_of_a_share_is_never_zero():
    """60 wins of 60: (62/64)(2/64)/64, a root of .0217. None of none: nothing is known."""
    assert share_error(np.ones(60)) == pytest.approx(math.sqrt(62 / 64 * 2 / 64 / 64)) == share_error(np.zeros(60))
    assert math.isnan(share_error(np.zeros(0)))
    assert batch_figures([earning(1)], known_verbs=())["episode/success_error"] > 0


def test_scaled_returns_are_judged_by_one_to_ten():
    """Wins and losses at half each have .25; times 2, 1; times 6.32, 10: the practice notes' bounds, both inside."""
    for scale, scaled, fits in ((1, 0.25, 0), (2, 1, 1), (6.32, 9.986, 1), (6.4, 10.24, 0)):
        figures = scaled_figures(0.25, reward_scale=scale, low=1, high=10)
        assert figures["return/scaled_variance"] == pytest.approx(scaled, rel=1e-3)
        assert figures["return/scaled_variance_fits"] == fits


def test_what_is_said():
    """Five turns, four of them different; "look" twice, "go" twice, "fly" once. Known are look, go, take: two said."""
    batch = [
        episode(turn("look"), turn("go north"), turn("go east")),
        episode(turn("look"), turn("fly", invalid=True), group=1),
        episode(turn("sing"), failed=True, group=2),
    ]
    figures = batch_figures(batch, known_verbs=("look", "go", "take"))
    assert figures["action/distinct_per_turn"] == pytest.approx(4 / 5)
    assert figures["action/verb_coverage"] == pytest.approx(2 / 3)
    assert figures["action/command_entropy_nats"] == pytest.approx(-0.4 * math.log(0.4) - 0.6 * math.log(0.2))
    assert figures["action/verb_entropy_nats"] == pytest.approx(-0.8 * math.log(0.4) - 0.2 * math.log(0.2))
    assert figures["episode/failed_share"] == pytest.approx(1 / 3)


def test_repeats_are_counted_over_the_turns_whose_answer_is_known():
    """One of 2 + 0 turns: the second "look" of the first episode."""
    batch = [episode(*[turn("look", observation="a hall")] * 3), episode(turn("look"), group=1)]
    assert batch_figures(batch, known_verbs=())["action/repeated_useless_rate"] == 0.5


@pytest.mark.parametrize("batch", [[], [episode(turn(), failed=True)], [episode()]])
def test_of_nothing_nothing_is_known(batch):
    figures = batch_figures(batch, known_verbs=())
    assert (
        not set(finite(figures))
        - {"episode/failed_share", "return/variance", "return/positive_share"}
        - {"episode/success_error"}
    )


_EPISODES = st.builds(
    lambda group, rewards, words: episode(
        *[turn(word, reward=reward) for word, reward in zip(words, rewards)], group=group, success=sum(rewards) > 0
    ),
    st.integers(0, 3),
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["look", "go north", "go east", "take key"]), min_size=4, max_size=4),
)


@given(st.lists(_EPISODES, max_size=8), st.randoms())
def test_the_order_of_episodes_says_nothing(episodes, random):
    batch = [dataclasses.replace(one, index=index) for index, one in enumerate(episodes)]
    shuffled = batch_figures(random.sample(batch, len(batch)), known_verbs=("look", "eat"))
    assert shuffled == pytest.approx(batch_figures(batch, known_verbs=("look", "eat")), nan_ok=True, abs=0)


@given(st.lists(_EPISODES, min_size=1, max_size=8))
def test_the_same_plays_twice_spread_as_once(episodes):
    """Every task's plays twice over: variances, entropies and shares stay; tasks are as many, so the error does too."""
    once, twice = (batch_figures(episodes * times, known_verbs=("look",)) for times in (1, 2))
    assert twice["return/variance"] == pytest.approx(once["return/variance"])
    assert twice["action/command_entropy_nats"] == pytest.approx(once["action/command_entropy_nats"])
    assert twice["action/repeated_useless_rate"] == pytest.approx(once["action/repeated_useless_rate"], nan_ok=True)
    if len({one.group for one in episodes}) > 1:
        assert twice["return/standard_error"] == pytest.approx(once["return/standard_error"])


@given(st.lists(_EPISODES, min_size=1, max_size=8))
def test_a_failed_episode_counts_as_failed_and_nowhere_else(episodes):
    broken = dataclasses.replace(episodes[0], stop=episode(failed=True).stop, group=0, success=True)
    with_it = batch_figures([*episodes, broken], known_verbs=("look",))
    without = batch_figures(episodes, known_verbs=("look",))
    assert with_it.pop("episode/failed_share") == pytest.approx(1 / (len(episodes) + 1))
    without.pop("episode/failed_share")
    assert with_it == pytest.approx(without, nan_ok=True)
