"""KL weight and reward scale over the iterations of a run, and what a checkpoint keeps of them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.learner.dials import DialState, ReturnMoments, adapted_kl, constant_dials, scheduled_kl


@pytest.mark.parametrize(("iteration", "expected"), [(0, 0.01), (50, 0.055), (100, 0.1), (400, 0.1)])
def test_the_kl_weight_rises_in_equal_steps_and_stays(iteration, expected):
    algorithm = AlgorithmSection(kl_coef=0.01, kl_coef_end=0.1, kl_iterations=100)
    assert scheduled_kl(algorithm, iteration) == pytest.approx(expected)
    assert scheduled_kl(AlgorithmSection(kl_coef=0.01), iteration) == 0.01


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (0.05, 0.1),  # on target
        (0.055, 0.1 * (1 + 0.1 * 64 / 640)),  # a tenth too far: up by a tenth of 64 / 640
        (5.0, 0.1 * (1 + 0.2 * 64 / 640)),  # no more than a fifth counts
        (0.0, 0.1 * (1 - 0.2 * 64 / 640)),
    ],
)
def test_the_controller_raises_the_weight_when_the_kl_is_too_large(kl, expected):
    algorithm = AlgorithmSection(kl_coef=0.1, kl_target=0.05, kl_horizon=640)
    assert adapted_kl(algorithm, 0.1, kl, 64) == pytest.approx(expected)


def test_an_adapted_weight_is_kept_and_a_batch_without_a_measurement_changes_nothing():
    algorithm = AlgorithmSection(kl_coef=0.1, kl_target=0.05, kl_horizon=640)
    state = DialState().adapted(algorithm, 5.0, 64)
    assert state.dials(algorithm, 3).kl_coef == pytest.approx(0.102)
    assert state.adapted(algorithm, None, 64) == state
    twice = state.adapted(algorithm, 5.0, 64)
    assert twice.dials(algorithm, 4).kl_coef == pytest.approx(0.1 * 1.02**2)


def test_moments_of_any_batching_are_those_of_all_returns():
    returns = np.random.default_rng(0).normal(3, 2, 100)
    state = DialState()
    for part in np.split(returns, [0, 1, 7, 60]):
        state = state.seen(part.tolist())
    assert (state.returns.count, state.returns.mean) == (100, pytest.approx(returns.mean()))
    assert state.returns.deviation == pytest.approx(returns.std())


def test_rewards_are_scaled_by_the_deviation_once_returns_differ():
    running = AlgorithmSection(reward_scale="running")
    same = DialState().seen([1.0, 1.0, 1.0])
    assert same.dials(running, 0).reward_scale == 1
    mixed = same.seen([0.0, 0.0, 0.0])
    assert mixed.dials(running, 0).reward_scale == pytest.approx(2.0)  # half won: deviation .5
    assert mixed.dials(AlgorithmSection(), 0).reward_scale == 1


def test_the_state_survives_json():
    state = DialState(kl_coef=0.02, returns=ReturnMoments().including([0.0, 1.0, 1.0]))
    assert DialState.of(json.loads(json.dumps(dataclasses.asdict(state)))) == state
    assert DialState.of({}) == DialState()


def test_only_dials_that_turn_are_logged():
    assert constant_dials(AlgorithmSection(kl_coef=0.1)).named(AlgorithmSection(kl_coef=0.1)) == {}
    turning = AlgorithmSection(kl_coef=0.1, kl_coef_end=0.2, reward_scale="running")
    assert constant_dials(turning).named(turning) == {"kl/coef": pytest.approx(0.1), "return/reward_scale": 1.0}
