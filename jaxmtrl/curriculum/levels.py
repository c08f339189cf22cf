"""Levels of a run: which are evaluated when, and what follows from the evaluations.

Functions of the settings and the state; they know no task. Levels are counted from the easiest on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from jaxmtrl.config.curriculum_section import CurriculumSection
from jaxmtrl.curriculum.gates import gate, may_leave
from jaxmtrl.curriculum.history import History
from jaxmtrl.curriculum.regression import Forgotten, forgotten
from jaxmtrl.curriculum.state import CurriculumState, Step
from jaxmtrl.scores import Evaluated, Score


def number_of(section: CurriculumSection, state: CurriculumState) -> int:
    """The level's place, 0 for the easiest and where there are no levels."""
    return list(section.levels).index(state.level) if state.level else 0


def levels_below(section: CurriculumSection, state: CurriculumState) -> list[str]:
    """The easier ones."""
    return list(section.levels)[: number_of(section, state)]


def due_levels(section: CurriculumSection, state: CurriculumState, finished: int) -> list[str]:
    """What is to be evaluated after `finished` RL iterations, 1 or more; nothing at most of them.

    The level that is trained on, and in every so many evaluations the levels below, the easiest first.
    """
    if not state.level or finished % section.every:
        return []
    all_of_them = (state.evaluations + 1) % section.regression_every == 0
    return [*(levels_below(section, state) if all_of_them else []), state.level]


def after_evaluation(
    section: CurriculumSection, state: CurriculumState, results: Mapping[str, Evaluated], finished: int
) -> Step:
    """Remembers what was found out, raises alarms, and changes the level if a gate was passed.

    Args:
        results: of every split that was due, by its name.
        finished: RL iterations.
    """
    messages, counted = [], []
    least = section.evaluation_tasks / 2 if section.evaluation_least is None else section.evaluation_least
    for level in due_levels(section, state, finished):
        result = results[section.levels[level].evaluate]
        if result.n < least:
            messages.append(
                f"curriculum: the evaluation of level {level} does not count: {result.n} of {section.evaluation_tasks} "
                f"games were played to an end, wanted {math.ceil(least)}"
            )
            continue
        counted.append(level)
        history = state.histories.get(level, History()).including(Score.of(finished, result))
        state = state.with_history(level, history)
    state = dataclasses.replace(state, evaluations=state.evaluations + 1)
    messages += [f"alarm: {alarm.sentence()}" for alarm in alarms(section, state) if alarm.level in counted]
    moved = _through_gate(section, state, finished) if state.level in counted else None
    if moved is None:
        return Step(state=state, messages=tuple(messages))
    return Step(state=moved.state, messages=(*messages, *moved.messages))


def alarms(section: CurriculumSection, state: CurriculumState) -> list[Forgotten]:
    """The levels below that were solved less often than at their best when they were last evaluated."""
    found = [
        forgotten(level, state.histories.get(level, History()), drop=section.forgetting_drop)
        for level in levels_below(section, state)
    ]
    return [alarm for alarm in found if alarm is not None]


def moved(section: CurriculumSection, state: CurriculumState, step: int, finished: int, why: str) -> Step | None:
    """To the level after (+1) or before (-1); None at the end of the levels, or while this one may not be left."""
    levels, number = list(section.levels), number_of(section, state) + step
    if not 0 <= number < len(levels) or not may_leave(since=state.since, finished=finished, stay=section.stay):
        return None
    message = (
        f"curriculum: level {state.level} → {levels[number]} after {finished - state.since} iterations of it ({why})"
    )
    return Step(state=state.at_level(levels[number], finished), messages=(message,))


def _through_gate(section: CurriculumSection, state: CurriculumState, finished: int) -> Step | None:
    scores: Sequence[Score] = state.histories[state.level].since(state.since)
    move = gate(
        scores,
        harder_above=section.harder_above,
        easier_below=section.easier_below,
        confirmations=section.confirmations,
        certain=section.certain,
    )
    if move == "stay":
        return None
    successes = ", ".join(f"{score.success:.2f}" for score in scores[-section.confirmations :])
    bound = f"above {section.harder_above:g}" if move == "harder" else f"below {section.easier_below:g}"
    why = f"success {successes}, {bound}; n {scores[-1].n}"
    return moved(section, state, +1 if move == "harder" else -1, finished, why)
