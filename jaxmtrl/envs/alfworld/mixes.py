"""Mixes of task types: the named ones, and those of one's own."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jaxmtrl.envs.alfworld.games import KINDS
from jaxmtrl.fields import nearest, show

OTHERS = "others"  # in weights: an equal part of this for every type that is not named
MIXES: dict[str, dict[str, float]] = {
    "single": {"pick_and_place_simple": 1},
    "four": {
        "look_at_obj_in_light": 1,
        "pick_clean_then_place_in_recep": 1,
        "pick_heat_then_place_in_recep": 1,
        "pick_cool_then_place_in_recep": 1,
    },
    "six": dict.fromkeys(KINDS, 1),
}


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Task type -> its part of all tasks, in the order of `KINDS`; types that get none are left out.

    Args:
        weights: sound ones, of task types and `OTHERS`; only their ratios count.
    """
    most = max(weights.values())  # of which all are taken, since huge ones could not be added up
    weights = {kind: weight / most for kind, weight in weights.items()}
    unnamed = [kind for kind in KINDS if kind not in weights]
    each = weights.get(OTHERS, 0) / max(len(unnamed), 1)
    whole = sum(weights.values())
    found = {kind: weights.get(kind, each) / whole for kind in KINDS}
    return {kind: share for kind, share in found.items() if share > 0}


def weight_mistakes(place: str, weights: Mapping[str, float]) -> list[str]:
    """What is wrong with weights, a sentence each; `place` is their dotted path."""
    mistakes = []
    for name, weight in weights.items():
        if name not in (*KINDS, OTHERS):
            near = nearest(name, KINDS)
            hint = f"did you mean {near}?" if near else f"they are {', '.join(KINDS)}, and {OTHERS} for all unnamed."
            mistakes.append(f"{place}: {show(name)} is no task type; {hint}")
        if not (weight >= 0 and math.isfinite(weight)):
            mistakes.append(f"{place}.{name} must be a number of at least 0, got {weight:g}.")
    if OTHERS in weights and set(KINDS) <= set(weights):
        mistakes.append(f"{place}: {OTHERS} means nothing where all six task types are named; remove it.")
    if not mistakes and not any(weights.values()):
        mistakes.append(f"{place} are all 0; give at least one task type a weight.")
    return mistakes
