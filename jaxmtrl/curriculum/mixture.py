"""What a batch is made of: so much of each split, in whole tasks, and which ones.

Every split has one endless order, whoever draws from it, so that none of its tasks comes twice before all came.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxmtrl.curriculum.order import task_batch
from jaxmtrl.types import Task

Role = Literal["own", "core", "replay"]  # of the level or mixture; of the core split; of an earlier level
_NONE = 1e-9  # of a task
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class Portion:
    """A part of every batch."""

    split: str
    role: Role
    share: float  # of the batch, in [0, 1]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One task of a batch."""

    task: Task
    split: str
    role: Role


def portions(
    own: Mapping[str, float],
    *,
    core: str = "",
    core_share: float = 0.0,
    replayed: Sequence[str] = (),
    replay_share: float = 0.0,
) -> list[Portion]:
    """The shares of a batch: core and replay first, the rest by weight.

    Args:
        own: weight of each split of the level or mixture, above 0.
        core: split of the core share; "" is none.
        core_share: of the batch.
        replayed: splits of earlier levels, which share `replay_share` alike; none leaves it to `own`.
        replay_share: of the batch; with `core_share` less than 1.
    """
    core_share = core_share if core else 0.0
    replay_share = replay_share if replayed else 0.0
    rest, weights = 1 - core_share - replay_share, sum(own.values())
    parts = [Portion(split=split, role="own", share=rest * weight / weights) for split, weight in own.items()]
    parts += [Portion(split=core, role="core", share=core_share)] if core_share else []
    parts += [Portion(split=split, role="replay", share=replay_share / len(replayed)) for split in replayed]
    return [part for part in parts if part.share > 0]


def whole_tasks(shares: Sequence[float], *, count: int, iteration: int) -> list[int]:
    """Shares of `count` tasks as whole numbers that add up to it.

    Each is its share rounded down or up: what the parts want beyond whole tasks is laid end to end, and whoever lies at
    u, u + 1, … gets one more (systematic sampling). u steps by the golden ratio from one iteration to the next, so that
    over some iterations everyone has what it wants, also a tenth of a batch of four.

    Args:
        shares: of a batch, in [0, 1], that add up to 1.
        iteration: whose batch it is.
    """
    wanted = [share * count for share in shares]
    numbers = [math.floor(want + _NONE) for want in wanted]
    left = count - sum(numbers)
    ends = np.cumsum([max(0.0, want - number) for want, number in zip(wanted, numbers)])
    for place in (iteration * _GOLDEN) % 1 + np.arange(left):
        numbers[int(np.searchsorted(ends[:-1], place, side="right"))] += 1
    return numbers


def draw(
    parts: Sequence[Portion],
    tasks: Mapping[str, Sequence[Task]],
    drawn: Mapping[str, int],
    *,
    seed: int,
    iteration: int,
    count: int,
) -> tuple[list[Drawn], dict[str, int]]:
    """The tasks of one batch, the parts mixed, and how many of each split have been drawn after it.

    Args:
        tasks: of every split.
        drawn: tasks drawn before, by split; those that are not named were not drawn from.
        seed: of the run.
        iteration: whose batch it is.
        count: tasks of the batch.
    """
    batch, after = [], dict(drawn)
    for part, number in zip(parts, whole_tasks([part.share for part in parts], count=count, iteration=iteration)):
        first = after.get(part.split, 0)
        chosen = first_tasks(part.split, tasks[part.split], seed=seed, first=first, count=number)
        batch += [Drawn(task=task, split=part.split, role=part.role) for task in chosen]
        after[part.split] = first + number
    # Hosts play pieces of the batch in its order: none should have all of the long games.
    order = np.random.default_rng((seed, 0x31B5, iteration)).permutation(len(batch))
    return [batch[index] for index in order], after


def first_tasks(split: str, tasks: Sequence[Task], *, seed: int, first: int, count: int) -> list[Task]:
    """Draws `first` to `first + count - 1` of a split's order."""
    return task_batch(tasks, seed=(seed, zlib.crc32(split.encode())), first=first, count=count)
