"""What a checkpoint keeps of the curriculum: a small value that goes through JSON unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxmtrl.curriculum.history import History


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurriculumState:
    """Where the curriculum stands after some RL iterations; every change makes a new one."""

    level: str = ""  # trained on; "" without levels
    since: int = 0  # RL iterations that were finished when the level was come to
    trained: tuple[str, ...] = ()  # levels that were ever trained on, in the order they were come to
    drawn: Mapping[str, int] = dataclasses.field(default_factory=dict)  # tasks drawn from each split's order
    histories: Mapping[str, History] = dataclasses.field(default_factory=dict)  # by level
    evaluations: int = 0  # of the level that is trained on, over the run
    # the step budget
    factor: float | None = None  # None before its first change on this level
    factor_since: int = 0  # RL iterations that were finished when it was last decided on
    wins: int = 0  # training games since then, replays left out
    games: int = 0
    # mastery
    streak: int = 0  # successive iterations of mastery of all that is the level's or mixture's own
    streaks: Mapping[str, int] = dataclasses.field(default_factory=dict)  # the same by split of a mixture

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> CurriculumState:
        """From `as_dict`, as JSON keeps it."""
        histories = {level: History.of(history) for level, history in saved["histories"].items()}
        return cls(**{**saved, "trained": tuple(saved["trained"]), "histories": histories})

    def as_dict(self) -> dict[str, Any]:
        """For a run's position."""
        return dataclasses.asdict(self)

    def at_level(self, level: str, finished: int) -> CurriculumState:
        """After coming to a level: what was learnt about the other one's budget and mastery counts no more."""
        return dataclasses.replace(
            self.with_factor(None, finished),
            level=level,
            since=finished,
            trained=self.trained if level in self.trained else (*self.trained, level),
            streak=0,
        )

    def with_factor(self, factor: float | None, finished: int) -> CurriculumState:
        """After a decision on the step budget; the games that led to it count no more."""
        return dataclasses.replace(self, factor=factor, factor_since=finished, wins=0, games=0)

    def with_history(self, level: str, history: History) -> CurriculumState:
        """After an evaluation of a level."""
        return dataclasses.replace(self, histories={**self.histories, level: history})

    def last_success(self, level: str) -> float | None:
        """Of its newest evaluation that counted, if there was any."""
        history = self.histories.get(level)
        return history.scores[-1].success if history and history.scores else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """What followed from an iteration or an evaluation."""

    state: CurriculumState
    messages: tuple[str, ...] = ()  # decisions and alarms, a sentence each
