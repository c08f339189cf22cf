"""Stages: what may be used in which, what is offered, and how a task carries its own."""

from __future__ import annotations

from jaxmtrl.actions.space import ActionSpace, stage_of, staged
from jaxmtrl.types import Task

SPACE = ActionSpace.of(
    {"basic": ["take", "unlock"], "more": ["open"]}, {"unlock X": ["take X key", "open door"], "grab X": ["take X"]}
)


def test_a_stage_has_what_those_before_it_have():
    assert [SPACE.allowed(stage) for stage in (0, 1, None)] == [("take", "unlock"), *[("take", "unlock", "open")] * 2]
    assert [SPACE.may_use("open door", stage) for stage in (0, 1, None)] == [False, True, True]
    assert not SPACE.may_use("look", 1) and SPACE.may_use("look", None)


def test_a_macro_is_there_where_its_verb_is():
    assert [macro.verb for macro in SPACE.macros_of(0)] == ["unlock"]
    assert SPACE.legend(0) == "You may use: take; unlock X (take X key, open door)."


def test_what_is_offered_is_what_may_be_used_and_macros_that_can_be_begun():
    admissible = ["take red key", "take blue key", "open door", "look"]
    assert SPACE.offered(admissible, 0) == ["take red key", "take blue key", "unlock red", "unlock blue"]
    assert SPACE.offered(["take axe", "look"], 0) == ["take axe"]


def test_a_macro_whose_parameters_show_later_is_not_offered():
    space = ActionSpace.of({"a": ["fetch"]}, {"fetch X from Y": ["go to Y", "take X from Y"]})
    assert space.offered(["go to desk 1"], 0) == []


def test_a_task_carries_its_stage():
    task = Task(id="a", seed=0, payload={"max_steps": 8})
    assert stage_of(task.payload) is None
    assert stage_of(staged(task, 1).payload) == 1 and staged(task, 1).payload["max_steps"] == 8
