"""Weights, then faults, then the clip; and potentials under which the best play stays the best."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from jaxmtrl.config.loading import load_config
from jaxmtrl.rewards.recipe import Recipe, recipe_of

TOY = Path(__file__).parents[2] / "configs" / "toy.yaml"
PLAIN = Recipe(
    weights={"env": 1.0}, penalties={}, clip=1.0, gamma=1.0, keeps_truncated=False, stages=0, format_pattern=""
)


def test_what_is_paid_is_weighted_charged_and_clipped_in_this_order():
    """.8 * 1 + .2 * .5 - .05 = .85; clipped parts first would give the same, so also 2 * .8 - .3 = 1.3 → 1."""
    recipe = dataclasses.replace(PLAIN, weights={"env": 0.8, "progress": 0.2}, penalties={"format": 0.05})
    assert recipe.reward({"env": 1.0, "progress": 0.5, "format": 1.0}) == pytest.approx(0.85)
    recipe = dataclasses.replace(recipe, penalties={"format": 0.3})
    assert recipe.reward({"env": 2.0, "progress": 0.0, "format": 1.0}) == 1.0
    assert recipe.reward({"env": -2.0, "progress": 0.0, "format": 0.0}) == -1.0
    assert dataclasses.replace(recipe, clip=0.0).reward({"env": 2.0, "progress": 0.0, "format": 0.0}) == 1.6


def test_what_is_no_number_is_not_clipped_into_one():
    assert math.isnan(PLAIN.reward({"env": math.nan})) and math.isinf(PLAIN.reward({"env": math.inf}))


def test_stages_round_progress_down():
    """Four commands in two stages: Φ = 0, 0, .5, .5 and never 1; in one stage nothing is left."""
    quarters = [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [dataclasses.replace(PLAIN, stages=2).potential(x) for x in quarters] == [0, 0, 0.5, 0.5, 0.5]
    assert [dataclasses.replace(PLAIN, stages=1).potential(x) for x in quarters] == [0] * 5
    assert [PLAIN.potential(x) for x in quarters] == quarters
    assert dataclasses.replace(PLAIN, stages=3).potential(1 - 1 / 3) == 2 / 3  # rounding does not lose a stage


@pytest.mark.parametrize(
    ("overrides", "keeps"),
    [
        (["algorithm.name=ppo"], True),
        (["algorithm.name=ppo", "algorithm.bootstrap_truncated=false"], False),
        (["algorithm.name=reinforce_plus_plus"], False),
    ],
)
def test_a_truncated_play_keeps_its_potential_where_the_learner_goes_on(overrides, keeps):
    config = load_config(TOY, ["algorithm.bootstrap_truncated=true", *overrides, "reward.preset=hybrid_text"])
    recipe = recipe_of(config)
    assert recipe.keeps_truncated is keeps
    assert (dict(recipe.weights), recipe.clip) == ({"env": 0.8, "progress": 0.2}, 1.0)


def values(transitions, rewards, end, choice, gamma):
    """State values of a policy that takes choice[s] in state s; `end` marks states where nothing follows."""
    states = range(len(choice))
    step = np.array([transitions[s, choice[s]] for s in states])
    paid = np.array([step[s] @ rewards[s, choice[s]] for s in states])
    step, paid = np.where(end[:, None], 0.0, step), np.where(end, 0.0, paid)
    return np.linalg.solve(np.eye(len(choice)) - gamma * step, paid)


@pytest.mark.parametrize("seed", range(5))
def test_every_policy_of_a_small_world_is_worth_its_own_less_the_potential(seed):
    """All 3^4 policies of five states, the last one an end: V' = V - Φ, so that they rank as before in every state.

    With Φ left standing at the end, the last line, a policy that hurries to it would be paid for that.
    """
    rng, gamma = np.random.default_rng(seed), 0.9
    transitions = rng.dirichlet(np.ones(5), size=(5, 3))
    rewards = rng.normal(size=(5, 3, 5))
    end = np.array([False] * 4 + [True])
    potential = np.where(end, 0.0, rng.uniform(size=5))
    shaped = rewards + gamma * potential - potential[:, None, None]
    kept = np.where(end, 0.9, potential)
    wrong = rewards + gamma * kept - kept[:, None, None]
    worth, other = [], []
    for choice in itertools.product(range(3), repeat=4):
        plain = values(transitions, rewards, end, (*choice, 0), gamma)
        np.testing.assert_allclose(values(transitions, shaped, end, (*choice, 0), gamma), plain - potential, atol=1e-12)
        worth.append(plain)
        other.append(values(transitions, wrong, end, (*choice, 0), gamma) + kept - plain)
    assert np.ptp(np.array(worth)[:, 0]) > 0.1  # they differ
    assert np.ptp(np.array(other)[:, 0]) > 0.01  # and are no longer all shifted alike
