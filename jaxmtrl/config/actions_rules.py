"""Rules of the action space in stages: names that can be told apart, macros that can be played, steps small enough.

Written and reported like those of `rules.py`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import partial

from jaxmtrl.actions.macros import Macro, parameters_of
from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.actions.verbs import verb_of
from jaxmtrl.config.actions_section import ActionsSection
from jaxmtrl.config.rule import Rule, rule_of
from jaxmtrl.config.sections import Config
from jaxmtrl.fields import nearest

ACTIONS_RULES: list[Rule] = []
_rule = partial(rule_of, ACTIONS_RULES)

_NAME = re.compile(r"\S([^\r\n]*\S)?")
_VERB = re.compile(r"[a-z][a-z'-]*( [a-z][a-z'-]*)*")
_OF_STAGES = ("macros", "growth", "enforce", "evaluate", "start", "advance", "at")
_OF_SUCCESS = ("every", "least", "advance_above", "return_below", "confirmations", "stay", "certain")


def _set(section: ActionsSection, names: tuple[str, ...]) -> list[str]:
    """Those of the named fields that were set."""
    default = ActionsSection()
    return [name for name in names if getattr(section, name) != getattr(default, name)]


@_rule("actions.stages", *(f"actions.{name}" for name in (*_OF_STAGES, *_OF_SUCCESS)))
def _settings_have_stages(config: Config) -> str | None:
    idle = _set(config.actions, (*_OF_STAGES, *_OF_SUCCESS))
    if config.actions.on or not idle:
        return None
    return (
        f"actions.{idle[0]}: got {getattr(config.actions, idle[0])!r}, which nothing reads with actions.stages empty; "
        f"name stages, or remove {', '.join(f'actions.{name}' for name in idle)}"
    )


@_rule("actions.stages")
def _stages_add_verbs(config: Config) -> list[str]:
    mistakes = []
    for name, adds in config.actions.stages.items():
        if not _NAME.fullmatch(name):
            mistakes.append(f"actions.stages: got the name {name!r}, wanted one line that is not blank; rename it")
        if not adds:
            mistakes.append(f"actions.stages.{name}: adds nothing; name a verb, or remove the stage")
        mistakes += [
            f"actions.stages.{name}: got {verb!r}, wanted a verb in small letters with single spaces, such as take or "
            "go to; of a macro the words before its first parameter"
            for verb in adds
            if not _VERB.fullmatch(verb)
        ]
    return mistakes


@_rule("actions.stages")
def _verbs_are_added_once(config: Config) -> str | None:
    counted = Counter(verb for adds in config.actions.stages.values() for verb in adds)
    again = [verb for verb, count in counted.items() if count > 1]
    if not again:
        return None
    return (
        f"actions.stages: {', '.join(again)} added more than once; a stage has what those before it have: name each "
        "verb once"
    )


@_rule("actions.stages", "actions.growth")
def _stages_grow_slowly(config: Config) -> list[str]:
    section = config.actions
    total = sum(len(adds) for adds in section.stages.values())
    most = max(1, math.floor(section.growth * total + 1e-9))
    return [
        f"actions.stages.{name}: adds {len(adds)} of the last stage's {total} verbs "
        f"({100 * len(adds) / total:.0f} %), wanted at most {most} (actions.growth {section.growth:g}); put "
        f"{len(adds) - most} of them into the first stage or a stage of their own, or raise actions.growth to "
        f"{math.ceil(100 * len(adds) / total) / 100:g}"
        for name, adds in list(section.stages.items())[1:]
        if len(adds) > most
    ]


@_rule("actions.start", "actions.stages")
def _the_start_is_a_stage(config: Config) -> str | None:
    section = config.actions
    if not section.start or not section.stages or section.start in section.stages:
        return None
    return f"actions.start: got {section.start!r}, wanted one of actions.stages: {', '.join(section.stages)}"


@_rule("actions.macros")
def _macros_are_commands_with_steps(config: Config) -> list[str]:
    mistakes = []
    for written, steps in config.actions.macros.items():
        macro, place = Macro.of(written, steps), f"actions.macros.{written}"
        if not _VERB.fullmatch(macro.verb):
            mistakes.append(
                f"{place}: wanted a verb in small letters, then parameters in capitals, such as fetch X from Y"
            )
        mistakes += [
            f"{place}: got the step {step.template!r}, wanted a verb in small letters at its beginning, and try "
            "once at most; of a command that is all parameters nobody knows what it may do"
            for step in macro.steps
            if step.template.startswith("try ") or not _VERB.fullmatch(Macro.of(step.template, ()).verb)
        ]
        if not any(not step.optional for step in macro.steps):
            mistakes.append(
                f"{place}: got {list(steps)}, wanted a step that is always done; take a try off, or remove the macro"
            )
        used = frozenset().union(*(parameters_of(step.template) for step in macro.steps))
        if unknown := sorted(used - macro.parameters):
            mistakes.append(
                f"{place}: its steps have {', '.join(unknown)}, which {written!r} does not; name it in the command"
            )
        elif unused := sorted(macro.parameters - used):
            mistakes.append(
                f"{place}: {', '.join(unused)} stands in none of its steps; use it, or take it out of the command"
            )
    return mistakes


@_rule("actions.macros", "actions.stages")
def _macros_are_of_a_stage(config: Config) -> list[str]:
    section = config.actions
    space = ActionSpace.of(section.stages, section.macros)
    verbs = [macro.verb for macro in space.macros]
    if again := [verb for verb, count in Counter(verbs).items() if count > 1]:
        return [f"actions.macros: two begin with {verb!r}, by which they are told apart; rename one" for verb in again]
    if not section.stages:
        return []
    mistakes = []
    for verb in verbs:
        if verb and verb not in space.known:
            near = nearest(verb, tuple(space.known))
            meant = f" (did you mean {near}?)" if near else ""
            mistakes.append(f"actions.macros: {verb!r} is in none of actions.stages; add it to one{meant}")
    for macro in space.macros:
        mistakes += [
            f"actions.macros.{macro.template}: its step {step.template!r} is a macro itself; write out the game's "
            "commands that it stands for"
            for step in macro.steps
            if verb_of(step.template, space.known | set(verbs)) in verbs
        ]
    return mistakes


@_rule("actions.advance", "actions.at", "actions.stages", "actions.start")
def _iterations_are_named_for_every_stage(config: Config) -> str | None:
    section = config.actions
    if section.advance == "success" and section.at:
        return f"actions.at: got {list(section.at)} with actions.advance success; set that to iterations, or remove it"
    known = not section.start or section.start in section.stages
    if section.advance == "success" or not section.stages or not known:
        return None
    later = len(section.stages) - 1 - section.first_stage
    ascending = all(low < high for low, high in zip(section.at, section.at[1:]))
    if len(section.at) == later and ascending:
        return None
    return (
        f"actions.at: got {list(section.at)} with actions.advance iterations, wanted {later} ascending RL iterations, "
        f"one for each stage after the first; set {[10 * (number + 1) for number in range(later)]}"
    )


@_rule("actions.advance", *(f"actions.{name}" for name in _OF_SUCCESS))
def _gates_are_of_success(config: Config) -> str | None:
    idle = _set(config.actions, _OF_SUCCESS)
    if config.actions.advance == "success" or not idle:
        return None
    return (
        f"actions.{idle[0]}: got {getattr(config.actions, idle[0])!r}, which nothing reads with actions.advance "
        f"iterations; set that to success, or remove {', '.join(f'actions.{name}' for name in idle)}"
    )


@_rule("actions.return_below", "actions.advance_above")
def _gates_of_stages_leave_room_between(config: Config) -> str | None:
    section = config.actions
    if section.return_below < section.advance_above:
        return None
    return (
        f"actions.return_below: got {section.return_below:g}, wanted less than actions.advance_above "
        f"({section.advance_above:g}); lower the first or raise the second"
    )


@_rule("actions.stages", "rollout.overlap")
def _stages_follow_what_was_learnt(config: Config) -> str | None:
    if not config.rollout.overlap or len(config.actions.stages) < 2:
        return None
    return (
        "rollout.overlap: got true with several actions.stages, wanted false: the next batch would be played before it "
        "is known in which stage; set rollout.overlap to false"
    )
