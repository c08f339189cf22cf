"""Plays of one task are compared with each other, and a broken one with nobody."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.diagnosis.bench import Bench
from jaxmtrl.diagnosis.finding import Finding, below, none_of, not_used
from jaxmtrl.diagnosis.gauge import Gauge, plain
from jaxmtrl.diagnosis.material import ended, ledger, longest
from jaxmtrl.rollout.pack import pack
from jaxmtrl.types import Episode, EpisodeStop

_WON = (1.0, 0.0, 0.0, 1.0)  # returns of a group of four; the last one breaks in one of the two batches
_SUM, _LEFT_OUT = "group advantages are as defined", "a failed episode is left out"


def check_groups(bench: Bench, episodes: list[Episode]) -> list[Finding]:
    """A made-up group of four plays with returns 1, 0, 0, 1, whole and with the last one broken."""
    algorithm = plain(bench.config.algorithm, anchor_weight=0.0, group_size=len(_WON))
    gauge = Gauge(bench.network, bench.mesh, algorithm, bench.config.sampling.temperature, bench.base)
    play = min(episodes, key=lambda episode: len(episode.turns))
    nothing = [0.0] * (len(play.turns) - 1)
    group = [ended(play, EpisodeStop.DONE, [*nothing, reward], index=index) for index, reward in enumerate(_WON)]
    broken = [*group[:3], dataclasses.replace(group[3], stop=EpisodeStop.FAILED)]
    whole, left, without = (_first_advantages(bench, gauge, batch) for batch in (group, broken, group[:3]))
    change = float(np.abs(left[:3] - without[:3]).max())
    finding = none_of(
        _LEFT_OUT,
        change + float(not np.isnan(left[3])),
        said="what a broken play changes in the advantages of the others",
        cure="a failed episode must not be packed nor counted in group or batch statistics: it is no loss of 0",
    )
    return [_definition(algorithm, whole), finding]


def _definition(algorithm: AlgorithmSection, got: np.ndarray) -> Finding:
    wanted = _wanted(algorithm)
    if wanted is None:
        return not_used(_SUM, f"{algorithm.name} compares no plays of one task")
    return below(
        _SUM,
        float(np.abs(got - wanted).max() + abs(got.sum())),
        1e-4,
        said=f"returns 1, 0, 0, 1 give {', '.join(f'{x:.3g}' for x in wanted)}, which sum to 0",
        cure="each play must be compared with the plays of its own task: group_ids go by task, not by arrival",
    )


def _wanted(algorithm: AlgorithmSection) -> np.ndarray | None:
    """Advantages of the whole group by definition; None for an algorithm without groups."""
    returns = np.array(_WON)
    centred = returns - returns.mean()
    if algorithm.name == "rloo":
        return centred * len(returns) / (len(returns) - 1)
    if algorithm.name in ("grpo", "gspo", "gigpo"):
        return centred / (returns.std(ddof=1) + 1e-6) if algorithm.scale_by_std else centred
    if algorithm.name == "reinforce_plus_plus" and algorithm.group_baseline:
        return centred
    return None


def _first_advantages(bench: Bench, gauge: Gauge, episodes: list[Episode]) -> np.ndarray:
    """Each episode's advantage at its first action token, f32 [4]; NaN for one that is not in the batch."""
    batch = pack(episodes, row_length=longest(episodes), rows=len(_WON), num_episodes=len(_WON), pad_id=bench.pad_id)
    placed = gauge.place(batch, micro_batch_rows=len(_WON))
    advantages = np.asarray(gauge.targets(placed, gauge.blank_scores(placed)).advantages)[0]
    rows = np.full(len(_WON), np.nan)
    for number, episode in enumerate(episodes):
        if (np.asarray(batch.segment_ids) == number).any():
            place = ledger(batch, number, episode)
            rows[number] = advantages[place.row, place.sampled[0]]
    return rows
