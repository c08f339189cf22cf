"""What a turn's reward is made of: pure functions of what one step tells, each worth a look on its own curve.

Parts are paid and faults are charged; `recipe.py` weighs and adds them up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jaxmtrl.envs.actions import one_command, tagged_action
from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.types import StepResult


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One turn as text."""

    observation: str  # that was acted on
    action: str  # as the policy wrote it
    answer: str  # what was observed then


@dataclass(frozen=True, kw_only=True)
class Moment:
    """All that is known of an episode right after a step."""

    result: StepResult  # of the environment itself
    turns: Sequence[Exchange]  # of the episode so far, this one last
    metrics: Mapping[str, float]  # the newest value of each metric that any step of the episode reported
    before: float  # potential of the state that the step left, 0..1
    after: float  # of the one it led to; 0 where nothing follows

    @property
    def ended(self) -> bool:
        """Whether the environment says that the episode is over. Nobody says so if the sampler cuts it."""
        return self.result.done or self.result.truncated

    @property
    def action(self) -> str:
        return self.turns[-1].action


Part = Callable[[Moment], float]


def env(moment: Moment) -> float:
    """The environment's own reward of the step."""
    return moment.result.reward


def progress(gamma: float) -> Part:
    """Potential-based: gamma Φ(s') - Φ(s), with Φ = 0 where the task is over.

    The discounted sum from any state on is -Φ(s), whatever is done from there, so which actions are best stays the
    same (Ng, Harada and Russell 1999, "Policy invariance under reward transformations"). It does so too where Φ depends
    on what was done before, as the way to win that TextWorld plans does.

    Args:
        gamma: the discount from one turn to the next, by which the learner adds up rewards.
    """
    return lambda moment: gamma * moment.after - moment.before


def success(moment: Moment) -> float:
    """1 on the step that solves the task: the verdict, without anything the environment pays on the way."""
    return float(moment.result.success)


def pass_ratio(moment: Moment) -> float:
    """Share of tests passed when the episode ends, paid once; what earlier steps reported counts if the last did not.

    Raises:
        EnvironmentFailure: none was reported, or one outside 0..1, or it does not agree with the verdict: 1 exactly
            where the task is solved.
    """
    if not moment.ended:
        return 0.0
    share = _reported(moment, "pass_ratio")
    if (share == 1) != moment.result.success:
        raise EnvironmentFailure(
            f"the environment reported pass_ratio {share:g} and success {moment.result.success} as the episode ended; "
            "reward.parts.pass_ratio wants 1 for solved tasks and less for others, or a loss could pay like a win."
        )
    return share


def is_mended(moment: Moment) -> bool:
    """Whether a judge may add to what tests say: an environment that tells their share must have found some mended."""
    return moment.metrics.get("pass_ratio") != 0


def style(moment: Moment) -> float:
    """The linter's score of what was written, when the episode ends, paid once. Raises as `pass_ratio` for no share."""
    return _reported(moment, "style") if moment.ended else 0.0


def _reported(moment: Moment, metric: str) -> float:
    """The newest value of a metric, which must be a share. Raises EnvironmentFailure if there is none, or it is not."""
    value = moment.metrics.get(metric)
    if value is None:
        raise EnvironmentFailure(
            f"reward.parts.{metric} has a weight, and the environment reported no metric {metric} by the end of the "
            "episode; have step report it, or remove the part."
        )
    if not 0 <= value <= 1:
        raise EnvironmentFailure(f"the environment reported {metric} {value!r}, wanted a share in 0..1.")
    return float(value)


# Faults: 0 for none, up to 1


def invalid_action(moment: Moment) -> float:
    """1 for an action at which the environment did nothing, as it says itself."""
    return float(moment.result.metrics.get("invalid_action", 0.0) > 0)


def wrong_format(pattern: str) -> Part:
    """1 for an action that does not match `pattern` from its beginning to its end.

    Args:
        pattern: a regular expression; "" wants one line of at most 200 characters, in tags or without.
    """
    compiled = re.compile(pattern)

    def fault(moment: Moment) -> float:
        if pattern:
            return float(compiled.fullmatch(moment.action) is None)
        return float(one_command(_told(moment.action)) is None)

    return fault


def repetition(moment: Moment) -> float:
    """1 for an action done before in the episode on the same observation, with the same answer: nothing came of it.

    All three must be the same, because a way back through a known room, or a second try with a key in hand, is none.
    """
    latest = _loop(moment.turns[-1])
    return float(any(_loop(turn) == latest for turn in moment.turns[:-1]))


def sameness(moment: Moment) -> float:
    """As the episode ends, the share of its actions that had been said before: 1 - different actions / actions."""
    if not moment.ended:
        return 0.0
    said = [_command(turn.action) for turn in moment.turns]
    return 1 - len(set(said)) / len(said)


def _loop(turn: Exchange) -> tuple[str, str, str]:
    return turn.observation, _command(turn.action), turn.answer


def _told(action: str) -> str:
    """What stands between tags, where a policy thinks first; else all of it."""
    return tagged_action(action) or action


def _command(action: str) -> str:
    """An action without what does not count: thoughts, case, white space."""
    return " ".join(_told(action).lower().split())
