"""How parts become one reward: weighted, faults taken off, clipped last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jaxmtrl.config.sections import Config

PREFIX = "reward/"  # of the metrics that carry the parts


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is paid, in plain values that travel to worker processes."""

    weights: Mapping[str, float]  # > 0, of each part that counts; names as in config/reward_section.py
    penalties: Mapping[str, float]  # > 0, of each fault that costs
    clip: float  # a step's reward stays in -clip..clip; 0 leaves it alone
    gamma: float  # discount from one turn to the next
    keeps_truncated: bool  # whether a truncated play keeps the potential of where it ended
    stages: int  # of progress: 0 as it is, n ≥ 1 rounded down to multiples of 1/n below 1
    format_pattern: str

    def reward(self, values: Mapping[str, float]) -> float:
        """clip(Σ weight · part - Σ penalty · fault); NaN and infinities stay what they are.

        Args:
            values: of each part and fault that has a weight or costs something.
        """
        paid = sum(weight * values[name] for name, weight in self.weights.items())
        total = paid - sum(cost * values[name] for name, cost in self.penalties.items())
        return math.copysign(self.clip, total) if 0 < self.clip < abs(total) < math.inf else total

    def potential(self, progress: float) -> float:
        """Progress as it counts: rounded down to stages.

        With one stage nothing is left of it. A function of progress is as good a potential as progress itself, so
        that density never changes which play is best.
        """
        if self.stages == 0:
            return progress
        return min(math.floor(progress * self.stages + 1e-9), self.stages - 1) / self.stages


def recipe_of(config: Config) -> Recipe:
    """The recipe of a valid config.

    What follows a truncated play decides what its last potential is worth. A learner that goes on with the critic's
    value there (ppo with `bootstrap_truncated`) takes it for a stop on the way: the critic, which learns what is paid,
    expects Φ less from a state of potential Φ, and only with +γΦ(s') paid does that cancel. A learner that does not
    takes it for an end like any other, after which Φ is 0; paying Φ(s') would make a play that stops near the win worth
    more than one that tries, and so change what is best. A play that the sampler cuts for want of tokens is not
    known to have ended where rewards are made and keeps its Φ in either case.
    """
    section, algorithm = config.reward, config.algorithm
    return Recipe(
        weights=dict(section.weights),
        penalties=dict(section.penalties),
        clip=section.clip,
        gamma=algorithm.gamma,
        keeps_truncated=algorithm.name == "ppo" and algorithm.bootstrap_truncated,
        stages=section.stages,
        format_pattern=section.format_pattern,
    )
