"""How many tasks of each type a split has, and the order they come in. Knows no types."""

from __future__ import annotations

import math
from collections.abc import Mapping


def apportion(parts: Mapping[str, float], count: int) -> dict[str, int]:
    """Whole numbers that add up to `count` and are nearest to the parts: the largest remainders are rounded up.

    Args:
        parts: of 1, by task type; of equal remainders the earlier type's is taken to be larger.
    """
    wanted = {kind: part * count for kind, part in parts.items()}
    counts = {kind: math.floor(number) for kind, number in wanted.items()}
    left = count - sum(counts.values())
    # rounded, so that 0.1 * 3 and 0.3 of equal parts do not differ in their last digit
    by_remainder = sorted(parts, key=lambda kind: -round(wanted[kind] - counts[kind], 9))
    return {kind: number + (kind in by_remainder[:left]) for kind, number in counts.items()}


def interleave(counts: Mapping[str, int]) -> list[str]:
    """Every type as often as `counts` says, spread evenly, so that the first tasks of a split are mixed like all."""
    spread = [
        ((turn + 0.5) / number, rank, kind)
        for rank, (kind, number) in enumerate(counts.items())
        for turn in range(number)
    ]
    return [kind for _, _, kind in sorted(spread)]
