"""In which stage of the action space a run is: what follows from training games, or from the iterations alone.

Functions of the settings and the state, so that a run goes on from a saved state as if it had never stopped. What the
stages allow stands in `actions/space.py`; here is only their number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmtrl.config.actions_section import ActionsSection
from jaxmtrl.curriculum.gates import gate, may_leave
from jaxmtrl.envs.staged import MACRO, REFUSED
from jaxmtrl.scores import Score, wilson_interval
from jaxmtrl.types import Episode


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageState:
    """What a checkpoint keeps of it; goes through JSON unchanged."""

    stage: int = 0
    since: int = 0  # RL iterations that were finished when the stage was come to
    wins: int = 0  # training games since the last measurement
    games: int = 0
    measured: int = 0  # RL iterations that were finished at the last measurement
    scores: tuple[Score, ...] = ()  # since the stage was come to, as many as the gate looks back at
    tasks: str = ""  # what was trained on, for example the level of a curriculum

    @classmethod
    def start(cls, section: ActionsSection, saved: Mapping[str, Any] | None = None) -> StageState:
        """What a run begins with, or goes on from if its position has one (`dataclasses.asdict`)."""
        if not saved:
            return cls(stage=section.first_stage)
        return cls(**{**saved, "scores": tuple(Score(**score) for score in saved["scores"])})

    def at(self, stage: int, finished: int) -> StageState:
        """After coming to a stage: what was measured in another counts no more."""
        return StageState(stage=stage, since=finished, measured=finished, tasks=self.tasks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageStep:
    """What followed from an iteration."""

    state: StageState
    message: str = ""


def evaluated_stage(section: ActionsSection, state: StageState) -> int:
    """The stage that evaluations are played in."""
    return len(section.stages) - 1 if section.evaluate == "last" else state.stage


def after_iteration(
    section: ActionsSection, state: StageState, episodes: Sequence[Episode], finished: int, *, tasks: str = ""
) -> StageStep:
    """After an RL iteration.

    Args:
        episodes: its plays, in any order.
        finished: RL iterations, this one included.
        tasks: what was trained on; where it changes, success is measured anew.
    """
    if section.advance == "iterations":
        stage = section.first_stage + sum(finished >= reached for reached in section.at)
        return _moved(section, state, stage, finished, f"after {finished} iterations")
    if tasks != state.tasks:
        state = dataclasses.replace(state, wins=0, games=0, measured=finished - 1, scores=(), tasks=tasks)
    played = [episode for episode in episodes if not episode.failed]
    state = dataclasses.replace(
        state, wins=state.wins + sum(episode.success for episode in played), games=state.games + len(played)
    )
    if finished - state.measured < section.every or state.games < section.least:
        return StageStep(state=state)
    return _through_gate(section, _measured(section, state, finished), finished)


def figures(episodes: Sequence[Episode]) -> dict[str, float]:
    """Shares of a batch's turns that were refused, and that were macros, under the names they are logged by."""
    turns = [turn for episode in episodes if not episode.failed for turn in episode.turns]
    shares = {"actions/refused_share": REFUSED, "actions/macro_share": MACRO}
    return {
        curve: sum(turn.metrics.get(metric, 0.0) for turn in turns) / max(1, len(turns))
        for curve, metric in shares.items()
    }


def _measured(section: ActionsSection, state: StageState, finished: int) -> StageState:
    low, high = wilson_interval(state.wins, state.games)
    score = Score(iteration=finished, n=state.games, success=state.wins / state.games, low=low, high=high)
    scores = (*state.scores, score)[-section.confirmations :]
    return dataclasses.replace(state, wins=0, games=0, measured=finished, scores=scores)


def _through_gate(section: ActionsSection, state: StageState, finished: int) -> StageStep:
    move = gate(
        state.scores,
        harder_above=section.advance_above,
        easier_below=section.return_below,
        confirmations=section.confirmations,
        certain=section.certain,
    )
    if move == "stay" or not may_leave(since=state.since, finished=finished, stay=section.stay):
        return StageStep(state=state)
    successes = ", ".join(f"{score.success:.2f}" for score in state.scores)
    bound = f"above {section.advance_above:g}" if move == "harder" else f"below {section.return_below:g}"
    why = f"success {successes}, {bound}; n {state.scores[-1].n}"
    stage = state.stage + (1 if move == "harder" else -1)
    if stage < section.first_stage:
        return StageStep(state=state)
    return _moved(section, state, min(stage, len(section.stages) - 1), finished, why)


def _moved(section: ActionsSection, state: StageState, stage: int, finished: int, why: str) -> StageStep:
    if stage == state.stage:
        return StageStep(state=state)
    names = list(section.stages)
    message = f"actions: stage {names[state.stage]} → {names[stage]} ({why})"
    return StageStep(state=state.at(stage, finished), message=message)
