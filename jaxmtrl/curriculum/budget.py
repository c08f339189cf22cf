"""How many steps a training game may take: a multiple of the expert's way, which follows success."""

from __future__ import annotations

import math

_ROUNDING = 1e-9  # 25 * 2.2 is a little more than 55


def steps_for(optimal: int, factor: float, own: int) -> int:
    """Steps after which a game is cut.

    Never less than the expert needs, so that it can be won, and never more than the task has by itself: what a run
    has room for, and what its penalties add up to, was reckoned with that many.

        4 commands, factor 2, own limit 12: 8 steps; factor 1.25: 5; factor 1.3: 6 (rounded up); factor 4: 12

    Args:
        optimal: commands of the expert's way, 1 or more.
        factor: steps a command, 1 or more.
        own: the limit that the task came with.
    """
    return min(own, max(optimal, math.ceil(optimal * factor - _ROUNDING)))


def adapted_factor(
    factor: float,
    success: float,
    *,
    change: float,
    tighten_above: float,
    loosen_below: float,
    least: float,
    most: float,
) -> float:
    """The next factor: smaller where success is high, larger where it is low, within its caps.

    With change .25, from 2: 1.5, 1.125 while success is high; 2.5, 3.125 while it is low. One of each leaves 0.94 of
    it, so that a policy at a threshold drifts towards fewer steps.

    Args:
        factor: as it is.
        success: share of training games that were won under it, in [0, 1].
        change: share of itself by which it changes, in (0, 1).
        tighten_above, loosen_below: of success; nothing changes from one to the other, both included.
        least, most: the caps.
    """
    if success > tighten_above:
        factor *= 1 - change
    elif success < loosen_below:
        factor *= 1 + change
    return min(max(factor, least), most)
