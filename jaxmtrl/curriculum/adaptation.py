"""What follows from the training games of an iteration: mastery, and the step budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxmtrl.config.curriculum_section import CurriculumSection
from jaxmtrl.curriculum.budget import adapted_factor
from jaxmtrl.curriculum.levels import moved
from jaxmtrl.curriculum.plan import Plan
from jaxmtrl.curriculum.state import CurriculumState, Step
from jaxmtrl.types import Episode


def factor_of(section: CurriculumSection, state: CurriculumState) -> float:
    """Steps that a training game may take for every command of the expert."""
    return section.budget_factor if state.factor is None else state.factor


def after_iteration(section: CurriculumSection, plan: Plan, episodes: Sequence[Episode], finished: int) -> Step:
    """After an RL iteration: mastery first, and if it changed nothing, the step budget.

    Args:
        plan: of the iteration.
        episodes: its plays, in any order.
        finished: RL iterations, this one included.
    """
    state = plan.state
    if section.step_budget:
        games = plan.outcomes(episodes, roles=("own", "core"))
        state = dataclasses.replace(state, wins=state.wins + sum(games), games=state.games + len(games))
    if section.mastery != "none":
        state = _with_streaks(section, state, plan, episodes)
    return _on_mastery(section, state, finished) or _on_budget(section, state, finished)


def streak_after(streak: int, outcomes: Sequence[bool], *, above: float) -> int:
    """Successive iterations of mastery after one more; one in which nothing was played changes nothing."""
    if not outcomes:
        return streak
    return streak + 1 if sum(outcomes) / len(outcomes) > above else 0


def _with_streaks(
    section: CurriculumSection, state: CurriculumState, plan: Plan, episodes: Sequence[Episode]
) -> CurriculumState:
    above = section.mastery_above
    if section.mastery != "sample_less":
        own = plan.outcomes(episodes, roles=("own",))
        return dataclasses.replace(state, streak=streak_after(state.streak, own, above=above))
    by_split = {split: plan.outcomes(episodes, roles=("own",), split=split) for split in section.mixture}
    streaks = {split: streak_after(state.streaks.get(split, 0), won, above=above) for split, won in by_split.items()}
    return dataclasses.replace(state, streaks=streaks)


def _on_mastery(section: CurriculumSection, state: CurriculumState, finished: int) -> Step | None:
    """What mastery changes at once; None if nothing. What it takes from a mixture is seen when a batch is made."""
    if section.mastery not in ("raise_level", "tighten_budget") or state.streak < section.mastery_iterations:
        return None
    why = f"success above {section.mastery_above:g} in {state.streak} iterations of training"
    if section.mastery == "raise_level":
        return moved(section, state, +1, finished, why)
    tighter = max(section.budget_least, factor_of(section, state) * (1 - section.budget_change))
    return _with_factor(section, dataclasses.replace(state, streak=0), tighter, finished, why)


def _on_budget(section: CurriculumSection, state: CurriculumState, finished: int) -> Step:
    if not section.step_budget or not state.games or finished - state.factor_since < section.budget_every:
        return Step(state=state)
    success = state.wins / state.games
    factor = adapted_factor(
        factor_of(section, state),
        success,
        change=section.budget_change,
        tighten_above=section.budget_tighten_above,
        loosen_below=section.budget_loosen_below,
        least=section.budget_least,
        most=section.budget_most,
    )
    return _with_factor(section, state, factor, finished, f"success {success:.2f} in {state.games} training games")


def _with_factor(section: CurriculumSection, state: CurriculumState, factor: float, finished: int, why: str) -> Step:
    before, state = factor_of(section, state), state.with_factor(factor, finished)
    if factor == before:
        return Step(state=state)
    return Step(state=state, messages=(f"curriculum: steps a command {before:.3g} → {factor:.3g} ({why})",))
