"""Forgetting: a fall from the best that is larger than chance, checked against published intervals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import score

from jaxmtrl.curriculum.history import KEPT, History
from jaxmtrl.curriculum.regression import forgotten
from jaxmtrl.scores import fall_interval


@pytest.mark.parametrize(
    ("before", "now", "low", "high"),
    [  # Newcombe 1998, table II, method 10
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((10, 10), (0, 20), 0.6791, 1.0000),
        ((0, 10), (0, 20), -0.1611, 0.2775),
    ],
)
def test_the_interval_of_a_fall_is_newcombes(before, now, low, high):
    assert fall_interval(score(*before), score(*now)) == pytest.approx((low, high), abs=1e-4)


def history(*wins: int) -> History:
    kept = History()
    for number, each in enumerate(wins, start=1):
        kept = kept.including(score(each, iteration=5 * number))
    return kept


@pytest.mark.parametrize(
    ("wins", "alarm"),
    [
        ([], False),
        ([80], False),
        ([80, 69], False),  # .11 lower, which chance may do: the interval begins at -.01
        ([80, 66], True),  # .14 lower, from .02
        ([50, 80, 90, 70], True),
        ([90, 70, 85], False),  # it came back
        ([70, 90], False),
        ([98, 91], False),  # .07 lower: surely lower, but less than a tenth
    ],
)
def test_an_alarm_wants_a_fall_that_is_large_and_no_chance(wins, alarm):
    found = forgotten("small", history(*wins), drop=0.10)
    assert (found is not None) == alarm


def test_the_alarm_says_where_and_what_to_do():
    found = forgotten("small", history(50, 90, 70), drop=0.1)
    assert found is not None and found.best.iteration == 10 and found.now.success == 0.7
    assert found.sentence().startswith(
        "level small is being forgotten: success 0.70, 0.90 at iteration 10 (a fall of 0.20 ["
    )
    assert "n 100); raise curriculum.replay_share" in found.sentence()


def test_a_long_history_keeps_its_newest_scores():
    kept = history(*range(KEPT + 3))
    assert [s.success for s in kept.scores] == [each / 100 for each in range(3, KEPT + 3)]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=3 * KEPT))
def test_a_history_is_bounded_and_remembers_its_best(wins):
    kept = history(*wins)
    assert [s.success for s in kept.scores] == [each / 100 for each in wins[-KEPT:]]
    assert kept.best is not None and kept.best.success == max(wins) / 100
    assert kept.best.iteration == 5 * (wins.index(max(wins)) + 1)
    assert [s.iteration for s in kept.since(10)] == [s.iteration for s in kept.scores if s.iteration > 10]
