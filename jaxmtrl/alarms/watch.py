"""The facade for the loop that trains: one call an iteration, from a state to the next, with what there is to say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from jaxmtrl.alarms.actions import KL_WARM_UP, REWARD_SCALING, follows
from jaxmtrl.alarms.commands import commands, verbs, verbs_understood, with_verbs
from jaxmtrl.alarms.figures import batch_figures, finite, scaled_figures
from jaxmtrl.alarms.history import History, Look
from jaxmtrl.alarms.rules import RULES, Situation, Symptom
from jaxmtrl.alarms.state import AlarmState, Ringing
from jaxmtrl.config.alarms_section import ALARMS, AlarmName, AlarmsSection
from jaxmtrl.types import Episode


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What followed from an iteration."""

    state: AlarmState
    values: Mapping[str, float]  # figures, and alarm/NAME 1 or 0 of every alarm that is not off
    messages: tuple[str, ...] = ()  # of alarms that were raised, and of those that are over
    stop: str = ""  # why the run should stop; "" if it should go on


def measure(
    section: AlarmsSection, state: AlarmState, episodes: Sequence[Episode], *, reward_scale: float | None
) -> Seen:
    """The figures of a batch that was played, whatever the stage.

    Args:
        reward_scale: what the update multiplies rewards by, in a run that scales them; None in another.
    """
    state = dataclasses.replace(state, verbs=with_verbs(state.verbs, verbs_understood(episodes)))
    values = batch_figures(episodes, known_verbs=state.verbs)
    if reward_scale is not None:
        bounds = {"low": section.variance_low, "high": section.variance_high}
        values |= scaled_figures(values["return/variance"], reward_scale=reward_scale, **bounds)
    return Seen(state=state, values=finite(values))


def watch(
    section: AlarmsSection,
    state: AlarmState,
    episodes: Sequence[Episode],
    metrics: Mapping[str, float | None],
    *,
    finished: int,
    iterations: int,
    reward_scale: float | None,
    tasks: str = "",
    rl: bool = True,
) -> Seen:
    """One iteration of play: its figures, and in RL the alarms.

    An alarm is raised once and then rings until its signs were gone for `calm` iterations; raised again, it is told
    again.

    Args:
        metrics: all that is logged of the iteration so far.
        finished: RL iterations that are finished, this one included.
        iterations: of RL in all.
        reward_scale: as for `measure`.
        tasks: what is trained on, for example the level of a curriculum; a change begins the history anew, since
            other tasks are solved more or less often by the same policy.
        rl: False where play only warms the critic up: there is nothing to judge but what is said.
    """
    seen = measure(section, state, episodes, reward_scale=reward_scale)
    if not (section.on and rl):
        return seen
    history = state.history if tasks == state.tasks else History()
    look = Look.of(finished, {**metrics, **seen.values})
    history = history.including(look, opening=section.opening, window=section.window)
    state = dataclasses.replace(seen.state, history=history, tasks=tasks)
    situation = Situation(
        section=section, history=history, iterations=iterations, said=verbs(commands(episodes)), splits=state.splits
    )
    messages, stops = [], []
    for name in ALARMS:
        if section.reaction(name) != "off":
            state, said, stop = _judged(name, section, state, situation)
            messages += said
            stops += stop
    curves = {f"alarm/{name}": float(name in state.ringing) for name in ALARMS if section.reaction(name) != "off"}
    return Seen(state=state, values={**seen.values, **curves}, messages=tuple(messages), stop=" ".join(stops))


def _judged(
    name: AlarmName, section: AlarmsSection, state: AlarmState, situation: Situation
) -> tuple[AlarmState, list[str], list[str]]:
    """State, messages and reasons to stop after one alarm's rule."""
    before = state.ringing.get(name)
    symptom = RULES[name](dataclasses.replace(situation, ringing=before is not None))
    others = {other: ringing for other, ringing in state.ringing.items() if other != name}
    if symptom is not None and before is None:
        return _raised(name, symptom, section, state, situation.finished)
    if before is None:
        return state, [], []
    if symptom is not None:
        return dataclasses.replace(state, ringing={**others, name: dataclasses.replace(before, calm=0)}), [], []
    calm = before.calm + 1
    if calm < section.calm:
        return dataclasses.replace(state, ringing={**others, name: dataclasses.replace(before, calm=calm)}), [], []
    over = f"alarm {name} is over: no sign of it since iteration {situation.finished - calm + 1} (it began with "
    return dataclasses.replace(state, ringing=others), [f"{over}{before.since})"], []


def _raised(
    name: AlarmName, symptom: Symptom, section: AlarmsSection, state: AlarmState, finished: int
) -> tuple[AlarmState, list[str], list[str]]:
    reaction = section.reaction(name)
    text = f"alarm {name} since RL iteration {symptom.since}: {symptom.seen}. {symptom.cure}"
    done = follows(section, reaction, state.turned)
    begun = {reaction: finished} if reaction in (KL_WARM_UP, REWARD_SCALING) and reaction not in state.turned else {}
    ringing = {**state.ringing, name: Ringing(since=symptom.since, noticed=finished)}
    after = dataclasses.replace(state, ringing=ringing, turned={**state.turned, **begun})
    return after, [f"{text} {done}".rstrip()], [text] if reaction == "stop" else []
