"""One command for several: written out, recognised in an expert's way, and said again."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.actions.macros import Macro, bound, contract, expand
from jaxmtrl.actions.verbs import verb_of

FETCH = Macro.of("fetch X from Y", ["go to Y", "try open Y", "take X from Y"])
CLEAN = Macro.of("wash X", ["go to sink 1", "clean X with sink 1"])
KNOWN = {"go to", "open", "take", "clean", "put", "fetch", "wash"}
WAY = ["go to safe 1", "open safe 1", "take mug 1 from safe 1", "go to sink 1", "clean mug 1 with sink 1"]


def test_a_macro_tells_its_verb_and_its_parameters():
    assert (FETCH.verb, FETCH.parameters) == ("fetch", {"X", "Y"})
    assert Macro.of("look around", ["look"]).verb == "look around"
    assert FETCH.says() == "fetch X from Y (go to Y, open Y, take X from Y)"


def test_a_command_is_written_out():
    steps = expand(FETCH, "fetch mug 1 from safe 1")
    assert steps is not None
    assert [(step.template, step.optional) for step in steps] == [
        ("go to safe 1", False), ("open safe 1", True), ("take mug 1 from safe 1", False),
    ]  # fmt: skip
    assert expand(FETCH, "fetch mug 1") is None


@pytest.mark.parametrize(
    ("template", "command", "known", "values"),
    [
        ("take X from Y", "take mug 1 from desk 2", {}, {"X": "mug 1", "Y": "desk 2"}),
        ("take X from Y", "take mug 1 from desk 2", {"Y": "desk 3"}, None),
        ("give X to X", "give mug to mug", {}, {"X": "mug"}),
        ("give X to X", "give mug to cup", {}, None),
        ("look", "look", {"X": "mug"}, {"X": "mug"}),
        ("look", "looks", {}, None),
    ],
)
def test_a_parameter_is_one_thing_throughout(template, command, known, values):
    assert bound(template, command, known) == values


def test_an_expert_says_it_in_the_commands_of_the_stage():
    macros = [FETCH, CLEAN]
    assert contract(WAY, macros, {"fetch", "wash"}, KNOWN) == ["fetch mug 1 from safe 1", "wash mug 1"]
    without = [WAY[0], *WAY[2:]]  # it was open already
    assert contract(without, macros, {"fetch", "wash"}, KNOWN) == ["fetch mug 1 from safe 1", "wash mug 1"]
    assert contract(WAY, [CLEAN], {"go to", "open", "take"}, KNOWN) == [*WAY[:3], "wash mug 1"]
    assert contract(WAY, [], {"go to", "open", "take"}, KNOWN) is None
    assert contract([], [], set(), KNOWN) == []


def test_what_another_thing_was_done_to_is_no_macro():
    other = ["go to safe 1", "open safe 2", "take mug 1 from safe 1"]
    assert contract(other, [FETCH], {"fetch"}, KNOWN) is None


@given(
    way=st.lists(st.sampled_from([*WAY, "put mug 1 in safe 1", "go to safe 2", "take cup 1 from safe 2"]), max_size=7),
    allowed=st.sets(st.sampled_from(["go to", "open", "take", "clean", "put"])),
)
def test_it_is_the_shortest_of_all_ways_to_say_it(way, allowed):
    """Beside a search that tries every cut; whatever is said stands for exactly that way."""
    said = contract(way, [FETCH, CLEAN], allowed, KNOWN)
    found = [len(cut) for cut in cuts(way, allowed)]
    assert (said is None) == (not found)
    if said is not None:
        assert len(said) == min(found)
        for command in said:
            verb = verb_of(command, KNOWN)
            macro = {"fetch": FETCH, "wash": CLEAN}.get(verb)
            assert verb in allowed if macro is None else expand(macro, command)


def cuts(way, allowed):
    """Every way to cut it into single allowed commands and pieces that a macro stands for."""
    if not way:
        yield []
        return
    if verb_of(way[0], KNOWN) in allowed:
        yield from ([1, *rest] for rest in cuts(way[1:], allowed))
    for macro, count in itertools.product([FETCH, CLEAN], (1, 2, 3)):
        if len(way) >= count and stands_for(macro, way[:count]):
            yield from ([count, *rest] for rest in cuts(way[count:], allowed))


def stands_for(macro, commands) -> bool:
    needed = [step for step in macro.steps if not step.optional]
    for steps in (macro.steps, needed):
        if len(steps) == len(commands):
            values: dict | None = {}
            for step, command in zip(steps, commands):
                values = None if values is None else bound(step.template, command, values)
            if values is not None and macro.parameters <= values.keys():
                return True
    return False
