"""The toy adventure: every game is winnable by its expert, losable, cut at the limit, and hard for random play."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys

import pytest

from jaxmtrl.envs.base import load_environment
from jaxmtrl.envs.toy import GAMES, make
from jaxmtrl.errors import ConfigError


def play(env, task, actions):
    observations, results = [env.reset(task)], []
    for action in actions:
        results.append(env.step(action))
        observations.append(results[-1].observation)
    return observations, results


def test_a_game_reads_like_this():
    toy = make({})
    task = toy.split("train").tasks[0]
    observations, results = play(toy.make_env(), task, toy.expert_actions(task))
    # seed 0 is game 0: first key pair (red, blue), first weapon, its neighbour as decoy, first monster, plain order
    assert observations == [
        "Goal: hit the ogre. It fears the axe. You see: red door, red key, blue key.",
        "You hold the red key.",
        "It opens. You see: ogre, bow, axe.",
        "You hold the axe.",
        "You win: the ogre is beaten.",
    ]
    assert [result.reward for result in results] == [0.0, 0.0, 0.0, 1.0]
    assert results[-1].done and results[-1].success and not results[-1].truncated


@pytest.mark.parametrize("reward", ["sparse", "dense"])
@pytest.mark.parametrize("split", ["train", "harder_train", "heldout", "harder"])
def test_every_expert_wins_with_return_one(split, reward):
    toy = make({"reward": reward})
    env = toy.make_env()
    for task in toy.split(split).tasks:
        _, results = play(env, task, toy.expert_actions(task))
        assert results[-1].success
        assert sum(result.reward for result in results) == pytest.approx(1.0)


def test_splits_share_no_game():
    toy = make({"train_tasks": GAMES - 64})
    seen = [
        (toy.make_env().reset(task), tuple(toy.expert_actions(task)))
        for name in ("train", "harder_train", "heldout", "harder")
        for task in toy.split(name).tasks
    ]
    assert len(seen) == len(set(seen)) == 2 * GAMES


def test_the_wrong_weapon_loses_which_is_done_without_success():
    toy = make({})
    task = toy.split("train").tasks[0]
    _, results = play(toy.make_env(), task, ["take red key", "open door", "take bow", "hit ogre"])
    assert results[-1].done and not results[-1].success and not results[-1].truncated
    assert sum(result.reward for result in results) == 0.0


def test_invalid_actions_cost_a_step_and_the_limit_truncates():
    toy = make({"max_steps": 3})
    env = toy.make_env()
    _, results = play(env, toy.split("train").tasks[0], ["dance", "open door", " Take  RED key\n"])
    assert [result.metrics["invalid_action"] for result in results] == [1.0, 0.0, 0.0]
    assert [result.truncated for result in results] == [False, False, True]
    assert not results[-1].done and not results[-1].success
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("look")


def test_dense_pays_each_stage_once():
    toy = make({"reward": "dense"})
    # right key, wrong key, right key again: the first pays 1/4, coming back to it pays nothing
    _, results = play(toy.make_env(), toy.split("train").tasks[0], ["take red key", "take blue key", "take red key"])
    assert [result.reward for result in results] == [0.25, 0.0, 0.0]


def test_random_valid_commands_hardly_ever_win():
    toy, rng, wins = make({}), random.Random(0), 0
    env = toy.make_env()
    verbs = sorted({verb for task in toy.split("train").tasks for verb in toy.expert_actions(task)})
    assert len(verbs) == 6 + 1 + 6 + 6  # keys, the door, weapons, monsters
    for task in toy.split("train").tasks[:500]:
        env.reset(task)
        while not (result := env.step(rng.choice(verbs))).done and not result.truncated:
            pass
        wins += result.success
    assert wins <= 10  # 2 % at most, although every word is right


def test_mistakes_in_options_come_all_at_once():
    with pytest.raises(ConfigError) as caught:
        load_environment("jaxmtrl.envs.toy:make", {"max_step": 3, "train_tasks": 0, "reward": "rich"})
    text = str(caught.value)
    assert "env.options.max_step: unknown option; did you mean max_steps?" in text
    assert "env.options.train_tasks: got 0, wanted integer >= 1 (games of the train split)" in text
    assert 'env.options.reward: got "rich", wanted sparse | dense' in text
    with pytest.raises(ConfigError, match="at most 2160"):
        make({"train_tasks": 2150})
    with pytest.raises(ConfigError, match="it has: train, harder_train, heldout, harder"):
        make({}).split("test")


def test_tasks_are_small_and_picklable_and_the_module_brings_no_jax():
    assert len(pickle.dumps(make({}).split("train").tasks[0])) < 500
    code = "import sys, jaxmtrl.envs.toy; assert not {'jax', 'flax', 'textworld'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_progress_is_of_the_state_it_is_in():
    """Two doors, six stages: the right key 1/6, passed 2/6; another key loses what the right one gave."""
    toy = make({})
    task = toy.split("harder").tasks[0]
    env, actions = toy.make_env(), list(toy.expert_actions(task))
    env.reset(task)
    told = [env.progress()]
    for action in actions[:-1]:
        env.step(action)
        told.append(env.progress())
    assert told == pytest.approx([n / 6 for n in range(6)])
    other = next(
        key for key in env.reset(task).split("You see: ")[1].split(", ")[1:] if key.rstrip(".") not in actions[0]
    )
    env.step(actions[0])
    env.step(f"take {other.rstrip('.')}")
    assert env.progress() == 0


@pytest.mark.parametrize(("reward", "most"), [("sparse", 0.0), ("dense", 5 / 6)])
def test_own_returns_are_what_plays_come_to(reward, most):
    toy = make({"reward": reward})
    task = toy.split("harder").tasks[0]
    told = toy.own_returns([task])
    assert (told.win_least, told.other_most) == (1.0, pytest.approx(most))
    _, results = play(toy.make_env(), task, list(toy.expert_actions(task))[:-1])  # all but the blow
    assert sum(result.reward for result in results) == pytest.approx(most)
