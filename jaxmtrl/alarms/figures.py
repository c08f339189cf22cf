"""What a batch of training episodes tells about the health of a run, by the names it is logged under.

Only what is not measured elsewhere: success, mean return, invalid and truncated shares are in `evaluation`; KL, clip
fraction, token entropy, explained variance, uniform groups and the gap between sampler and learner come from the
learner. Failed episodes count in `episode/failed_share` and nowhere else. What nothing is known of is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from jaxmtrl.alarms.commands import commands, entropy, repeats_in_vain, verbs
from jaxmtrl.types import Episode


def batch_figures(episodes: Sequence[Episode], *, known_verbs: Collection[str]) -> dict[str, float]:
    """All figures of a batch that need no setting.

    Args:
        episodes: in any order; `group` tells which played the same task.
        known_verbs: those that the environment ever understood, this batch included.

    Returns:
        return/variance: of episode returns, over the played episodes (population).
        return/standard_error: of the mean return; `standard_error`.
        return/positive_share: share of episodes whose return is above 0.
        return/group_std: standard deviation (population) of returns within a task, mean over tasks with two plays or
            more; what RAGEN watches for the echo trap.
        return/group_variance_share: share of the variance of those tasks' returns that lies within tasks: 0 if all
            plays of a task end alike, 1 if all tasks have the same mean.
        episode/success_error: standard error of the success.
        episode/failed_share: of all episodes.
        action/command_entropy_nats, action/verb_entropy_nats: see `commands`.
        action/distinct_per_turn: different commands over turns.
        action/verb_coverage: share of the known verbs that were said.
        action/repeated_useless_rate: see `commands.repeats_in_vain`.
    """
    played = sorted((e for e in episodes if not e.failed), key=lambda e: (e.group, e.index, e.episode_return))
    returns = np.array([episode.episode_return for episode in played], np.float64)
    wins = np.array([float(episode.success) for episode in played], np.float64)
    groups = np.array([episode.group for episode in played], np.int64)
    said = commands(played)
    spoken, turns = verbs(said), said.total()
    repeats = [repeats_in_vain(episode) for episode in played]
    vain, knowable = sum(n for n, _ in repeats), sum(n for _, n in repeats)
    std, share = within_groups(returns, groups)
    return {
        "return/variance": variance(returns),
        "return/standard_error": standard_error(returns, groups),
        "return/positive_share": float(np.mean(returns > 0)) if played else math.nan,
        "return/group_std": std,
        "return/group_variance_share": share,
        "episode/success_error": max(standard_error(wins, groups), share_error(wins), key=_or_least),
        "episode/failed_share": (len(episodes) - len(played)) / len(episodes) if episodes else math.nan,
        "action/command_entropy_nats": entropy(said),
        "action/verb_entropy_nats": entropy(spoken),
        "action/distinct_per_turn": len(said) / turns if turns else math.nan,
        "action/verb_coverage": len(set(spoken) & set(known_verbs)) / len(known_verbs) if known_verbs else math.nan,
        "action/repeated_useless_rate": vain / knowable if knowable else math.nan,
    }


def scaled_figures(raw_variance: float, *, reward_scale: float, low: float, high: float) -> dict[str, float]:
    """The variance of returns as they enter the update, and the rule of the practice notes that it be `low` to `high`.

    For a run that scales its rewards only: unscaled returns of 0 and 1 never have more than 0.25.

    Returns:
        return/scaled_variance, and return/scaled_variance_fits, 1 or 0.
    """
    scaled = raw_variance * reward_scale**2
    return {"return/scaled_variance": scaled, "return/scaled_variance_fits": float(low <= scaled <= high)}


def variance(numbers: np.ndarray) -> float:
    """Population variance of [E] numbers, exactly 0 if all are equal; NaN of none."""
    if not numbers.size:
        return math.nan
    return float(np.var(numbers)) if numbers.max() > numbers.min() else 0.0


def within_groups(returns: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Mean deviation within groups, and the share of the variance that lies within; both of [E] arrays.

    Groups of one are left out, as they cannot differ. With n_g plays and variance v_g of group g, over the variance v
    of all of them (populations): sum n_g v_g / sum n_g / v.

    Returns:
        NaN without a group of two; the share NaN also if no return differs from another.
    """
    members = [returns[groups == group] for group in np.unique(groups)]
    members = [group for group in members if group.size > 1]
    if not members:
        return math.nan, math.nan
    whole = variance(np.concatenate(members))
    within = sum(group.size * variance(group) for group in members) / sum(group.size for group in members)
    std = float(np.mean([math.sqrt(variance(group)) for group in members]))
    return std, min(1.0, within / whole) if whole > 0 else math.nan


def standard_error(numbers: np.ndarray, groups: np.ndarray) -> float:
    """Standard error of the mean of [E] numbers, plays of one task being alike rather than independent.

    With d_g the sum of the deviations from the mean in group g of G: sqrt(G/(G - 1) sum d_g²) / E; the usual s/sqrt(E)
    if every group is of one. With a single group its plays count as independent.

    Returns:
        NaN of fewer than two numbers.

    Source: the cluster-robust variance, e.g. Cameron and Miller 2015, https://doi.org/10.3368/jhr.50.2.317.
    """
    if numbers.size < 2:
        return math.nan
    if numbers.max() == numbers.min():
        return 0.0
    own = np.unique(groups)
    if own.size < 2:
        return float(np.std(numbers, ddof=1) / math.sqrt(numbers.size))
    off = numbers - numbers.mean()
    sums = np.array([off[groups == group].sum() for group in own])
    return float(math.sqrt(own.size / (own.size - 1) * np.sum(sums**2)) / numbers.size)


def share_error(wins: np.ndarray) -> float:
    """Standard error of a share after two wins and two losses more (Agresti and Coull 1998), so that it is never 0.

    Args:
        wins: 0 or 1, [E].
    """
    if not wins.size:
        return math.nan
    n = wins.size + 4
    share = (float(wins.sum()) + 2) / n
    return math.sqrt(share * (1 - share) / n)


def finite(figures: Mapping[str, float | None]) -> dict[str, float]:
    """Those that are known."""
    return {name: float(value) for name, value in figures.items() if value is not None and math.isfinite(value)}


def _or_least(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
