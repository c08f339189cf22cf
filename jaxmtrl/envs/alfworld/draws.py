"""Random choices that are the same in every version of Python and whatever PYTHONHASHSEED is.

Only `random.Random.random` promises the same numbers for ever; `choice`, `shuffle` and `sample` may change.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Draws:
    """A stream of choices that a text begins; equal texts give equal streams."""

    def __init__(self, seed: str):
        self._random = random.Random(seed).random  # of a text the seeder takes its SHA-512, not its hash

    def below(self, bound: int) -> int:
        """A whole number of 0 to `bound` - 1, all equally likely."""
        return int(self._random() * bound)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, all equally likely."""
        return items[self.below(len(items))]

    def weighted(self, items: Sequence[Item], weights: Sequence[float]) -> Item:
        """One of the items, each as likely as its weight says; weights are at least 0 and not all 0."""
        left = self._random() * sum(weights)
        for item, weight in zip(items, weights):
            left -= weight
            if left < 0:
                return item
        return next(item for item, weight in zip(reversed(items), reversed(weights)) if weight > 0)  # rounding

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """The items in an order, all equally likely."""
        left = list(items)
        for end in range(len(left) - 1, 0, -1):
            other = self.below(end + 1)
            left[end], left[other] = left[other], left[end]
        return left
