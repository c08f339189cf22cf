"""In which order tasks are trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxmtrl.types import Task


def task_batch(tasks: Sequence[Task], *, seed: Sequence[int], first: int, count: int) -> list[Task]:
    """Draws `first` to `first + count - 1` of an endless order in which every task comes once before any comes again.

    Args:
        seed: numbers that name the order, for example run seed and stage.
        first: how many tasks were drawn before.
        count: tasks to draw; may exceed the number of tasks.
    """
    chosen: list[Task] = []
    while len(chosen) < count:
        epoch, place = divmod(first + len(chosen), len(tasks))
        order = np.random.default_rng((*seed, 0x7A5C, epoch)).permutation(len(tasks))
        chosen += [tasks[index] for index in order[place : place + count - len(chosen)]]
    return chosen
