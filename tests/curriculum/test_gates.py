"""When a level is left: sequences of evaluations worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import score

from jaxmtrl.curriculum.gates import earliest_arrivals, gate, may_leave

GATES = {"harder_above": 0.75, "easier_below": 0.40}
WINS = st.lists(st.integers(0, 100), max_size=8)


@pytest.mark.parametrize(
    ("wins", "moves"),
    [  # one move after each evaluation, with two confirmations
        ([80, 70, 76, 78], ["stay", "stay", "stay", "harder"]),
        ([75, 75, 75], ["stay", "stay", "stay"]),  # above 75 %, not at it
        ([76, 75, 76, 76], ["stay", "stay", "stay", "harder"]),
        ([39, 38], ["stay", "easier"]),
        ([40, 40], ["stay", "stay"]),  # below 40 %, not at it
        ([39, 41, 39], ["stay", "stay", "stay"]),
        ([39, 80], ["stay", "stay"]),
        ([], []),
    ],
)
def test_a_gate_must_hold_twice_in_succession(wins, moves):
    scores = [score(each) for each in wins]
    found = [gate(scores[: end + 1], **GATES, confirmations=2) for end in range(len(scores))]
    assert found == moves


def test_without_confirmations_one_evaluation_decides():
    assert [gate([score(wins)], **GATES) for wins in (39, 40, 75, 76)] == ["easier", "stay", "stay", "harder"]
    assert gate([], **GATES) == "stay"


def test_certainty_asks_more_of_a_small_evaluation():
    """Wilson's interval of 84 of 100 begins at .7558, of 83 at .7445; of 30 it ends at .3958, of 31 at .4063."""
    found = [gate([score(wins)], **GATES, certain=True) for wins in (30, 31, 83, 84)]
    assert found == ["easier", "stay", "stay", "harder"]
    assert gate([score(790, 1000)], **GATES, certain=True) == "harder"
    assert gate([score(10, 10)], **GATES, certain=True) == "stay"  # .72 is where the interval of ten of ten begins


@given(before=WINS, last=WINS, confirmations=st.integers(1, 4), certain=st.booleans())
def test_only_the_last_evaluations_decide_and_success_never_makes_it_easier(before, last, confirmations, certain):
    rule = {**GATES, "confirmations": confirmations, "certain": certain}
    scores = [score(wins) for wins in last]
    if len(scores) >= confirmations:
        assert gate([*(score(wins) for wins in before), *scores], **rule) == gate(scores, **rule)
    order = ["easier", "stay", "harder"]
    better = [score(min(100, wins + 20)) for wins in last]
    assert order.index(gate(better, **rule)) >= order.index(gate(scores, **rule))


def test_a_level_that_was_just_come_to_is_not_left():
    assert [may_leave(since=20, finished=finished, stay=10) for finished in (20, 29, 30, 31)] == [False] * 2 + [
        True
    ] * 2
    assert may_leave(since=0, finished=0, stay=0)


def test_levels_have_a_first_iteration():
    """Two evaluations, five apart, of which the first may come at once: 6 iterations; staying 10 takes longer."""
    gates = {"every": 5, "confirmations": 2, "mastery_iterations": None}
    assert earliest_arrivals(4, 1, **gates, stay=0) == {0: 6, 1: 0, 2: 6, 3: 12}
    assert earliest_arrivals(3, 0, **gates, stay=10) == {0: 0, 1: 10, 2: 20}
    by_mastery = {"every": 5, "confirmations": 2, "mastery_iterations": 3}
    assert earliest_arrivals(3, 1, **by_mastery, stay=0) == {0: 6, 1: 0, 2: 3}
