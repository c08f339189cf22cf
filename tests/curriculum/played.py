"""What the tests of the curriculum play: tasks, episodes and evaluations that nobody had to play."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

from jaxmtrl.curriculum.mixture import Drawn
from jaxmtrl.curriculum.plan import Plan
from jaxmtrl.envs.base import Split
from jaxmtrl.scores import Score
from jaxmtrl.types import Episode, EpisodeStop, Task


@dataclass(frozen=True)
class Result:
    """An evaluation with `wins` of `n`."""

    wins: int
    n: int

    @property
    def success(self) -> float:
        return self.wins / self.n if self.n else float("nan")

    @property
    def ci95(self) -> tuple[float, float]:
        """Wilson's interval, as `evaluation` has it, which is not imported here because it starts jax."""
        n, p, spread = self.n, self.success, 1.959964**2 / self.n if self.n else 0.0
        half = sqrt(spread * (p * (1 - p) + spread / 4))
        low, high = (p + spread / 2 - half) / (1 + spread), (p + spread / 2 + half) / (1 + spread)
        return (max(0.0, low), min(1.0, high)) if n else (0.0, 1.0)


def score(wins: int, n: int = 100, iteration: int = 0) -> Score:
    return Score.of(iteration, Result(wins, n))


def tasks(split: str, count: int, *, steps: int = 12) -> list[Task]:
    return [Task(id=f"{split}/{n}", seed=n, payload={"max_steps": steps, "game": n}) for n in range(count)]


def episode(group: int, *, success: bool = False, failed: bool = False, index: int = 0) -> Episode:
    return Episode(
        task_id="",
        group=group,
        index=index,
        turns=(),
        stop=EpisodeStop.FAILED if failed else EpisodeStop.DONE,
        success=success,
        policy_version=0,
    )


def played(plan: Plan, wins: Callable[[int, Drawn], bool]) -> list[Episode]:
    """One play of every task; `wins` is told the group and what was drawn."""
    return [episode(group, success=wins(group, drawn)) for group, drawn in enumerate(plan.drawn)]


class Shelf:
    """An environment of given splits, with an expert who needs `length` commands."""

    max_steps = 12

    def __init__(self, splits: dict[str, Sequence[Task]], length: int | None = 4):
        self.splits, self.length, self.asked = splits, length, []

    def split_names(self) -> Sequence[str]:
        return tuple(self.splits)

    def split(self, name: str) -> Split:
        return Split(name=name, tasks=self.splits[name])

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        self.asked.append(task.id)
        return None if self.length is None else ["go"] * self.length

    def make_env(self):
        raise AssertionError("nobody plays here")

    def prepare(self, tasks, report) -> None:
        report(len(tasks), len(tasks))
