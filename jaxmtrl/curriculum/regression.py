"""Whether a level that was played well is forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from jaxmtrl.curriculum.history import History
from jaxmtrl.scores import Score, fall_interval


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """A level that is solved less often than it once was."""

    level: str
    best: Score
    now: Score

    def sentence(self) -> str:
        """For the person who watches the run."""
        low, high = fall_interval(self.best, self.now)
        return (
            f"level {self.level} is being forgotten: success {self.now.success:.2f}, {self.best.success:.2f} at "
            f"iteration {self.best.iteration} (a fall of {self.best.success - self.now.success:.2f} [{low:.2f}, "
            f"{high:.2f}], n {self.now.n}); raise curriculum.replay_share, or name its split curriculum.core_split"
        )


def forgotten(level: str, history: History, *, drop: float) -> Forgotten | None:
    """An alarm if the last evaluation of a level fell from the best by more than `drop` and more than by chance."""
    if not history.scores or history.best is None:
        return None
    best, now = history.best, history.scores[-1]
    low, _ = fall_interval(best, now)
    if best.success - now.success <= drop or low <= 0:
        return None
    return Forgotten(level=level, best=best, now=now)
