"""The stages of a run in their order, and where in them a run stands."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the name alone: whoever only asks for the order of the stages need not start jax
    from jaxmtrl.learner.objective import Kind

STAGES = ("untrained", "pretrain", "sft", "critic_warmup", "rl")
DONE = "done"  # the stage of a position after the last one
KINDS: dict[str, Kind] = {
    "untrained": "pretrain",
    "pretrain": "pretrain",
    "sft": "sft",
    "critic_warmup": "critic",
    "rl": "policy",
}
RATES = {  # the field that sets a stage's learning rate
    "pretrain": "pretrain.learning_rate",
    "sft": "sft.learning_rate",
    "critic_warmup": "optimizer.critic_learning_rate",
    "rl": "optimizer.learning_rate",
}
EVALUATED = ("untrained", "pretrain", "sft", "rl")  # the policies of the final table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """Where the loop stands, as a checkpoint keeps it."""

    stage: str = STAGES[0]
    iteration: int = 0  # finished in this stage
    step: int = 0  # finished over all stages; the x axis of every curve
    wall_s: float = 0.0  # spent so far, interruptions left out
    best_epoch: int = 0  # of SFT, by validation loss
    best_loss: float | None = None
    dials: dict = dataclasses.field(default_factory=dict)  # of `learner.dials.DialState`; empty at the start
    curriculum: dict = dataclasses.field(default_factory=dict)  # of `curriculum.state.CurriculumState`; empty without
    actions: dict = dataclasses.field(default_factory=dict)  # of `curriculum.action_stages.StageState`; empty without
    alarms: dict = dataclasses.field(default_factory=dict)  # of `alarms.state.AlarmState`; empty at the start
    results: dict[str, dict[str, dict]] = dataclasses.field(default_factory=dict)  # split → policy → figures
