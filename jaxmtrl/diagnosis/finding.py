"""What one check of the doctor has to say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measured fact against its bound."""

    name: str  # what holds if it passed, for example "sampler and learner agree"
    passed: bool
    number: float | None  # what was measured; None where there is nothing to measure
    bound: str  # what the number had to be, for example "< 0.0001 nats"; empty without a number
    said: str  # over what it was measured, or what is wrong
    cure: str = ""  # what to do about it; shown when it failed


def below(name: str, number: float, bound: float, *, said: str, cure: str, unit: str = "") -> Finding:
    """Passes if `number` < `bound`; NaN does not."""
    wanted = f"< {bound:g} {unit}".rstrip()
    return Finding(name=name, passed=number < bound, number=float(number), bound=wanted, said=said, cure=cure)


def none_of(name: str, number: float, *, said: str, cure: str, what: str = "") -> Finding:
    """Passes if `number` is exactly 0; NaN does not."""
    wanted = f"= 0 {what}".rstrip()
    return Finding(name=name, passed=number == 0, number=float(number), bound=wanted, said=said, cure=cure)


def not_used(name: str, why: str) -> Finding:
    """Passes, since this config has no part that could be wrong."""
    return Finding(name=name, passed=True, number=None, bound="", said=f"not used: {why}")


def failed(name: str, said: str, cure: str) -> Finding:
    """Fails without a number: the check could not be made."""
    return Finding(name=name, passed=False, number=None, bound="", said=said, cure=cure)


def guarded(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of a check; what it raises is one too, because the other checks still have something to say."""
    try:
        return check()
    except Exception as err:
        text = " ".join(str(err).split()) or "no message"
        return [failed(name, f"raised {type(err).__name__}: {shortened(text)}", "mend what raised; see --json for all")]


def shortened(text: str, width: int = 160) -> str:
    """`text` cut to `width` characters."""
    return text if len(text) <= width else text[: width - 3] + "..."


def json_number(number: float | None) -> float | None:
    """A number as JSON can hold it: what is not finite becomes null."""
    return number if number is not None and math.isfinite(number) else None
