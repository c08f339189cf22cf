"""How well evaluated splits were played at best and at last."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Protocol


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
    """One evaluation of a split."""

    finished: int  # RL iterations that were finished; 0: before RL
    n: int  # episodes played to an end
    success: float
    low: float  # 95 % interval of `success`
    high: float

    @classmethod
    def of(cls, finished: int, result: Evaluated) -> Score:
        """As a state keeps it, which is written as JSON."""
        low, high = result.ci95
        return cls(finished=finished, n=result.n, success=float(result.success), low=float(low), high=float(high))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """The best of all evaluations of a split, the first of equals, and the last one."""

    best: Score
    now: Score

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Standing:
        """From `dataclasses.asdict`, as JSON keeps it."""
        return cls(best=Score(**saved["best"]), now=Score(**saved["now"]))

    def after(self, score: Score) -> Standing:
        """After one more evaluation."""
        return Standing(best=score if score.success > self.best.success else self.best, now=score)


def fall_interval(before: Score, now: Score) -> tuple[float, float]:
    """95 % interval of the fall from one success to another, taken as independent samples.

    With shares p (before) and q (now) and their Wilson intervals [p-, p+] and [q-, q+]:

        p - q - sqrt((p - p-)² + (q+ - q)²)   to   p - q + sqrt((p+ - p)² + (q - q-)²)

    The same tasks are played each time, for which it is rather too wide; the best of several flatters it.

    Source: Newcombe 1998, method 10, https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I.
    """
    fall = before.success - now.success
    down = math.hypot(before.success - before.low, now.high - now.success)
    up = math.hypot(before.high - before.success, now.success - now.low)
    return fall - down, fall + up
