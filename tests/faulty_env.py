"""An environment that breaks on purpose, for tests of the worker pool.

A task's payload says how and when: `{"fault": "hang" | "exit" | "raise" | "garbage" | "none", "at_step": int}`.
`at_step` 0 breaks in `reset`, n >= 1 breaks in the n-th `step`. Without a fault an episode is won at `max_steps`
steps with reward 1. Observations tell the process, the seed and the step, so that a test can see who played what.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmtrl.envs.base import Split
from jaxmtrl.errors import ConfigError
from jaxmtrl.types import StepResult, Task

FAULTS = ("none", "hang", "exit", "raise", "garbage")


def faulty_task(fault: str, at_step: int = 1, *, seed: int = 0) -> Task:
    """A task that breaks as `fault` says in its `at_step`-th step (0: in reset)."""
    return Task(id=f"faulty/{fault}-{at_step}-{seed}", seed=seed, payload={"fault": fault, "at_step": at_step})


class FaultyEnv:
    def __init__(self, max_steps: int, step_seconds: float):
        self._max_steps, self._step_seconds = max_steps, step_seconds
        self._task = faulty_task("none")
        self._steps = 0

    def reset(self, task: Task) -> str:
        self._task, self._steps = task, 0
        broken = self._break()
        return broken if broken is not None else self._say("start")

    def step(self, action: str) -> StepResult:
        self._steps += 1
        time.sleep(self._step_seconds)
        broken = self._break()
        if broken is not None:
            return broken
        won = self._steps >= self._max_steps
        return StepResult(observation=self._say(action), reward=float(won), done=won, success=won)

    def close(self) -> None:
        pass

    def _say(self, text: str) -> str:
        return f"pid {os.getpid()} seed {self._task.seed} step {self._steps}: {text}"

    def _break(self) -> Any:
        """Breaks if this is the step to break at; returns the wrong value that "garbage" answers, else None."""
        if self._steps != self._task.payload["at_step"]:
            return None
        match self._task.payload["fault"]:
            case "hang":
                while True:
                    time.sleep(3600)
            case "exit":
                os._exit(1)
            case "raise":
                raise RuntimeError(f"broken on purpose at step {self._steps}")
            case "garbage":
                return 42
        return None


class FaultyEnvironment:
    def __init__(self, options: Mapping[str, Any]):
        self._max_steps = int(options.get("max_steps", 3))
        self._step_seconds = float(options.get("step_seconds", 0.0))
        if options.get("refuse"):
            raise ConfigError("env.options", ["refused on purpose"])

    @property
    def max_steps(self) -> int:
        return self._max_steps

    def split_names(self) -> Sequence[str]:
        return FAULTS

    def split(self, name: str) -> Split:
        return Split(name=name, tasks=tuple(faulty_task(name, seed=seed) for seed in range(64)))

    def make_env(self) -> FaultyEnv:
        return FaultyEnv(self._max_steps, self._step_seconds)

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        return None

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        pass


def make(options: Mapping[str, Any]) -> FaultyEnvironment:
    """Options: `max_steps` (int), `step_seconds` (float, sleep of a step), `refuse` (bool, make raises)."""
    return FaultyEnvironment(options)
