"""How well evaluated splits were played at best and at last."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxmtrl.scores import Score


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
