"""What the study of arXiv 2510.01132 (v2) printed: its tables as numbers, and what is known to be wrong with them.

Success on 100 games a number, of one seed, without intervals. Only the tables that a study here stands beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SOURCE = "arXiv 2510.01132 (v2)"
N = 100  # evaluation games behind each of the source's numbers; it names no seeds but one


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """One table of the source."""

    name: str  # its number there, "T1"
    about: str
    model: str
    values: Mapping[str, Mapping[str, float]]  # row -> column -> success
    faults: tuple[str, ...] = ()  # a sentence each


def _table(name: str, about: str, model: str, values: dict[str, dict[str, float]], *faults: str) -> PublishedTable:
    return PublishedTable(name=name, about=about, model=model, values=MappingProxyType(values), faults=faults)


_SMALL, _LARGE = "Qwen2.5-1.5B-Instruct", "Qwen2.5-7B-Instruct"
_TABLES = (
    _table(
        "T1",
        "TextWorld complexity",
        _SMALL,
        {
            "w2-o3-q4": {"base": 0.17, "PPO": 0.88},
            "w8-o3-q4": {"base": 0.07, "PPO": 0.68},
            "w2-o12-q4": {"base": 0.08, "PPO": 0.54},
            "w8-o12-q4": {"base": 0.03, "PPO": 0.51},
        },
        "The caption says 12 steps, but .17 and .88 are the numbers of the row of 16 steps in T4.",
        "Its text calls 88 % and 51 % improvements; they are rates (the gains are 71 and 48 points).",
        "Objects cost PPO more than rooms (.34 against .20 of .88); .54 and .51 cannot be told apart at n = 100.",
    ),
    _table(
        "T3",
        "model size",
        f"{_SMALL} and {_LARGE}",
        {
            "w2-o3-q4/1.5B": {"base": 0.15, "PPO": 0.80},
            "w2-o3-q4/7B": {"base": 0.65, "PPO": 0.98},
            "w4-o6-q8/1.5B": {"base": 0.01, "PPO": 0.59},
            "w4-o6-q8/7B": {"base": 0.28, "PPO": 0.72},
        },
        "The 1.5B model on w2-o3-q4 has .80 here (12 steps) and .88 in T1 and T10.",
    ),
    _table(
        "T4",
        "step budget on w2-o3-q4",
        _SMALL,
        {
            "6": {"base": 0.05, "PPO": 0.55},
            "8": {"base": 0.09, "PPO": 0.73},
            "12": {"base": 0.15, "PPO": 0.80},
            "16": {"base": 0.17, "PPO": 0.88},
        },
        "Its text says that performance saturates beyond 8 steps; the table goes on from .73 to .80 to .88.",
    ),
    _table(
        "T5",
        "transfer, trained on the row and tested on the column",
        _SMALL,
        {
            "w2-o3-q4": {"w2-o12-q4": 0.40, "w8-o3-q4": 0.51, "w8-o12-q4": 0.27, "w4-o6-q8": 0.12},
            "w8-o3-q4": {"w2-o12-q4": 0.50, "w8-o3-q4": 0.68, "w8-o12-q4": 0.51, "w4-o6-q8": 0.21},
            "w2-o12-q4": {"w2-o12-q4": 0.54, "w8-o3-q4": 0.27, "w8-o12-q4": 0.27, "w4-o6-q8": 0.13},
            "both": {"w2-o12-q4": 0.41, "w8-o3-q4": 0.52, "w8-o12-q4": 0.34, "w4-o6-q8": 0.17},
        },
        "A policy of w8-o3-q4 has the .51 on w8-o12-q4 that T1 gives to training on w8-o12-q4 itself.",
    ),
    _table(
        "T7",
        "ALFWorld mixes, unseen rooms",
        _LARGE,
        {
            "single": {"single": 0.63, "all": 0.59},
            "four": {"single": 0.82, "all": 0.80},
            "six": {"single": 0.76, "all": 0.74},
        },
        "Its gains are counted from the policy after SFT (.44 and .47), not from the untrained one (about 0).",
        'The four types are given in two ways, one of them with a type "cook" that ALFWorld does not have.',
        "None of the four is pick and place, so the single type is held out for the policy of the four.",
    ),
    _table(
        "T9",
        "a budget of 1000 units on w2-o3-q4, one demonstration counted as ten games",
        _SMALL,
        {
            "0": {"SFT+PPO": 0.54, "SFT+PPO w4-o6-q8": 0.11},
            "20": {"SFT": 0.59, "SFT w4-o6-q8": 0.15, "SFT+PPO": 0.62, "SFT+PPO w4-o6-q8": 0.15},
            "40": {"SFT": 0.75, "SFT w4-o6-q8": 0.51, "SFT+PPO": 0.72, "SFT+PPO w4-o6-q8": 0.44},
            "60": {"SFT": 0.71, "SFT w4-o6-q8": 0.53, "SFT+PPO": 0.85, "SFT+PPO w4-o6-q8": 0.59},
            "80": {"SFT": 0.94, "SFT w4-o6-q8": 0.29, "SFT+PPO": 0.95, "SFT+PPO w4-o6-q8": 0.35},
            "100": {"SFT": 0.95, "SFT w4-o6-q8": 0.55},
        },
        "It calls 60 demonstrations and 400 games the best mix, and imitation alone poor at generalising; its .59 and "
        ".55 on w4-o6-q8 cannot be told apart at n = 100, and on w2-o3-q4 imitation alone wins (.95 against .85).",
        "It is not monotone: with 40 demonstrations RL made both numbers worse, and from 60 to 80 imitation falls from "
        ".53 to .29 on w4-o6-q8.",
        "The games are played again in every epoch, so a unit of RL is a distinct game and not a play.",
    ),
    _table(
        "T10",
        "algorithms",
        f"{_SMALL} and {_LARGE}",
        {
            "w2-o3-q4/1.5B": {"base": 0.15, "RLOO": 0.51, "PPO": 0.88, "Reinforce++": 0.18, "GRPO": 0.18},
            "w4-o6-q8/1.5B": {"base": 0.01, "RLOO": 0.00, "PPO": 0.59, "Reinforce++": 0.00, "GRPO": 0.02},
            "w2-o3-q4/7B": {"base": 0.65, "RLOO": 0.97, "PPO": 0.98, "Reinforce++": 0.72, "GRPO": 0.79},
            "w4-o6-q8/7B": {"base": 0.28, "RLOO": 0.47, "PPO": 0.72, "Reinforce++": 0.33, "GRPO": 0.36},
        },
        "The recipes that were released for RLOO and GRPO play each game once, which leaves them without a baseline.",
        "The REINFORCE++ that was released set the return back at every observation token, so that only the last turn "
        "was learnt from; its .18 is plausibly this.",
        "PPO's advantages are whitened there and RLOO's are not, so normalisations are compared as well.",
        "It mixes the base of 12 steps (.15) with PPO's number of 16 (.88).",
    ),
    _table(
        "T11",
        "reward density on tw-simple",
        _LARGE,
        {
            "sparse": {"base": 0.29, "PPO": 0.41, "RLOO": 0.35},
            "balanced": {"base": 0.29, "PPO": 0.29, "RLOO": 0.55},
            "dense": {"base": 0.29, "PPO": 0.58, "RLOO": 0.55},
        },
        "Its text says that PPO gains from more frequent rewards; its own row of a reward in 2.89 steps gains nothing.",
        "The rewards that were released pay more for losing after six sub-goals than for winning.",
    ),
    _table(
        "T13",
        "sweep of PPO's settings on w2-o3-q4, epoch 30",
        _SMALL,
        {
            "kl.01-t.7-fast": {"PPO": 0.90},
            "kl.01-t.8": {"PPO": 0.86},
            "kl.01-t.7": {"PPO": 0.78},
            "kl.01-t1": {"PPO": 0.71},
            "kl.005-t.7": {"PPO": 0.66},
            "kl.01-t.7-discounted": {"PPO": 0.66},
            "kl.001-t1": {"PPO": 0.57},
            "kl.001-t.7": {"PPO": 0.43},
        },
        "Its appendix names a KL weight of .001 as its default and .01 as the best, and the latter as used throughout.",
    ),
)
TABLES: Mapping[str, PublishedTable] = MappingProxyType({table.name: table for table in _TABLES})


def published_value(reference: str) -> float | None:
    """The number behind "TABLE/ROW/COLUMN", for example "T1/w2-o3-q4/PPO"; None if the source has none there."""
    name, _, rest = reference.partition("/")
    row, _, column = rest.rpartition("/")
    table = TABLES.get(name)
    return table.values.get(row, {}).get(column) if table else None


def all_references() -> list[str]:
    """Every reference that there is a number behind."""
    return [
        f"{table.name}/{row}/{column}"
        for table in TABLES.values()
        for row, columns in table.values.items()
        for column in columns
    ]
