"""The loop's side of the alarms: what it is told, what turns, and what ends a run."""

from __future__ import annotations

import dataclasses
import json

import pytest

from jaxmtrl.config.loading import load_config
from jaxmtrl.learner.dials import DialState
from jaxmtrl.lookout import Lookout
from jaxmtrl.types import Episode, EpisodeStop

TOY = "configs/toy.yaml"
START = DialState()


def lost(count: int = 8) -> list[Episode]:
    """Plays that earned nothing."""
    return [
        Episode(task_id=f"t{n}", group=n, index=0, turns=(), stop=EpisodeStop.DONE, success=False, policy_version=0)
        for n in range(count)
    ]


def look(lookout: Lookout, iteration: int, state: DialState = START) -> dict[str, float]:
    """One RL iteration of lost plays, numbers as the loop counts them."""
    dials = lookout.dials(state, "rl", iteration)
    values = {"episode/success": 0.0, "episode/return": 0.0}
    return lookout.played("rl", lost(), values, dials, finished=iteration + 1, tasks="")


def lookout_of(*overrides: str, saved=None, said=None) -> Lookout:
    config = load_config(TOY, ["alarms.stall_iterations=3", *overrides])
    return Lookout(config, saved or {}, (said if said is not None else []).append)


def test_an_alarm_is_told_once_and_rings_on_its_curve():
    said: list[str] = []
    lookout = lookout_of(said=said)
    curves = [look(lookout, iteration)["alarm/stalled_binary_reward"] for iteration in range(6)]
    assert curves == [0, 0, 1, 1, 1, 1]
    assert len(said) == 1 and said[0].startswith("alarm stalled_binary_reward since RL iteration 1: ")
    assert lookout.stop == ""


def test_an_alarm_that_should_stop_the_run_says_why():
    lookout = lookout_of("alarms.stalled_binary_reward=stop")
    stops = []
    for iteration in range(4):
        look(lookout, iteration)
        stops.append(lookout.stop)
    assert stops[:2] == ["", ""] and "stalled_binary_reward" in stops[2] and stops[3] == ""  # going on is allowed


def test_what_an_alarm_turned_replaces_the_dials_from_the_next_iteration_on():
    settings = ("alarms.stalled_binary_reward=kl_warm_up", "algorithm.kl_coef=0.5", "alarms.kl_iterations=10")
    lookout = lookout_of(*settings)
    weights = []
    for iteration in range(6):
        weights.append(float(lookout.dials(DialState(), "rl", iteration).kl_coef))
        look(lookout, iteration)
    # raised after three iterations: from .01 to .1 in ten steps
    assert weights == pytest.approx([0.5, 0.5, 0.5, 0.01, 0.019, 0.028])


def test_scaled_rewards_have_the_variance_that_is_asked_for():
    lookout = lookout_of("alarms.stalled_binary_reward=reward_scaling", "alarms.scaled_variance=3")
    state = DialState().seen([0.0, 1.0, 0.0, 1.0])  # deviation 1/2
    scales = []
    for iteration in range(4):
        scales.append(float(lookout.dials(state, "rl", iteration).reward_scale))
        values = look(lookout, iteration, state)
    assert scales == pytest.approx([1, 1, 1, 3**0.5 / 0.5])
    assert values["return/reward_scale"] == pytest.approx(3**0.5 / 0.5)


def test_a_resumed_lookout_goes_on_as_the_unbroken_one():
    unbroken, told = lookout_of(), []
    for iteration in range(6):
        wanted = look(unbroken, iteration)
        if iteration == 3:
            saved = json.loads(json.dumps(unbroken.saved))
    resumed = lookout_of(saved=saved, said=told)
    for iteration in (4, 5):
        got = look(resumed, iteration)
    assert got == pytest.approx(wanted, nan_ok=True) and told == []
    assert json.dumps(resumed.saved) == json.dumps(unbroken.saved)


def test_a_split_that_is_forgotten_is_told():
    @dataclasses.dataclass(frozen=True)
    class Figure:
        success: float
        n: int
        ci95: tuple[float, float]

    said: list[str] = []
    lookout = lookout_of("alarms.stalled_binary_reward=off", said=said)
    lookout.evaluated({"heldout": Figure(0.9, 100, (0.83, 0.94))}, 1)
    look(lookout, 0)
    assert said == []
    lookout.evaluated({"heldout": Figure(0.3, 100, (0.22, 0.4))}, 2)
    values = look(lookout, 1)
    assert values["alarm/forgetting"] == 1 and "heldout" in said[0]
