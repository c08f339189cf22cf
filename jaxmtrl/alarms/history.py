"""What is remembered of the iterations: a few numbers of each, for a bounded time, and the best so far.

Plain values that go through JSON unchanged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmtrl.alarms.figures import finite
from jaxmtrl.config.alarms_section import MOST_REMEMBERED

SUCCESS, RETURN = "episode/success", "episode/return"
ERRORS = {SUCCESS: "episode/success_error", RETURN: "return/standard_error"}  # of their means
TOKEN_ENTROPY, COMMAND_ENTROPY = "policy/sampled_entropy_nats", "action/command_entropy_nats"
COVERAGE, REPEATS, INVALID = "action/verb_coverage", "action/repeated_useless_rate", "episode/invalid_action_rate"
SPREAD, VARIANCE, SCALED = "return/group_std", "return/variance", "return/scaled_variance"
POSITIVE, GRADIENT, KL = "return/positive_share", "update/gradient_norm", "kl/reference_nats"
REMEMBERED = (
    *(SUCCESS, RETURN, *ERRORS.values()),
    *(TOKEN_ENTROPY, COMMAND_ENTROPY, COVERAGE, REPEATS, INVALID),
    *(SPREAD, VARIANCE, SCALED, POSITIVE, GRADIENT, KL),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """One RL iteration as the rules see it."""

    finished: int  # RL iterations that were finished, this one included: 1, 2, …
    values: Mapping[str, float]  # of REMEMBERED, those that were known

    @classmethod
    def of(cls, finished: int, metrics: Mapping[str, float | None]) -> Look:
        """Of all metrics of an iteration."""
        known = finite({name: metrics[name] for name in REMEMBERED if name in metrics})
        return cls(finished=finished, values=known)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over some iterations."""

    value: float
    error: float  # its standard error, from those of the iterations
    finished: int  # the last of them


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """All that is remembered of RL on one kind of task."""

    opening: tuple[Look, ...] = ()  # the first ones
    looks: tuple[Look, ...] = ()  # the last MOST_REMEMBERED
    best: Mapping[str, Mean] = dataclasses.field(default_factory=dict)  # of SUCCESS and RETURN, by windows

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> History:
        """From `dataclasses.asdict`, as JSON keeps it."""
        return cls(
            opening=tuple(Look(**look) for look in saved["opening"]),
            looks=tuple(Look(**look) for look in saved["looks"]),
            best={name: Mean(**mean) for name, mean in saved["best"].items()},
        )

    def including(self, look: Look, *, opening: int, window: int) -> History:
        """After one more iteration.

        Args:
            opening: how many of the first are kept.
            window: how many are averaged for the best.
        """
        looks = (*self.looks, look)[-MOST_REMEMBERED:]
        best = dict(self.best)
        for name in ERRORS:
            mean = mean_with_error(looks[-window:], name) if len(looks) >= window else None
            if mean is not None and (name not in best or mean.value > best[name].value):
                best[name] = mean
        kept = self.opening if len(self.opening) >= opening else (*self.opening, look)
        return History(opening=kept, looks=looks, best=best)


def series(looks: Sequence[Look], name: str) -> list[float]:
    """The known values of a figure, oldest first."""
    return [look.values[name] for look in looks if name in look.values]


def mean(looks: Sequence[Look], name: str) -> float | None:
    """Of the known values; None if there is none."""
    known = series(looks, name)
    return math.fsum(known) / len(known) if known else None


def mean_with_error(looks: Sequence[Look], name: str) -> Mean | None:
    """The mean of a figure of ERRORS, iterations taken as independent; None if it is not known of all `looks`."""
    values, errors = series(looks, name), series(looks, ERRORS[name])
    if len(values) != len(looks) or not values:
        return None
    error = math.sqrt(math.fsum(e * e for e in errors) / len(errors) / len(values)) if errors else 0.0
    return Mean(value=math.fsum(values) / len(values), error=error, finished=looks[-1].finished)


def fell(before: Mean, now: Mean, *, share: float, errors: float) -> bool:
    """Whether a mean lost more than this share of what it was, and more than so many errors of the difference."""
    fall = before.value - now.value
    return fall > share * abs(before.value) and fall > errors * math.hypot(before.error, now.error)
