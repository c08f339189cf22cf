"""Which tasks a run may come to, so that no other game is made: which ones it will depends on its success."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from jaxmtrl.config.curriculum_section import CurriculumSection
from jaxmtrl.curriculum.gates import earliest_arrivals
from jaxmtrl.curriculum.mixture import first_tasks
from jaxmtrl.types import Task


def tasks_in_reach(
    section: CurriculumSection,
    own: Mapping[str, float],
    tasks: Mapping[str, Sequence[Task]],
    *,
    seed: int,
    count: int,
    warmup: int,
    iterations: int,
) -> list[Task]:
    """Every training task that may be played, once, the splits by turns.

    Args:
        own: weights of the splits that are trained on where there are no levels.
        tasks: of every split.
        seed: of the run.
        count: tasks of an iteration.
        warmup: iterations that play before RL does.
        iterations: of RL.
    """
    arrivals = {} if not section.levels else _split_arrivals(section)
    orders = []
    for split, most in _most_of_a_batch(section, own, count).items():
        arrival = arrivals.get(split, 0)
        draws = most * (max(0, iterations - arrival) + (warmup if arrival == 0 else 0))
        draws = min(draws, len(tasks[split]))
        orders.append(first_tasks(split, tasks[split], seed=seed, first=0, count=draws))
    by_turns = itertools.chain.from_iterable(itertools.zip_longest(*orders))
    return list({task.id: task for task in by_turns if task is not None}.values())


def levels_in_reach(section: CurriculumSection, iterations: int) -> list[str]:
    """The levels that may be evaluated in so many RL iterations, the easiest first."""
    reached = [number for number, arrival in _level_arrivals(section).items() if arrival < iterations]
    return list(section.levels)[: max(reached, default=-1) + 1]


def _most_of_a_batch(section: CurriculumSection, own: Mapping[str, float], count: int) -> dict[str, int]:
    """The most tasks of each split that a batch can have, the level that a run begins with first."""
    core = section.core_share if section.core_split else 0.0
    rest = count - math.floor(core * count)
    if section.levels:
        levels = section.levels
        most = dict.fromkeys([levels[section.first_level].train, *(level.train for level in levels.values())], rest)
    elif section.mastery == "sample_less":
        most = dict.fromkeys(own, rest)
    else:
        most = {split: math.ceil((1 - core) * weight / sum(own.values()) * count) for split, weight in own.items()}
    if core:
        most[section.core_split] = most.get(section.core_split, 0) + math.ceil(core * count)
    return most


def _split_arrivals(section: CurriculumSection) -> dict[str, int]:
    """RL iterations before which a level's split is not trained on."""
    arrivals: dict[str, int] = {}
    for number, first in _level_arrivals(section).items():
        split = list(section.levels.values())[number].train
        arrivals[split] = min(first, arrivals.get(split, first))
    return arrivals | ({section.core_split: 0} if section.core_split else {})


def _level_arrivals(section: CurriculumSection) -> dict[int, int]:
    levels = list(section.levels)
    return earliest_arrivals(
        len(levels),
        levels.index(section.first_level) if levels else 0,
        every=section.every,
        confirmations=section.confirmations,
        stay=section.stay,
        mastery_iterations=section.mastery_iterations if section.mastery == "raise_level" else None,
    )
