"""Environments for benches of the pool: they answer with fixed texts after a fixed while, and know no game.

How long a step takes is a function of the task's seed and the turn alone, so two runs play the same lengths and the
same texts however slow their steps are.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmtrl.envs.base import Split
from jaxmtrl.types import StepResult, Task

OBSERVATION = "You stand in a corridor with a door to the north and a chest in the corner."
_MANY = 1 << 16  # tasks of the only split


class AnsweringEnv:
    """Ends after a number of turns drawn from the task's seed; implements `envs.base.TextEnv`."""

    def __init__(self, options: Mapping[str, Any]):
        self._step_s = float(options.get("step_s", 0.0))
        self._slow_s = float(options.get("slow_s", 0.0))
        self._slow_share = float(options.get("slow_share", 0.0))
        self._turns = options.get("turns", (1, 1))  # least and most

    def reset(self, task: Task) -> str:
        self._seed, self._step = task.seed, 0
        self._last = random.Random(f"turns {task.seed}").randint(*self._turns)
        return f"Goal: leave the house. {OBSERVATION}"

    def step(self, action: str) -> StepResult:
        self._step += 1
        slow = random.Random(f"slow {self._seed} {self._step}").random() < self._slow_share
        seconds = self._slow_s if slow else self._step_s
        if seconds:
            time.sleep(seconds)
        return StepResult(observation=OBSERVATION, reward=0.0, done=self._step == self._last, success=False)

    def close(self) -> None:
        pass


class AnsweringEnvironment:
    """Implements `envs.base.Environment`."""

    max_steps = 1 << 30

    def __init__(self, options: Mapping[str, Any]):
        self._options = dict(options)

    def split_names(self) -> Sequence[str]:
        return ("train",)

    def split(self, name: str) -> Split:
        return Split(name=name, tasks=[Task(id=f"{name}/{seed}", seed=seed) for seed in range(_MANY)])

    def make_env(self) -> AnsweringEnv:
        return AnsweringEnv(self._options)

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        return None

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        report(len(tasks), len(tasks))


def make(options: Mapping[str, Any]) -> AnsweringEnvironment:
    """Options: step_s and, for a share slow_share of the steps, slow_s; turns, least and most of an episode."""
    return AnsweringEnvironment(options)
