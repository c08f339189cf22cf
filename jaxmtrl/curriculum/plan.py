"""The tasks of one iteration, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxmtrl.curriculum.mixture import Drawn, Role
from jaxmtrl.curriculum.state import CurriculumState
from jaxmtrl.types import Episode, Task


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One batch of training tasks."""

    drawn: tuple[Drawn, ...]  # the index is the episodes' `group`
    state: CurriculumState  # after drawing

    @property
    def tasks(self) -> list[Task]:
        return [drawn.task for drawn in self.drawn]

    def outcomes(
        self,
        episodes: Sequence[Episode],
        *,
        roles: Sequence[Role] = ("own", "core", "replay"),
        split: str | None = None,
    ) -> list[bool]:
        """Which plays were won, failed episodes left out.

        Args:
            episodes: of this batch, in any order.
            roles: of the tasks that are asked about.
            split: that they were drawn from; None for any.
        """
        return [
            episode.success
            for episode in episodes
            if not episode.failed
            and self.drawn[episode.group].role in roles
            and (split is None or self.drawn[episode.group].split == split)
        ]

    def metrics(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Success by role where a batch has several, under the names it is logged by."""
        roles: list[Role] = list(dict.fromkeys(drawn.role for drawn in self.drawn))
        won = {role: self.outcomes(episodes, roles=[role]) for role in roles}
        return {
            f"curriculum/{role}_success": sum(won[role]) / len(won[role])
            for role in roles
            if len(roles) > 1 and won[role]
        }
