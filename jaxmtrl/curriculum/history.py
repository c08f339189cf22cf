"""What evaluations found out about a level, oldest first, as far back as anything asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxmtrl.scores import Score

KEPT = 32  # evaluations of a level; no gate looks back as far


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
