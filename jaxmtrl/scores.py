"""One evaluation as a state keeps it, the interval of a share, and how much two of them differ."""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol


class Evaluated(Protocol):
    """What is known of one evaluation of a split; see `evaluation.SplitResult`."""

    @property
    def success(self) -> float: ...  # share of the played episodes that were solved
    @property
    def ci95(self) -> tuple[float, float]: ...  # 95 % interval of `success`
    @property
    def n(self) -> int: ...  # episodes played to an end


def wilson_interval(successes: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Confidence interval of a share (Wilson 1927), which stays inside [0, 1] and is not empty at 0 and n.

    (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)

    Args:
        successes: 0 ≤ successes ≤ n.
        n: trials; (0, 1) if there was none.
        z: normal quantile, 1.96 for 95 %.
    """
    if n == 0:
        return 0.0, 1.0
    p, spread = successes / n, z * z / n
    centre = p + spread / 2
    half = z * math.sqrt(p * (1 - p) / n + spread / (4 * n))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """One evaluation of a split."""

    iteration: int  # RL iterations that were finished; 0: before RL
    n: int  # episodes played to an end
    success: float
    low: float  # 95 % interval of `success`
    high: float

    @classmethod
    def of(cls, iteration: int, result: Evaluated) -> Score:
        """As a state keeps it, which is written as JSON."""
        low, high = result.ci95
        return cls(iteration=iteration, n=result.n, success=float(result.success), low=float(low), high=float(high))


def fall_interval(before: Score, now: Score) -> tuple[float, float]:
    """95 % interval of the fall from one success to another, taken as independent samples.

    With shares p (before) and q (now) and their Wilson intervals [p-, p+] and [q-, q+]:

        p - q - sqrt((p - p-)² + (q+ - q)²)   to   p - q + sqrt((p+ - p)² + (q - q-)²)

    The same tasks are played each time, for which it is rather too wide. Where `before` is the best of several, that
    flatters it: an alarm is a reason to look, not a proof.

    Source: Newcombe 1998, method 10, https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I.
    """
    fall = before.success - now.success
    down = math.hypot(before.success - before.low, now.high - now.success)
    up = math.hypot(before.high - before.success, now.success - now.low)
    return fall - down, fall + up
