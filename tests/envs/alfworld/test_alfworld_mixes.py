"""Mixes are exact to a task, add up, and are spread so that every beginning of a split looks like the whole."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.alfworld.games import KINDS
from jaxmtrl.envs.alfworld.mixes import MIXES, OTHERS, shares, weight_mistakes
from jaxmtrl.envs.mixing import apportion, interleave

SIMPLE, LIGHT, CLEAN, HEAT, COOL, TWO = KINDS
WEIGHTS = st.dictionaries(st.sampled_from([*KINDS, OTHERS]), st.floats(0, 100), min_size=1).filter(
    lambda weights: not weight_mistakes("weights", weights) and sum(weights.values()) > 1e-3
)


def counts(weights: dict[str, float], count: int) -> dict[str, int]:
    return apportion(shares(weights), count)


def test_the_named_mixes():
    assert counts(MIXES["single"], 1000) == {SIMPLE: 1000}
    assert counts(MIXES["four"], 1000) == {LIGHT: 250, CLEAN: 250, HEAT: 250, COOL: 250}
    # 1000 / 6 = 166.67: four types get one more, the earlier ones
    assert list(counts(MIXES["six"], 1000).values()) == [167, 167, 167, 167, 166, 166]


def test_a_core_share_and_the_rest_evenly():
    wanted = {SIMPLE: 250, LIGHT: 150, CLEAN: 150, HEAT: 150, COOL: 150, TWO: 150}
    assert counts({SIMPLE: 0.25, OTHERS: 0.75}, 1000) == wanted
    assert counts({SIMPLE: 5, OTHERS: 15}, 1000) == wanted  # only ratios count
    assert counts({SIMPLE: 0.25, **dict.fromkeys(KINDS[1:], 0.15)}, 1000) == wanted
    assert counts({TWO: 1, OTHERS: 0}, 7) == {TWO: 7}


def test_largest_remainders_are_rounded_up():
    # .5 * 5 = 2.5, .3 * 5 = 1.5, .2 * 5 = 1: of two remainders of .5 the earlier type's wins
    assert counts({COOL: 0.5, CLEAN: 0.3, HEAT: 0.2}, 5) == {CLEAN: 2, HEAT: 1, COOL: 2}
    # 2.8, .7, .5 of 4: the larger remainders are .8 and .7
    assert counts({SIMPLE: 0.7, LIGHT: 0.175, TWO: 0.125}, 4) == {SIMPLE: 3, LIGHT: 1, TWO: 0}
    assert counts({SIMPLE: 4, TWO: 1}, 4) == {SIMPLE: 3, TWO: 1}  # 3.2 and .8
    # 1/3, 1/3 and 7/3 of 3: equal remainders, which binary fractions make 1e-16 larger for the last
    assert counts({SIMPLE: 1, LIGHT: 1, CLEAN: 7}, 3) == {SIMPLE: 1, LIGHT: 0, CLEAN: 2}


@given(weights=WEIGHTS, count=st.integers(1, 3000))
def test_counts_add_up_and_miss_their_part_by_less_than_one(weights, count):
    parts = shares(weights)
    assert sum(parts.values()) == pytest.approx(1) and list(parts) == [kind for kind in KINDS if kind in parts]
    found = apportion(parts, count)
    assert sum(found.values()) == count
    assert all(abs(found[kind] - parts[kind] * count) < 1 + 1e-6 for kind in parts)


@given(weights=WEIGHTS, count=st.integers(1, 600), prefix=st.integers(1, 600))
def test_every_beginning_is_mixed_like_the_whole(weights, count, prefix):
    wanted = counts(weights, count)
    order = interleave(wanted)
    assert Counter(order) == {kind: number for kind, number in wanted.items() if number}
    prefix = min(prefix, count)
    seen = Counter(order[:prefix])
    # each type is rounded to a whole number where the cut falls, which the rounding of the others can shift
    assert all(abs(seen[kind] - number * prefix / count) <= 2 for kind, number in wanted.items())


def test_equal_parts_take_turns():
    assert interleave({SIMPLE: 2, HEAT: 2, TWO: 2}) == [SIMPLE, HEAT, TWO] * 2
    assert interleave({SIMPLE: 1, HEAT: 3}) == [HEAT, SIMPLE, HEAT, HEAT]  # at 1/2, and 1/6, 1/2, 5/6


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (
            {"pick_heat_then_place": 1},
            'w: "pick_heat_then_place" is no task type; did you mean pick_heat_then_place_in',
        ),
        ({"cook": 1}, 'w: "cook" is no task type; they are pick_and_place_simple, .*, and others for all unnamed.'),
        ({HEAT: -1.0, COOL: 2.0}, "w.pick_heat_then_place_in_recep must be a number of at least 0, got -1."),
        ({HEAT: float("inf")}, "w.pick_heat_then_place_in_recep must be a number of at least 0, got inf."),
        ({HEAT: float("nan")}, "got nan."),
        ({HEAT: 0.0, OTHERS: 0.0}, "w are all 0; give at least one task type a weight."),
        ({**MIXES["six"], OTHERS: 1}, "w: others means nothing where all six task types are named; remove it."),
    ],
)
def test_weights_that_are_wrong(weights, sentence):
    (mistake,) = weight_mistakes("w", weights)
    parts = sentence.split(".*")
    assert all(part in mistake for part in parts)


def test_sound_weights_have_no_mistake():
    assert weight_mistakes("w", {SIMPLE: 0.25, OTHERS: 0.75}) == []
