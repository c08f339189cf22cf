"""What follows an alarm by itself: decisions, which the loop that trains carries out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jaxmtrl.config.alarms_section import AlarmsSection, Reaction

KL_WARM_UP, REWARD_SCALING = "kl_warm_up", "reward_scaling"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turned:
    """What replaces the config's dials; None leaves them as they are."""

    kl_coef: float | None = None
    return_variance: float | None = None  # rewards are scaled so that all returns so far have this variance

    def named(self, reward_scale: float) -> dict[str, float]:
        """The metrics of what is turned, for a run that would not log it otherwise.

        Args:
            reward_scale: what rewards were multiplied by.
        """
        kl = {} if self.kl_coef is None else {"kl/coef": self.kl_coef}
        return kl if self.return_variance is None else {**kl, "return/reward_scale": reward_scale}


def turned(section: AlarmsSection, begun: Mapping[str, int], finished: int) -> Turned:
    """The dials of an RL iteration.

    Args:
        begun: reaction → RL iterations that were finished when it began, of `AlarmState.turned`.
        finished: RL iterations that are finished; the next one is asked for.
    """
    kl = variance = None
    if KL_WARM_UP in begun:
        share = min(1.0, (finished - begun[KL_WARM_UP]) / section.kl_iterations)
        kl = section.kl_from + share * (section.kl_to - section.kl_from)
    if REWARD_SCALING in begun:
        variance = section.scaled_variance
    return Turned(kl_coef=kl, return_variance=variance)


def follows(section: AlarmsSection, reaction: Reaction, begun: Mapping[str, int]) -> str:
    """What is done by itself, in words; "" if nothing is."""
    if reaction in begun:
        return f"{reaction} began after iteration {begun[reaction]} already."
    if reaction == KL_WARM_UP:
        return (
            f"The KL weight is {section.kl_from:g} from the next iteration on and grows to {section.kl_to:g} within "
            f"{section.kl_iterations} iterations."
        )
    if reaction == REWARD_SCALING:
        return f"Rewards are scaled from the next iteration on, to returns of variance {section.scaled_variance:g}."
    return "The run stops here." if reaction == "stop" else ""
