"""What a checkpoint keeps of the alarms: a small value that goes through JSON unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxmtrl.alarms.history import History
from jaxmtrl.alarms.splits import Standing
from jaxmtrl.scores import Evaluated, Score


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ringing:
    """An alarm that was raised and is not over."""

    since: int  # RL iteration with which the trouble began
    noticed: int  # RL iteration after which it was raised
    calm: int = 0  # iterations in a row, up to the last, without its signs


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlarmState:
    """What is remembered, what rings, and what followed by itself."""

    tasks: str = ""  # what is trained on; its change begins the history anew
    history: History = History()
    verbs: tuple[str, ...] = ()  # that the environment ever understood, in the order they were first said
    splits: Mapping[str, Standing] = dataclasses.field(default_factory=dict)  # evaluated, by name
    ringing: Mapping[str, Ringing] = dataclasses.field(default_factory=dict)  # by name of the alarm
    turned: Mapping[str, int] = dataclasses.field(default_factory=dict)  # reaction → RL iterations finished before it

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> AlarmState:
        """From `as_dict`, as JSON keeps it; empty is the start."""
        if not saved:
            return cls()
        return cls(
            tasks=saved["tasks"],
            history=History.of(saved["history"]),
            verbs=tuple(saved["verbs"]),
            splits={name: Standing.of(standing) for name, standing in saved["splits"].items()},
            ringing={name: Ringing(**ringing) for name, ringing in saved["ringing"].items()},
            turned=dict(saved["turned"]),
        )

    def as_dict(self) -> dict[str, Any]:
        """For a run's position."""
        return dataclasses.asdict(self)

    def evaluated(self, split: str, finished: int, result: Evaluated) -> AlarmState:
        """After an evaluation of a split; one of which nothing was played to an end is not counted.

        Args:
            finished: RL iterations that were finished; 0 for the policy that RL began with.
        """
        if result.n == 0:
            return self
        score = Score.of(finished, result)
        standing = self.splits[split].after(score) if split in self.splits else Standing(best=score, now=score)
        return dataclasses.replace(self, splits={**self.splits, split: standing})
