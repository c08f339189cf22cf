"""A small environment whose answers a task spells out: rewards, metrics, progress, code, and what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxmtrl.envs.base import OwnReturns, Split
from jaxmtrl.types import StepResult, Task


class PaidEnv:
    """A step with number n answers with the n-th entry of payload["steps"], fields of StepResult."""

    def __init__(self, options: Mapping[str, Any]):
        self._options = options

    def reset(self, task: Task) -> str:
        self._steps = [dict(step) for step in task.payload["steps"]]
        self._at = 0
        return "begin"

    def step(self, action: str) -> Any:
        entry = self._steps[self._at]
        self._at += 1
        if "raw" in entry:
            return entry["raw"]
        last = self._at == len(self._steps)
        plain = {"observation": f"after {self._at}", "reward": 0.0, "done": last and not entry.get("truncated", False)}
        return StepResult(**{**plain, **entry})

    def close(self) -> None:
        pass


class Writing(PaidEnv):
    """Tells what was written."""

    def code(self) -> str:
        return self._options["code"]


class Telling(PaidEnv):
    """Tells progress: payload["progress"][n] after n steps."""

    def reset(self, task: Task) -> str:
        self._told: Sequence[Any] = task.payload["progress"]
        return super().reset(task)

    def progress(self) -> Any:
        return self._told[self._at]


class PaidEnvironment:
    max_steps = 10

    def __init__(self, options: Mapping[str, Any]):
        self._options = options
        if "reports" in options:
            self.reports = options["reports"]

    def split_names(self) -> Sequence[str]:
        return ("train",)

    def split(self, name: str) -> Split:
        return Split(name=name, tasks=[play([{}])])

    def make_env(self) -> PaidEnv:
        kind = Telling if self._options.get("telling") else Writing if "code" in self._options else PaidEnv
        return kind(self._options)

    def expert_actions(self, task: Task) -> None:
        return None

    def prepare(self, tasks, report) -> None:
        report(len(tasks), len(tasks))


class SureEnvironment(PaidEnvironment):
    """Tells what its rewards come to."""

    def own_returns(self, tasks: Sequence[Task]) -> OwnReturns:
        return OwnReturns(win_least=1.0, other_most=self._options.get("other_most", 0.0), step_least=0.0)


def play(steps: Sequence[Mapping[str, Any]], progress: Sequence[Any] = ()) -> Task:
    return Task(id="paid", seed=0, payload={"steps": list(steps), "progress": list(progress)})


def make(options: Mapping[str, Any]) -> PaidEnvironment:
    return PaidEnvironment(options)


def make_sure(options: Mapping[str, Any]) -> SureEnvironment:
    return SureEnvironment(options)
