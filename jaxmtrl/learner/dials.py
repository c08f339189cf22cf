"""The numbers that turn from one update to the next while the compiled programs stay: KL weight and reward scale.

The host keeps their state (it is part of a run's position) and hands the learner two scalars.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import flax.struct
import numpy as np

from jaxmtrl.config.sections import AlgorithmSection

Scalar = Any  # numpy on the host, jax inside the programs
_LEAST_RETURNS = 2  # a deviation needs that many
_MOST_PER_ADAPTATION = 0.2  # how far off its target the KL counts, as a share of it


@flax.struct.dataclass
class Dials:
    """Scalars that the compiled programs take as arguments."""

    kl_coef: Scalar  # f32 []
    reward_scale: Scalar  # f32 [], rewards are multiplied by it

    def named(self, algorithm: AlgorithmSection) -> dict[str, float]:
        """Those that turn, by the names they are logged under."""
        turning = {}
        if algorithm.kl_coef_end is not None or algorithm.kl_target > 0:
            turning["kl/coef"] = float(self.kl_coef)
        if algorithm.reward_scale == "running":
            turning["return/reward_scale"] = float(self.reward_scale)
        return turning


@dataclasses.dataclass(frozen=True)
class ReturnMoments:
    """Count, mean and sum of squared deviations of all episode returns so far, failed episodes left out."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def including(self, returns: Sequence[float]) -> ReturnMoments:
        """The moments after `returns` too (Chan, Golub and LeVeque 1983: exact in any batching)."""
        if not returns:
            return self
        more = np.asarray(returns, np.float64)
        count = self.count + more.size
        shift = float(more.mean()) - self.mean
        squares = self.squares + float(np.sum(np.square(more - more.mean())))
        squares += shift * shift * self.count * more.size / count
        return ReturnMoments(count=count, mean=self.mean + shift * more.size / count, squares=squares)

    @property
    def deviation(self) -> float:
        """Population standard deviation; 0 if nothing was different yet."""
        return math.sqrt(self.squares / self.count) if self.count >= _LEAST_RETURNS else 0.0


@dataclasses.dataclass(frozen=True)
class DialState:
    """What a checkpoint keeps of the dials."""

    kl_coef: float | None = None  # of the adaptive controller; None before its first step
    returns: ReturnMoments = ReturnMoments()

    @classmethod
    def of(cls, saved: dict) -> DialState:
        """From `dataclasses.asdict`, as JSON keeps it; empty is the start."""
        return cls(kl_coef=saved["kl_coef"], returns=ReturnMoments(**saved["returns"])) if saved else cls()

    def dials(self, algorithm: AlgorithmSection, iteration: int) -> Dials:
        """The scalars for RL iteration 0, 1, …, this batch's returns already counted."""
        deviation = self.returns.deviation if algorithm.reward_scale == "running" else 0.0
        coef = self.kl_coef if self.kl_coef is not None else scheduled_kl(algorithm, iteration)
        return Dials(kl_coef=np.float32(coef), reward_scale=np.float32(1 / deviation if deviation > 0 else 1.0))

    def seen(self, returns: Sequence[float]) -> DialState:
        """After a batch was played."""
        return dataclasses.replace(self, returns=self.returns.including(returns))

    def adapted(self, algorithm: AlgorithmSection, kl: float | None, episodes: int) -> DialState:
        """After an RL update whose batch had this KL to the reference, nats a token; None: nothing was measured."""
        if algorithm.kl_target == 0 or kl is None:
            return self
        before = algorithm.kl_coef if self.kl_coef is None else self.kl_coef
        return dataclasses.replace(self, kl_coef=adapted_kl(algorithm, before, kl, episodes))


def scheduled_kl(algorithm: AlgorithmSection, iteration: int) -> float:
    """The KL weight of RL iteration 0, 1, …: in equal steps from kl_coef to kl_coef_end, then flat."""
    if algorithm.kl_coef_end is None:
        return algorithm.kl_coef
    share = min(1.0, iteration / algorithm.kl_iterations)
    return algorithm.kl_coef + share * (algorithm.kl_coef_end - algorithm.kl_coef)


def adapted_kl(algorithm: AlgorithmSection, coef: float, kl: float, episodes: int) -> float:
    """The next weight of a controller that wants the KL at kl_target.

    The weight times 1 + clip(kl / kl_target - 1, -0.2, 0.2) * episodes / kl_horizon.

    Source: Ziegler et al. 2019, https://arxiv.org/abs/1909.08593.
    """
    error = min(max(kl / algorithm.kl_target - 1, -_MOST_PER_ADAPTATION), _MOST_PER_ADAPTATION)
    return coef * max(0.0, 1 + error * episodes / algorithm.kl_horizon)


def constant_dials(algorithm: AlgorithmSection) -> Dials:
    """The dials of the first iteration."""
    return DialState().dials(algorithm, 0)
