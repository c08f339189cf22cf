"""A game of two letters a turn, for tests of the doctor; an option breaks one promise of an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmtrl.envs.base import Split
from jaxmtrl.types import StepResult, Task

TASKS = [Task(id=f"short/{seed}", seed=seed) for seed in range(2)]
STEPS = 3


class ShortEnv:
    """Says two letters a turn; won by the word "win", cut after three steps."""

    resets = 0  # of all instances, for environments that differ from one reset to the next

    def __init__(self, fault: str = ""):
        self.fault = fault

    def reset(self, task: Task) -> str:
        ShortEnv.resets += 1
        self.steps = 0
        if self.fault == "raise":
            raise RuntimeError("broken on purpose")
        return f"go{ShortEnv.resets}" if self.fault == "differs" else "go"

    def step(self, action: str) -> StepResult:
        self.steps += 1
        if self.fault == "picky" and not action.isascii():
            raise UnicodeEncodeError("ascii", action, 0, 1, "odd action")
        won = action == "win"
        cut = not won and self.steps >= STEPS
        reward = float(won) if self.fault != "generous" else 1.0
        return StepResult(observation="on", reward=reward, done=won, truncated=cut, success=won)

    def close(self) -> None:
        pass


class ShortEnvironment:
    """The tasks and the expert; `fault` breaks one promise."""

    max_steps = STEPS

    def __init__(self, options: Mapping[str, Any]):
        self.fault = options.get("fault", "")

    def split_names(self) -> Sequence[str]:
        return ("train", "heldout")

    def split(self, name: str) -> Split:
        return Split(name=name, tasks=[Task(id=f"short/{seed}", seed=seed) for seed in range(16)])

    def make_env(self) -> ShortEnv:
        return ShortEnv(self.fault)

    def expert_actions(self, task: Task) -> Sequence[str]:
        return ["lose"] if self.fault == "expert" else ["win"]

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        pass


def make(options: Mapping[str, Any]) -> ShortEnvironment:
    return ShortEnvironment(options)
