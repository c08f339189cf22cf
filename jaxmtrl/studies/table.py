"""From the results of runs to figures over seeds, and from figures to whether a claim's direction is found here.

The interval of a figure has to answer for two draws, that of the seeds and that of the evaluation games, which are the
same at every seed. It reaches as far as the wider of these at either end:

    seeds: mean ± t(k-1, .975) · s / √k over the k seeds' success
    games: Wilson's interval of the mean over the n games of one seed; n, not k · n, since more seeds are no more games

The pooled Wilson interval over k · n plays, which takes every play for a draw of its own, is given beside it. The
difference of two figures is made likewise, of the seeds that both have: Student's interval over the differences seed by
seed (cells may share what a seed began with), and Newcombe's over the games.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from jaxmtrl.evaluation import wilson_interval
from jaxmtrl.stages import EVALUATED
from jaxmtrl.studies.grid import Claim, Run, Study
from jaxmtrl.studies.published import N, published_value
from jaxmtrl.studies.reading import published_pair

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Success of one cell on one split by the policy of one stage, over all seeds that have ended."""

    cell: str
    split: str
    policy: str
    by_seed: Mapping[int, float]  # seed -> share of its games that were won
    n: int  # games a seed; the fewest, if games failed
    failed: int  # episodes without an outcome, all seeds together; they count nowhere
    mean: float  # of the seeds
    ci95: Interval  # of `mean`, as the module says
    pooled_ci95: Interval  # Wilson's over all plays of all seeds
    turns: float  # a game, mean
    invalid_action_rate: float  # share of turns
    model_params: int
    published: str = ""  # reference of the source's number, "T1/w2-o3-q4/PPO"

    @property
    def reference(self) -> str:
        return f"{self.cell}/{self.split}/{self.policy}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One claim, held against our figures."""

    claim: Claim
    difference: float | None  # higher - lower, ours; None where a figure is missing
    ci95: Interval | None
    published: tuple[float, float] | None  # the source's numbers for higher and lower
    published_ci95: Interval | None  # of their difference, by the source's own n

    @property
    def word(self) -> str:
        """Whether our direction is the claim's."""
        if self.ci95 is None:
            return "no figure"
        low, high = self.ci95
        return "agrees" if low > 0 else "disagrees" if high < 0 else "cannot tell"

    @property
    def published_word(self) -> str:
        """Whether the source's own numbers carry its claim."""
        if self.published_ci95 is None:
            return "no number"
        return "told apart" if self.published_ci95[0] > 0 else "not told apart"


def figures_of(study: Study, results: Mapping[Run, Mapping[str, Any]]) -> list[Figure]:
    """Every figure there is, in the order of cells, splits and stages; cells that are not shown are left out."""
    by_cell: dict[str, list[Mapping[str, Any]]] = {}
    for run, result in results.items():
        by_cell.setdefault(run.cell, []).append(result)
    figures = []
    for cell, its in study.grid.items():
        if its.shown and cell in by_cell:
            own = by_cell[cell]
            for split in dict.fromkeys(split for result in own for split in result["splits"]):
                for policy in EVALUATED:
                    figure = _figure(cell, split, policy, own, study.published.get(f"{cell}/{split}/{policy}", ""))
                    figures += [figure] if figure else []
    return figures


def _figure(cell: str, split: str, policy: str, results: Sequence[Mapping[str, Any]], published: str) -> Figure | None:
    """None if no seed has played the split with that policy to an end."""
    played = {
        int(result["seed"]): result["splits"][split][policy]
        for result in results
        if policy in result["splits"].get(split, {})
    }
    ended = {seed: its for seed, its in played.items() if its["success"] is not None and its["n"]}
    if not ended:
        return None
    shares = {seed: float(ended[seed]["success"]) for seed in sorted(ended)}
    counts = [int(its["n"]) for its in ended.values()]
    wins = sum(round(its["success"] * its["n"]) for its in ended.values())
    return Figure(
        cell=cell,
        split=split,
        policy=policy,
        by_seed=shares,
        n=min(counts),
        failed=sum(int(its["failed"]) for its in played.values()),
        mean=fmean(shares.values()),
        ci95=interval(list(shares.values()), min(counts)),
        pooled_ci95=wilson_interval(wins, sum(counts)),
        turns=fmean(its["turns"] for its in ended.values()),
        invalid_action_rate=fmean(its["invalid_action_rate"] for its in ended.values()),
        model_params=int(results[0]["model_params"]),
        published=published,
    )


def interval(shares: Sequence[float], n: int) -> Interval:
    """95 % interval of the mean of a success over seeds, for other seeds and other games.

    Args:
        shares: of won games, one a seed, each in [0, 1].
        n: games, the same at every seed.
    """
    mean, half = fmean(shares), _half_width(shares)
    games = _wilson(mean, n)
    return max(0.0, min(games[0], mean - half)), min(1.0, max(games[1], mean + half))


def newcombe(p: float, p_ci: Interval, q: float, q_ci: Interval) -> Interval:
    """95 % interval of p - q, made of those of p and q (Newcombe 1998, Statistics in Medicine 17, method 10).

    d - √((p - l_p)² + (u_q - q)²) to d + √((u_p - p)² + (q - l_q)²)
    """
    d = p - q
    return d - math.hypot(p - p_ci[0], q_ci[1] - q), d + math.hypot(p_ci[1] - p, q - q_ci[0])


def difference(
    higher: Mapping[int, float], higher_n: int, lower: Mapping[int, float], lower_n: int
) -> tuple[float, Interval] | None:
    """Mean difference of two successes over the seeds that both have, with its 95 % interval; None if there is none.

    Args:
        higher, lower: seed -> share of won games.
        higher_n, lower_n: games a seed.
    """
    seeds = sorted(set(higher) & set(lower))
    if not seeds:
        return None
    p, q = fmean(higher[seed] for seed in seeds), fmean(lower[seed] for seed in seeds)
    games = newcombe(p, _wilson(p, higher_n), q, _wilson(q, lower_n))
    half = _half_width([higher[seed] - lower[seed] for seed in seeds])
    return p - q, (max(-1.0, min(games[0], p - q - half)), min(1.0, max(games[1], p - q + half)))


def _half_width(values: Sequence[float]) -> float:
    """Half of Student's 95 % interval of a mean; 0 for a single value, which has no spread to tell of."""
    k = len(values)
    return float(stdtrit(k - 1, 0.975)) * stdev(values) / math.sqrt(k) if k > 1 else 0.0


def _wilson(share: float, n: int) -> Interval:
    return wilson_interval(round(share * n), n)


def verdicts_of(study: Study, figures: Sequence[Figure]) -> list[Verdict]:
    """Every claim of the study, held against the figures."""
    known = {figure.reference: figure for figure in figures}
    return [_verdict(study, claim, known.get(claim.higher), known.get(claim.lower)) for claim in study.claims]


def _verdict(study: Study, claim: Claim, higher: Figure | None, lower: Figure | None) -> Verdict:
    pair = published_pair(study, claim)
    theirs = newcombe(pair[0], _wilson(pair[0], N), pair[1], _wilson(pair[1], N)) if pair else None
    ours = difference(higher.by_seed, higher.n, lower.by_seed, lower.n) if higher and lower else None
    d, ci95 = ours or (None, None)
    return Verdict(claim=claim, difference=d, ci95=ci95, published=pair, published_ci95=theirs)


def published_number(figure: Figure) -> float | None:
    """The source's number beside a figure, if there is one."""
    return published_value(figure.published) if figure.published else None
