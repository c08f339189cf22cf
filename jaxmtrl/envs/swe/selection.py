"""Which instances a split has, in which order. Knows no files and no sandboxes."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence

from jaxmtrl.envs.mixing import apportion, interleave
from jaxmtrl.envs.swe.inject.mutators import KINDS
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.loading import resolve_repo
from jaxmtrl.errors import ConfigError

OTHERS = "others"  # in weights: an equal part of this for every repository that is not named


def bug_kind(instance: SweInstance) -> str:
    """How its fault was made, for example "cmp"; "" where it was not."""
    return str(instance.extra.get("kind", ""))


def place(instance: SweInstance) -> float:
    """A number in [0, 1) that depends on nothing else, so that shares of a set stay the same when it grows.

    Of the function with the fault, where the row names it, else of its id: faults of one function are in one share. Of
    several functions the one with the largest number counts, so that it is new to who knows the shares below.
    """
    words = [f"{instance.repo}:{name}" for name in instance.extra.get("functions") or ()] or [instance.id]
    return max(int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") / 2**64 for word in words)


def select(
    instances: Sequence[SweInstance],
    *,
    repos: Sequence[str] = (),
    without_repos: Sequence[str] = (),
    kinds: Sequence[str] = (),
    without_kinds: Sequence[str] = (),
    share: tuple[float, float] = (0.0, 1.0),
) -> list[SweInstance]:
    """Instances that pass every filter, in their order; empty lists of names let all pass.

    Args:
        repos, without_repos: by any name that `resolve_repo` knows.
        share: those whose `place` is in [low, high).

    Raises:
        ConfigError: a repository that no instance has, or a kind that neither they nor `inject` have.
    """
    there = [instance.repo for instance in instances]
    _must_know(instances, [*kinds, *without_kinds])
    wanted = {resolve_repo(name, there) for name in repos}
    unwanted = {resolve_repo(name, there) for name in without_repos}
    return [
        instance
        for instance in instances
        if (not wanted or instance.repo in wanted)
        and instance.repo not in unwanted
        and (not kinds or bug_kind(instance) in kinds)
        and bug_kind(instance) not in without_kinds
        and share[0] <= place(instance) < share[1]
    ]


def _must_know(instances: Sequence[SweInstance], kinds: Sequence[str]) -> None:
    there = {kind for kind in map(bug_kind, instances) if kind}
    unknown = [kind for kind in kinds if kind not in {*there, *KINDS, "release"}]
    if unknown:
        known = f"the rows have {', '.join(sorted(there))}" if there else "the rows have none"
        raise ConfigError("kinds", [f"{', '.join(map(repr, unknown))}: no such kind of fault; {known}"])


def mix(
    instances: Sequence[SweInstance], *, weights: Mapping[str, float], count: int | None, seed: int, where: str
) -> list[SweInstance]:
    """So many of them, in an order drawn once and for all, repositories spread evenly.

    Args:
        weights: parts by repository; empty takes all alike, whatever their repository.
        count: None takes all; needs one where there are weights.
        where: dotted path of the split in a config.

    Raises:
        ConfigError: what cannot be had.
    """
    drawn = list(instances)
    random.Random(seed).shuffle(drawn)
    if count is not None and len(drawn) < count:
        raise ConfigError(
            "env.options",
            [
                f"{where}.count asks for {count} tasks, and {len(drawn)} are left after its filters; lower it, leave "
                "it out to take all, widen the filters (repos, kinds, share), or make more rows"
            ],
        )
    if not weights:
        return drawn[:count]
    there = list(dict.fromkeys(instance.repo for instance in instances))
    mistakes = list(_weight_mistakes(weights, where, count, there))
    if mistakes:
        raise ConfigError("env.options", mistakes)
    assert count is not None
    counts = {repo: number for repo, number in apportion(_parts(weights, there), count).items() if number}
    by_repo = {repo: [instance for instance in drawn if instance.repo == repo] for repo in counts}
    lacking = [
        f"{where}.weights ask for {number} tasks of {repo}, which has {len(by_repo[repo])}; lower its weight or count"
        for repo, number in counts.items()
        if number > len(by_repo[repo])
    ]
    if lacking:
        raise ConfigError("env.options", lacking)
    following = {repo: iter(group) for repo, group in by_repo.items()}
    return [next(following[repo]) for repo in interleave(counts)]


def _parts(weights: Mapping[str, float], there: Sequence[str]) -> dict[str, float]:
    """Repository -> its part of all tasks."""
    named = {resolve_repo(name, there): weight for name, weight in weights.items() if name != OTHERS}
    unnamed = [repo for repo in there if repo not in named]
    each = weights.get(OTHERS, 0.0) / max(len(unnamed), 1)
    found = {**named, **dict.fromkeys(unnamed, each)}
    whole = sum(found.values())
    return {repo: weight / whole for repo, weight in found.items()}


def _weight_mistakes(
    weights: Mapping[str, float], where: str, count: int | None, there: Sequence[str]
) -> Iterator[str]:
    named: dict[str, str] = {}
    for name, weight in weights.items():
        if not (weight >= 0 and math.isfinite(weight)):
            yield f"{where}.weights.{name} must be a number of at least 0, got {weight:g}"
        repo = resolve_repo(name, there) if name != OTHERS else OTHERS
        if repo in named:
            yield f"{where}.weights.{name} and {named[repo]} both mean {repo}; write one of them"
        named.setdefault(repo, name)
    if math.isinf(sum(weights.values())):
        yield f"{where}.weights are too large to be added up; only how they stand to each other counts"
    if not any(weights.values()):
        yield f"{where}.weights are all 0; give at least one repository a weight"
    if count is None:
        yield f"{where} has weights and no count, so that nobody knows how many of each; write one"
