"""What evaluations found out about a level, oldest first, as far back as anything asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

KEPT = 32  # evaluations of a level; no gate looks back as far


class Evaluated(Protocol):
    """What is known of one evaluation of a split; see `evaluation.SplitResult`."""

    @property
    def success(self) -> float: ...  # share of the played episodes that were solved
    @property
    def ci95(self) -> tuple[float, float]: ...  # 95 % interval of `success`
    @property
    def n(self) -> int: ...  # episodes played to an end


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """One evaluation of a level."""

    iteration: int  # RL iterations that were finished
    n: int  # episodes played to an end
    success: float
    low: float  # 95 % interval of `success`
    high: float

    @classmethod
    def of(cls, iteration: int, result: Evaluated) -> Score:
        """As a state keeps it, which is written as JSON."""
        low, high = result.ci95
        return cls(iteration=iteration, n=result.n, success=float(result.success), low=float(low), high=float(high))


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """All that is remembered of a level."""

    scores: tuple[Score, ...] = ()  # the last KEPT
    best: Score | None = None  # of all, the first of equals

    @classmethod
    def of(cls, saved: dict[str, Any]) -> History:
        """From `dataclasses.asdict`, as JSON keeps it."""
        best = saved["best"]
        return cls(
            scores=tuple(Score(**score) for score in saved["scores"]), best=None if best is None else Score(**best)
        )

    def including(self, score: Score) -> History:
        """After one more evaluation."""
        best = score if self.best is None or score.success > self.best.success else self.best
        return History(scores=(*self.scores, score)[-KEPT:], best=best)

    def since(self, iteration: int) -> Sequence[Score]:
        """The scores of later iterations than this."""
        return [score for score in self.scores if score.iteration > iteration]
