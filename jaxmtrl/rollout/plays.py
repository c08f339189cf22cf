"""What is to be played, and how the processes of a run share it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.parallel.hosts import Hosts
from jaxmtrl.types import Episode, Task


@dataclass(frozen=True, kw_only=True)
class Play:
    """One episode to be played."""

    task: Task
    group: int  # index of the task within the batch
    index: int  # which play of the group
    seed: tuple[int, int]  # two 32-bit numbers that all draws of the episode depend on


def seeded_plays(tasks: Sequence[Task], *, group_size: int, seed: Sequence[int]) -> list[Play]:
    """Every task `group_size` times, each play with draws of its own.

    Args:
        seed: numbers that name the batch, for example run seed, stage and iteration.
    """
    return [
        Play(
            task=task,
            group=group,
            index=index,
            seed=tuple(int(n) for n in np.random.SeedSequence([*seed, group, index]).generate_state(2)),  # type: ignore[arg-type]
        )
        for group, task in enumerate(tasks)
        for index in range(group_size)
    ]


def own_plays(hosts: Hosts, plays: Sequence[Play]) -> list[Play]:
    """This process's part: a piece of the list, so that plays of one task, which share a prompt, stay together."""
    count = len(plays)
    return list(plays[hosts.index * count // hosts.count : (hosts.index + 1) * count // hosts.count])


def shared_plays(
    hosts: Hosts,
    plays: Sequence[Play],
    play: Callable[[Sequence[Play]], list[Episode]],
    report: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Has every process play its part and gives all of them all episodes.

    Args:
        play: plays some of them.
        report: is told of the others' episodes as well, once they have come.

    Raises:
        JaxmtrlError: of any process, in all of them.
    """
    if hosts.count == 1:
        return play(plays)
    outcome: list[Episode] | JaxmtrlError
    try:
        outcome = play(own_plays(hosts, plays))
    except JaxmtrlError as err:
        outcome = err
    outcomes = [pickle.loads(content) for content in hosts.share(pickle.dumps(outcome))]
    episodes: list[Episode] = []
    for index, found in enumerate(outcomes):
        if isinstance(found, JaxmtrlError):
            raise found
        episodes += found
        if report is not None and index != hosts.index:
            for episode in found:
                report(episode)
    return episodes
