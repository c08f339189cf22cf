"""A win earns more than any loss, or the run does not start: bounds worked out, and tried out against all plays."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.base import OwnReturns
from jaxmtrl.rewards.order import order_mistakes
from jaxmtrl.rewards.recipe import Recipe

SPARSE = OwnReturns(win_least=1.0, other_most=0.0, step_least=0.0)
RECIPE = Recipe(
    weights={"env": 0.8, "progress": 0.2},
    penalties={},
    clip=1.0,
    gamma=1.0,
    keeps_truncated=True,
    stages=0,
    format_pattern="",
)


def recipe(weights: dict, penalties: dict | None = None, **others) -> Recipe:
    return dataclasses.replace(RECIPE, weights=weights, penalties=penalties or {}, **others)


@pytest.mark.parametrize(
    "weights",
    [
        {"env": 1.0},
        {"env": 0.8, "progress": 0.2},
        {"env": 0.6, "pass_ratio": 0.3, "style": 0.1},
        {"success": 1.0},
        {"pass_ratio": 1.0},  # others stay below 1, however near
    ],
)
def test_the_presets_are_sound_where_only_a_win_is_paid(weights):
    assert order_mistakes(recipe(weights), SPARSE, 50) == []


def test_a_loss_that_has_nearly_all_points_may_not_be_paid_for_progress_too():
    """.9 of ten points: .8 * .9 + .2 = .92 against .8; env needs more than .2 / (1 - .9) = 2."""
    (mistake,) = order_mistakes(RECIPE, dataclasses.replace(SPARSE, other_most=0.9), 24)
    assert "a win is sure of 0.8 (env +0.8) within 24 steps" in mistake
    assert "could earn up to 0.92 (env +0.72, progress +0.2)" in mistake
    assert "set reward.parts.env to more than 2" in mistake
    weights = {"env": 2.1, "progress": 0.2}
    assert order_mistakes(recipe(weights, clip=0.0), dataclasses.replace(SPARSE, other_most=0.9), 24) == []


def test_penalties_of_a_long_win_may_not_eat_it_up():
    """50 steps at .02 are 1.0 of 1; times .9 a win keeps .1."""
    (mistake,) = order_mistakes(recipe({"env": 1.0}, {"invalid_action": 0.02}), SPARSE, 50)
    assert "penalties -1" in mistake and "multiply the penalties by 0.9" in mistake
    assert order_mistakes(recipe({"env": 1.0}, {"invalid_action": 0.018}), SPARSE, 50) == []
    both = {"repetition": 0.01, "format": 0.005, "diversity": 0.2}  # 50 * .015 + .2 = .95
    assert order_mistakes(recipe({"env": 1.0}, both), SPARSE, 50) == []
    assert order_mistakes(recipe({"env": 1.0}, {**both, "diversity": 0.26}), SPARSE, 50) != []


def test_a_judge_weighs_less_than_winning():
    assert order_mistakes(recipe({"env": 0.5, "judge": 0.5}), SPARSE, 10) != []
    assert order_mistakes(recipe({"env": 0.6, "judge": 0.4}), SPARSE, 10) == []
    (mistake,) = order_mistakes(recipe({"judge": 1.0}), None, 10)
    assert "give success a weight" in mistake


def test_a_clip_that_cuts_a_win_is_seen():
    """A win's step of 2 is cut to 1; up to ten steps of .. a cut of 1 each could leave nothing of it."""
    double = OwnReturns(win_least=2.0, other_most=1.5, step_least=0.0, step_most=2.0)
    (mistake,) = order_mistakes(recipe({"env": 1.0}), double, 10)
    assert "clip -10" in mistake and "raise reward.clip" in mistake
    assert order_mistakes(recipe({"env": 1.0}, clip=0.0), double, 10) == []


def test_a_discount_costs_a_long_win_some_progress():
    """γ = .9, 11 steps: a win may lose .2 * .1 * 10 = .2 of its .8, another gain .2 * .9."""
    assert order_mistakes(recipe(dict(RECIPE.weights), gamma=0.9), SPARSE, 11) == []
    assert order_mistakes(recipe({"env": 0.35, "progress": 0.2}, gamma=0.9), SPARSE, 11) != []


def test_an_environment_that_does_not_tell_is_not_judged_by_its_own():
    assert order_mistakes(recipe({"env": 1.0}), None, 10) == []


@given(
    weights=st.fixed_dictionaries({"env": st.floats(0.1, 2), "progress": st.floats(0, 1), "judge": st.floats(0, 1)}),
    penalty=st.floats(0, 0.3),
    clip=st.sampled_from([0.0, 0.3, 1.0]),
    gamma=st.sampled_from([1.0, 0.9]),
    data=st.data(),
)
def test_no_pair_of_plays_contradicts_a_recipe_that_passed(weights, penalty, clip, gamma, data):
    """Plays of one task, made up step by step within what `own` promises: 0 a step and 1 on the step that wins."""
    made = recipe(
        {name: weight for name, weight in weights.items() if weight}, {"format": penalty}, clip=clip, gamma=gamma
    )
    steps = 4
    if order_mistakes(made, SPARSE, steps):
        return

    def total(won: bool) -> float:
        length = data.draw(st.integers(1, steps))
        phi = [0.0, *data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=length, max_size=length))]
        if won:
            phi[-1] = 0.0
        faults = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=length, max_size=length))
        score = data.draw(st.sampled_from([0.0, 1.0]))
        earned = 0.0
        for t in range(length):
            last = t == length - 1
            parts = {"env": float(won and last), "progress": gamma * phi[t + 1] - phi[t], "judge": score * last}
            earned += made.reward({**parts, "format": faults[t]})
        return earned

    assert total(won=True) > total(won=False)
