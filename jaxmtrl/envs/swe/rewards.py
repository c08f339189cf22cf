"""What a verdict is worth, in the ways that are in use. All are 1 exactly where the task is solved, and at most 0 for
doing nothing, but for the study's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jaxmtrl.envs.swe.grade import Grade
from jaxmtrl.envs.swe.instance import SweInstance


def binary(grade: Grade) -> float:
    """1 where every test that decides passes."""
    return float(grade.status == "resolved")


def f2p_gated(grade: Grade) -> float:
    """Share of the failing tests that pass now; 0 where a test fails that passed before."""
    if not grade.verified or not all(grade.pass_to_pass.values()):
        return 0.0
    return _share(grade.fail_to_pass)


def normalized(grade: Grade) -> float:
    """(passed - passed before) / (all - passed before), within -1..1: less than 0 where more broke than was mended.

    -1 too where nobody knows what passed, since the changes kept the tests from running to their end.
    """
    if grade.status in ("no_change", "patch_too_large", "apply_error"):
        return 0.0
    if not grade.verified:
        return -1.0
    broken = sum(not passed for passed in grade.pass_to_pass.values())
    mended = sum(grade.fail_to_pass.values())
    return max(-1.0, (mended - broken) / len(grade.fail_to_pass))


def study_ratio(grade: Grade) -> float:
    """passed / all, tests that always passed counted; 0 for no change (arXiv 2510.01132, for comparison only)."""
    if not grade.verified:
        return 0.0
    return _share({**grade.fail_to_pass, **grade.pass_to_pass})


KINDS: Mapping[str, Callable[[Grade], float]] = {
    "binary": binary,
    "f2p_gated": f2p_gated,
    "normalized": normalized,
    "study_ratio": study_ratio,
}


def worth(kind: str, grade: Grade) -> float:
    return KINDS[kind](grade)


def most_of_losing(kind: str, instances: Sequence[SweInstance]) -> float:
    """The most that any play can earn that does not solve its task."""
    if kind == "binary":
        return 0.0
    counted = [
        len(instance.fail_to_pass) + (len(instance.pass_to_pass) if kind == "study_ratio" else 0)
        for instance in instances
    ]
    return max((1 - 1 / count for count in counted if count), default=0.0)


def junk_worth(instances: Sequence[SweInstance]) -> dict[str, float]:
    """What `study_ratio` pays for a comment that changes nothing, by instance: tests that passed before."""
    return {
        instance.id: len(instance.pass_to_pass) / (len(instance.pass_to_pass) + len(instance.fail_to_pass))
        for instance in instances
        if instance.fail_to_pass
    }


def _share(outcomes: Mapping[str, bool]) -> float:
    return sum(outcomes.values()) / len(outcomes) if outcomes else 0.0
