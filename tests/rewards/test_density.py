"""Steps per reward: small numbers, and the study's along the ways through tw-simple."""

from __future__ import annotations

import pytest

from jaxmtrl.envs import toy
from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.rewards.density import expert_rewards, steps_per_reward
from jaxmtrl.rewards.recipe import Recipe
from jaxmtrl.rewards.scored import ScoredEnvironment

PLAIN = {"weights": {"env": 0.5, "progress": 0.5}, "penalties": {}, "clip": 1.0, "gamma": 1.0}
PLAIN |= {"keeps_truncated": False, "format_pattern": ""}


def test_steps_per_reward_are_of_each_play_first():
    """8 steps for 1 and 6 for 3 (one of them negative): (8 + 2) / 2 = 5; all steps by all rewards would be 3.5."""
    plays = [[0.0] * 7 + [1.0], [0.0, 1.0, 0.0, -1.0, 0.0, 1.0]]
    assert steps_per_reward(plays) == 5.0
    for nothing in ([], [[0.0, 0.0]]):
        with pytest.raises(ValueError, match="earned something"):
            steps_per_reward(nothing)


@pytest.mark.parametrize(("stages", "steps"), [(1, 4.0), (2, 2.0), (0, 1.0)])
def test_density_of_progress_is_how_often_it_pays(stages, steps):
    """Four commands: sparse pays for the last, balanced for two of them, dense for each."""
    environment = ScoredEnvironment(toy.make({}), Recipe(**PLAIN, stages=stages), None)
    task = environment.split("train").tasks[0]
    rewards = expert_rewards(environment, task)
    assert steps_per_reward([rewards]) == steps and sum(rewards) == pytest.approx(0.5)


def test_an_expert_that_does_not_win_says_nothing():
    environment = toy.make({"max_steps": 2})
    with pytest.raises(EnvironmentFailure, match="did not win task doors1/0"):
        expert_rewards(environment, environment.split("train").tasks[0])


# Seeds of the fixed house whose food lies in the fridge, on the couch and in the garden: 8, 9 and 12 commands to cook
# it, for 3, 3 and 4 rewards if balanced and 7, 8 and 10 if dense. Of the six foods two lie in the fridge, one on the
# couch and three in the garden.
FRIDGE, COUCH, GARDEN = 3, 1, 2
FOODS = (FRIDGE, FRIDGE, COUCH, GARDEN, GARDEN, GARDEN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("density", "steps"),
    [
        ("sparse", (2 * 8 + 9 + 3 * 12) / 6),
        ("balanced", (2 * 8 / 3 + 9 / 3 + 3 * 12 / 4) / 6),
        ("dense", (2 * 8 / 7 + 9 / 8 + 3 * 12 / 10) / 6),
    ],
)
def test_the_study_s_steps_per_reward(density, steps, tmp_path):
    pytest.importorskip("jericho")
    pytest.importorskip("tatsu")
    from jaxmtrl.envs import textworld

    splits = {f"food{seed}": {"first_seed": seed, "count": 1} for seed in (FRIDGE, COUCH, GARDEN)}
    options = {"games": "simple", "reward_density": density, "cache_dir": str(tmp_path), "splits": splits}
    environment = textworld.make(options)
    tasks = [environment.split(name).tasks[0] for name in splits]
    environment.prepare(tasks, lambda done, total: None)
    played = {task.seed: expert_rewards(environment, task) for task in tasks}
    assert steps_per_reward([played[seed] for seed in FOODS]) == pytest.approx(steps)
    assert round(steps, 2) == {"sparse": 10.17, "balanced": 2.89, "dense": 1.17}[density]
