"""What a task can be about: it can be done in the scene, and it is not done from the start."""

from __future__ import annotations

import pytest

from jaxmtrl.envs.alfworld.games import KINDS
from jaxmtrl.envs.alfworld.room import can_lie
from jaxmtrl.envs.alfworld.tables import tables, train_scenes
from jaxmtrl.envs.alfworld.task_types import need_of, possible_tasks

BY_HAND = {  # of kitchen 10: (what, where) that can be asked for, and some that cannot
    "pick_and_place_simple": ({("Mug", "CoffeeMachine"), ("Pot", "StoveBurner")}, {("Apple", "SinkBasin")}),
    "pick_heat_then_place_in_recep": ({("Mug", "Fridge")}, {("Mug", "Microwave"), ("Knife", "Drawer")}),
    "pick_cool_then_place_in_recep": ({("Pan", "StoveBurner")}, {("Mug", "Fridge"), ("Fork", "Drawer")}),
    "pick_clean_then_place_in_recep": ({("Fork", "Drawer")}, {("Bread", "Fridge"), ("Mug", "SinkBasin")}),
    "look_at_obj_in_light": (set(), {("Mug", "DeskLamp"), ("Mug", "Shelf")}),
}


@pytest.mark.parametrize("kind", sorted(BY_HAND))
def test_a_kitchen(kind):
    possible, impossible = BY_HAND[kind]
    found = set(possible_tasks(kind, 10))
    assert possible <= found and not impossible & found


def test_a_lamp_must_be_there_to_look_at_things_in_its_light():
    with_lamp = {number for number in tables().scenes if "DeskLamp" in tables().scenes[number].objects}
    assert {number for number in tables().scenes if possible_tasks("look_at_obj_in_light", number)} == with_lamp
    assert {place for number in with_lamp for _, place in possible_tasks("look_at_obj_in_light", number)} == {
        "DeskLamp"
    }


def test_a_target_has_somewhere_else_to_begin():
    # a towel may hang on a towel holder alone, so that it cannot be asked to be put there
    asked = {task for number in tables().scenes for task in possible_tasks("pick_and_place_simple", number)}
    assert ("Towel", "TowelHolder") not in asked
    assert ("HandTowel", "HandTowelHolder") in asked


@pytest.mark.parametrize("kind", KINDS)
def test_every_possible_task_has_what_it_needs(kind):
    for number, scene in tables().scenes.items():
        there = {receptacle.kind for receptacle in scene.receptacles}
        for target, place in possible_tasks(kind, number):
            need = need_of(kind, target, place)
            assert scene.room in tables().goals[kind].rooms and target in scene.objects
            assert all(there & set(kinds) for kinds in need.present)
            assert any(can_lie(target, source) for source in there - set(need.apart))


def test_the_rooms_to_train_in_hold_many_tasks_of_every_type():
    counts = {kind: sum(len(possible_tasks(kind, number)) for number in train_scenes()) for kind in KINDS}
    assert min(counts.values()) > 300, counts


def test_targets_begin_outside_of_goal_and_tool():
    need = need_of("pick_heat_then_place_in_recep", "Mug", "Shelf")
    assert need.apart == ("Shelf", "Microwave") and need.present == (("Shelf",), ("Microwave",))
    assert need_of("pick_two_obj_and_place", "Mug", "Shelf").targets == 2
