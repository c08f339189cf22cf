"""Whether a level is left: upwards when it is solved often enough, downwards when it is solved too seldom.

One evaluation of some hundred tasks is off by several points, and the same tasks are played each time. Two things
keep a run from swinging between levels: a gate must hold in several successive evaluations, and a level that was come
to is not left for a while. Where that is not enough, `certain` asks that the whole interval is beyond the gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from jaxmtrl.scores import Score

Move = Literal["harder", "stay", "easier"]


def gate(
    scores: Sequence[Score],
    *,
    harder_above: float,
    easier_below: float,
    confirmations: int = 1,
    certain: bool = False,
) -> Move:
    """What the evaluations of a level say.

    With three of them in succession, gates .75 and .40, and two confirmations:

        .80           stay    (once)
        .80 .70       stay
        .80 .70 .76   stay
        .70 .76 .78   harder
        .75 .75 .75   stay    (a gate is passed above it, not at it)
        .39 .38       easier

    Args:
        scores: evaluations since the level was come to, oldest first; each large enough to count.
        harder_above: success above which the next level follows, in [0, 1].
        easier_below: success below which the level before returns, less than `harder_above`.
        confirmations: so many of the last scores must be beyond the gate, 1 or more.
        certain: the 95 % interval must be beyond it, not the share alone.
    """
    last = scores[-confirmations:]
    if len(last) < confirmations:
        return "stay"
    if all((score.low if certain else score.success) > harder_above for score in last):
        return "harder"
    if all((score.high if certain else score.success) < easier_below for score in last):
        return "easier"
    return "stay"


def may_leave(*, since: int, finished: int, stay: int) -> bool:
    """Whether a level that was come to after `since` RL iterations may be left after `finished`."""
    return finished - since >= stay


def earliest_arrivals(
    count: int, start: int, *, every: int, confirmations: int, stay: int, mastery_iterations: int | None
) -> dict[int, int]:
    """The fewest RL iterations after which each level can be trained on, by its number.

    Args:
        count: levels.
        start: number of the first one trained on.
        every, confirmations, stay: as the gates have them.
        mastery_iterations: iterations after which mastery raises the level; None if it never does.
    """
    # The first evaluation that counts may come one iteration after an arrival that no evaluation brought about.
    by_gate = max(stay, (confirmations - 1) * every + 1)
    up = by_gate if mastery_iterations is None else min(by_gate, max(stay, mastery_iterations))
    return {number: (number - start) * up if number >= start else (start - number) * by_gate for number in range(count)}
