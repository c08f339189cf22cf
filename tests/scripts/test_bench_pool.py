"""The benches' environments and sides do what they say: the same lengths whatever is slow, every step once."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

from jaxmtrl.types import Task

SCRIPTS = Path(__file__).parents[2] / "scripts"


def load(name):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


answering_env, bench_pool = load("answering_env"), load("bench_pool")


def lengths(options):
    """Turns of ten tasks."""
    env, turns = answering_env.make(options).make_env(), []
    for seed in range(10):
        env.reset(Task(id="t", seed=seed))
        turns.append(1)
        while not env.step("north").done:
            turns[-1] += 1
    return turns


def test_episodes_are_as_long_whatever_is_slow(monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    fast = lengths({"step_s": 0.05, "turns": (4, 8)})
    assert set(slept) == {0.05} and len(slept) == sum(fast) and set(fast) <= set(range(4, 9)) and len(set(fast)) > 2
    slept.clear()
    slow = lengths({"step_s": 0.05, "slow_s": 2.0, "slow_share": 0.2, "turns": (4, 8)})
    assert slow == fast
    assert 0.05 < slept.count(2.0) / len(slept) < 0.4 and set(slept) == {0.05, 2.0}


def test_our_side_plays_every_step_of_every_game_once(monkeypatch):
    """Five steps of three games on two workers, after a reset each; commands are those of the turn and the game."""
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    tasks = [Task(id=str(seed), seed=seed) for seed in range(3)]
    side = bench_pool.Ours("answering_env:make", {"turns": (99, 99)}, tasks, 2, states=False)
    asked, step = [], side._pool.step

    def noted(episode, action):
        asked.append((episode, action))
        step(episode, action)

    monkeypatch.setattr(side._pool, "step", noted)
    try:
        times = bench_pool.play_in_turns({"ours": side}, steps=5, rounds=1)
    finally:
        side.close()
    warm_up, timed = asked[:15], asked[15:]
    for steps in (warm_up, timed):
        for game in range(3):
            commands = [action for episode, action in steps if episode == game]
            assert commands == [bench_pool.command(turn, game) for turn in range(5)]
    assert len(times["ours"]["steps"]) == len(times["ours"]["reset"]) == 1


def test_rates_are_those_of_the_median_round():
    # 8 games of 10 steps in 1, 2 and 4 s: 80 / 2; 8 resets in 0.5 s.
    rates = bench_pool._rates({"steps": [4.0, 1.0, 2.0], "reset": [0.5, 0.4, 0.6]}, 8, 10)
    assert rates == {"steps_per_s": 40.0, "least": 20.0, "most": 80.0, "resets_per_s": 16.0}
