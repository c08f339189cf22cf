"""Whether a level that was played well is forgotten."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxmtrl.curriculum.history import History, Score


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """A level that is solved less often than it once was."""

    level: str
    best: Score
    now: Score

    def sentence(self) -> str:
        """For the person who watches the run."""
        low, high = drop_interval(self.best, self.now)
        return (
            f"level {self.level} is being forgotten: success {self.now.success:.2f}, {self.best.success:.2f} at "
            f"iteration {self.best.iteration} (a fall of {self.best.success - self.now.success:.2f} [{low:.2f}, "
            f"{high:.2f}], n {self.now.n}); raise curriculum.replay_share, or name its split curriculum.core_split"
        )


def drop_interval(before: Score, now: Score) -> tuple[float, float]:
    """95 % interval of the fall from one success to another, taken as independent samples.

    With shares p (before) and q (now) and their Wilson intervals [p-, p+] and [q-, q+]:

        p - q - √((p - p-)² + (q+ - q)²)   to   p - q + √((p+ - p)² + (q - q-)²)

    The same tasks are played each time, for which it is rather too wide. `before` is the best of several in most uses,
    which flatters it: an alarm is a reason to look, not a proof.

    Source: Newcombe 1998, method 10, https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I.
    """
    fall = before.success - now.success
    down = math.hypot(before.success - before.low, now.high - now.success)
    up = math.hypot(before.high - before.success, now.success - now.low)
    return fall - down, fall + up


def forgotten(level: str, history: History, *, drop: float) -> Forgotten | None:
    """An alarm if the last evaluation of a level fell from the best by more than `drop` and more than by chance."""
    if not history.scores or history.best is None:
        return None
    best, now = history.best, history.scores[-1]
    low, _ = drop_interval(best, now)
    if best.success - now.success <= drop or low <= 0:
        return None
    return Forgotten(level=level, best=best, now=now)
