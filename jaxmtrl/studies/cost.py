"""What a study will take: its cells, what is done of them, and the time of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from jaxmtrl.studies.grid import Run, Study


@dataclass(frozen=True, kw_only=True)
class CellCost:
    """One cell, over its seeds."""

    cell: str
    done: int
    begun: int
    to_do: int  # neither done nor begun
    minutes: float  # of one run
    known_from: str  # where `minutes` comes from

    @property
    def minutes_left(self) -> float:
        """Of all runs that are not done; one that has begun counts as whole."""
        return self.minutes * (self.begun + self.to_do)


def cost_of(study: Study, runs: Sequence[Run], results: Mapping[Run, Mapping[str, Any]]) -> list[CellCost]:
    """The cost of every cell, by runs of that cell where some have ended, else by those of the others.

    Args:
        results: of the runs that have ended.
    """
    timed = {run: float(result["wall_s"]) / 60 for run, result in results.items()}
    costs = []
    for cell in dict.fromkeys(run.cell for run in runs):
        own = [run for run in runs if run.cell == cell]
        done = [run for run in own if run in results]
        begun = [run for run in own if run not in results and (run.folder / "config.yaml").exists()]
        if done:
            minutes, known_from = mean(timed[run] for run in done), "measured"
        elif timed:
            minutes, known_from = mean(timed.values()), "as the other cells"
        else:
            minutes, known_from = study.minutes_per_run, "as the file says"
        costs.append(
            CellCost(
                cell=cell,
                done=len(done),
                begun=len(begun),
                to_do=len(own) - len(done) - len(begun),
                minutes=minutes,
                known_from=known_from,
            )
        )
    return costs


def as_lines(study: Study, costs: Sequence[CellCost], jobs: int) -> list[str]:
    """The costs for people."""
    width = max(len("cell"), *(len(cost.cell) for cost in costs))
    runs = sum(cost.done + cost.begun + cost.to_do for cost in costs)
    seeds = runs // len(costs)
    head = f"{'cell':<{width}}  done  begun  to do  minutes a run"
    lines = [f"{study.name}: {len(costs)} cells, {seeds} seeds each, {runs} runs", head]
    for c in costs:
        lines.append(f"{c.cell:<{width}}  {c.done:>4}  {c.begun:>5}  {c.to_do:>5}  {c.minutes:>8.1f} ({c.known_from})")
    left = sum(cost.minutes_left for cost in costs)
    before = f" after {study.minutes_before:.0f} min for games that are not built yet" if left else ""
    lines.append(f"left: {_time(left)} of training{before}" if left else "left: nothing to train")
    if jobs > 1 and left:
        lines.append(f"--jobs {jobs}: {_time(left / jobs)} at best; runs share the cores, so it may be no faster")
    return lines


def _time(minutes: float) -> str:
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min"
