"""The settings of the action space: which commands may be used when, how that is enforced, and macro-actions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Count, Positive, Share, setting

Enforcement = Literal["prompt", "admissible", "mask"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ActionsSection:
    # what there is
    stages: Annotated[
        dict[str, tuple[str, ...]],
        setting(
            "the verbs that each stage adds, by the stage's name, in order, macros by their verb: {first: [go to, "
            "take, fetch]}; empty lets everything be used"
        ),
    ] = Field(default_factory=dict)
    macros: Annotated[
        dict[str, tuple[str, ...]],
        setting(
            "commands that stand for several, parameters in capitals: {fetch X from Y: [go to Y, try open Y, take "
            'X from Y]}; a step behind "try" is left out where it cannot be done'
        ),
    ] = Field(default_factory=dict)
    growth: Annotated[
        Share,
        setting(
            "share of the last stage's verbs, macros counted, that a later stage may add; one may always be added; 1 "
            "allows any number"
        ),
    ] = 0.2
    enforce: Annotated[
        Enforcement,
        setting(
            "how; prompt: the first observation tells what may be used; admissible: every observation lists what can "
            "be done now and may be used; mask: the sampler cannot begin another verb. Anything else is refused"
        ),
    ] = "prompt"
    evaluate: Annotated[
        Literal["current", "last"], setting("stage that evaluations are played in: the one trained in, or the last")
    ] = "current"
    # when the next one follows
    start: Annotated[str, setting('stage to begin with, demonstrations and random play too; "" is the first')] = ""
    advance: Annotated[
        Literal["success", "iterations"],
        setting("what the next stage follows: success in training, or the RL iterations named by at"),
    ] = "success"
    at: Annotated[
        tuple[Positive, ...],
        setting("with advance iterations: finished RL iterations at which each stage after the start follows"),
    ] = ()
    every: Annotated[Positive, setting("RL iterations whose training games are one measurement of success")] = 5
    least: Annotated[Positive, setting("a measurement goes on until so many games were played", unit="games")] = 100
    advance_above: Annotated[Share, setting("the next stage follows where success is above this")] = 0.7
    return_below: Annotated[Share, setting("the stage before returns where success is below this; 0 never does")] = 0.0
    confirmations: Annotated[int, setting("successive measurements that must be beyond the gate", ge=1, le=20)] = 2
    stay: Annotated[Count, setting("RL iterations at least from coming to a stage to leaving it")] = 10
    certain: Annotated[bool, setting("the 95 % interval must be beyond the gate, not the share alone")] = False

    @property
    def on(self) -> bool:
        """Whether anything is restricted or added."""
        return bool(self.stages)

    @property
    def first_stage(self) -> int:
        """Number of the stage to begin with."""
        return list(self.stages).index(self.start) if self.start else 0
