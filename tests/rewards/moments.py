"""Moments as tests need them: a step among others, with a few things set."""

from __future__ import annotations

from typing import Any

from jaxmtrl.rewards.parts import Exchange, Moment
from jaxmtrl.types import StepResult


def said(*actions: str, observation: str = "a room", answer: str = "a room") -> list[Exchange]:
    return [Exchange(observation=observation, action=action, answer=answer) for action in actions]


def moment(
    *turns: Exchange,
    reward: float = 0.0,
    done: bool = False,
    truncated: bool = False,
    success: bool = False,
    before: float = 0.0,
    after: float = 0.0,
    **metrics: Any,
) -> Moment:
    result = StepResult(
        observation="", reward=reward, done=done, truncated=truncated, success=success, metrics=dict(metrics)
    )
    return Moment(result=result, turns=turns or said("look"), metrics=dict(metrics), before=before, after=after)
