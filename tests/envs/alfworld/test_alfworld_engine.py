"""A small kitchen, played: what the official engine says to each command, and what it lists."""

from __future__ import annotations

import pickle

import pytest
from small_room import (
    KITCHEN_PLACES,
    KITCHEN_THINGS,
    Place,
    Thing,
    kitchen,
    light_goal,
    place_goal,
    problem_text,
    world_of,
)

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.naming import CLASSIC, MODERN
from jaxmtrl.errors import EnvironmentFailure

NOTHING = "Nothing happens."


@pytest.fixture
def world() -> World:
    return world_of(kitchen())


def said(world: World, *commands: str) -> str:
    """The answer to the last of some commands, of which none may fail but the last."""
    for command in commands[:-1]:
        assert world.step(command)[0] != NOTHING, command
    return world.step(commands[-1])[0]


def test_the_first_observation_lists_receptacles_by_id_and_ends_with_the_task(world):
    assert world.reset() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 2, a cabinet 1, "
        "a countertop 1, a fridge 1, a microwave 1, a sidetable 1, and a sinkbasin 1.\n\n"
        "Your task is to: test it."
    )


def test_at_the_start_one_can_go_look_and_ask(world):
    places = "cabinet 1, cabinet 2, countertop 1, fridge 1, microwave 1, sidetable 1, sinkbasin 1".split(", ")
    assert world.admissible() == sorted([*(f"go to {place}" for place in places), "help", "inventory", "look"])


def test_looking_back_from_the_middle_shows_nothing(world):
    assert said(world, "look") == "You are in the middle of a room. Looking quickly around you, you see nothing."


def test_open_places_show_what_is_on_them_and_closed_ones_do_not(world):
    assert said(world, "go to countertop 1") == (
        "You arrive at countertop 1. On the countertop 1, you see a apple 1, and a mug 1."
    )
    assert said(world, "go to cabinet 2") == "You arrive at cabinet 2. The cabinet 2 is closed."
    assert said(world, "open cabinet 2") == ("You open the cabinet 2. The cabinet 2 is open. In it, you see a knife 1.")
    assert said(world, "examine cabinet 2") == "The cabinet 2 is open. In it, you see a knife 1."
    assert said(world, "close cabinet 2") == "You close the cabinet 2."
    assert said(world, "close cabinet 2") == said(world, "take knife 1 from cabinet 2") == NOTHING


def test_a_receptacle_beside_the_agent_needs_no_going_and_allows_none(world):
    said(world, "go to countertop 1")
    assert said(world, "look") == ("You are facing the countertop 1, and microwave 1. Next to it, you see nothing.")
    assert said(world, "go to microwave 1") == said(world, "go to countertop 1") == NOTHING
    assert "open microwave 1" in world.admissible() and "go to microwave 1" not in world.admissible()
    assert said(world, "examine microwave 1") == "The microwave 1 is closed."


def test_the_hand_holds_one_thing(world):
    assert said(world, "inventory") == "You are not carrying anything."
    assert said(world, "go to countertop 1", "take apple 1 from countertop 1") == (
        "You pick up the apple 1 from the countertop 1."
    )
    assert said(world, "inventory") == "You are carrying: a apple 1."
    assert said(world, "take mug 1 from countertop 1") == NOTHING
    assert not any(command.startswith("take") for command in world.admissible())
    assert said(world, "open microwave 1", "move apple 1 to microwave 1") == "You move the apple 1 to the microwave 1."
    assert said(world, "move apple 1 to microwave 1") == NOTHING


def test_things_go_only_where_their_class_fits(world):
    said(world, "go to cabinet 2", "open cabinet 2", "take knife 1 from cabinet 2", "go to sidetable 1")
    assert said(world, "move knife 1 to sidetable 1") == NOTHING
    assert (
        said(world, "go to countertop 1", "move knife 1 to countertop 1") == "You move the knife 1 to the countertop 1."
    )


def test_what_is_moved_beside_is_seen_next_to_where_it_was(world):
    """The official engine calls "next to it" what lies here, but not in a receptacle that it was once taken out of."""
    said(
        world, "go to countertop 1", "open microwave 1", "take apple 1 from countertop 1", "move apple 1 to microwave 1"
    )
    assert said(world, "look") == "You are facing the countertop 1, and microwave 1. Next to it, you see a apple 1."
    said(world, "take apple 1 from microwave 1", "move apple 1 to countertop 1")
    assert said(world, "look").endswith("you see a apple 1.")  # for the microwave
    said(world, "take apple 1 from countertop 1", "move apple 1 to microwave 1", "take apple 1 from microwave 1")
    assert said(world, "look").endswith("you see nothing.")  # it is in the hand


def test_what_is_put_down_is_listed_by_id(world):
    said(world, "go to countertop 1", "take apple 1 from countertop 1", "move apple 1 to countertop 1")
    assert said(world, "examine countertop 1") == "On the countertop 1, you see a apple 1, and a mug 1."
    said(world, "open microwave 1", "take mug 1 from microwave 1", "move mug 1 to countertop 1")  # it is there, too
    assert said(world, "examine countertop 1") == "On the countertop 1, you see a apple 1, and a mug 1."


def test_what_was_cold_is_not_when_it_was_heated():
    world = world_of(kitchen(place_goal("Apple", "CounterTop", "isCool")))
    said(world, "go to fridge 1", "open fridge 1", "take apple 2 from fridge 1", "cool apple 2 with fridge 1")
    said(world, "go to microwave 1", "heat apple 2 with microwave 1")
    assert world.step("move apple 2 to countertop 1")[1] is False
    said(world, "take apple 2 from countertop 1", "go to fridge 1", "cool apple 2 with fridge 1", "go to countertop 1")
    assert world.step("move apple 2 to countertop 1")[1] is True


def test_treatments_show_and_heat_undoes_cold(world):
    said(world, "go to countertop 1", "take apple 1 from countertop 1")
    assert said(world, "examine apple 1") == "There's nothing special about apple 1."
    assert said(world, "heat apple 1 with microwave 1") == "You heat the apple 1 using the microwave 1."
    assert said(world, "examine apple 1") == "This is a hot apple 1."
    assert said(world, "heat apple 1 with countertop 1") == said(world, "cool apple 1 with microwave 1") == NOTHING
    assert said(world, "go to fridge 1", "cool apple 1 with fridge 1") == "You cool the apple 1 using the fridge 1."
    assert said(world, "examine apple 1") == "This is a cold apple 1."
    assert said(world, "go to sinkbasin 1", "clean apple 1 with sinkbasin 1") == (
        "You clean the apple 1 using the sinkbasin 1."
    )
    assert said(world, "examine apple 1") == "This is a cool and clean apple 1."
    assert said(world, "go to microwave 1", "heat apple 1 with microwave 1") != NOTHING
    assert said(world, "examine apple 1") == "This is a hot and clean apple 1."
    said(world, "move apple 1 to countertop 1")
    assert said(world, "examine apple 1") == NOTHING  # only what is held


def test_a_knife_slices_what_lies_here_even_behind_a_door(world):
    said(world, "go to cabinet 2", "open cabinet 2", "take knife 1 from cabinet 2")
    assert said(world, "slice apple 2 with knife 1") == NOTHING
    said(world, "go to fridge 1")
    assert "slice apple 2 with knife 1" in world.admissible()
    assert said(world, "slice apple 2 with knife 1") == "You sliced the apple 2 with the knife 1."
    said(world, "open fridge 1", "move knife 1 to fridge 1")
    assert said(world, "slice apple 2 with knife 1") == NOTHING
    said(world, "take apple 2 from fridge 1")
    assert said(world, "examine apple 2") == "This is a sliced apple 2."
    said(world, "cool apple 2 with fridge 1")
    assert said(world, "examine apple 2") == "This is a cool sliced apple 2."


def test_a_lamp_only_ever_turns_on(world):
    assert said(world, "use desklamp 1") == NOTHING
    assert said(world, "go to sidetable 1", "use desklamp 1") == "You turn on the desklamp 1."
    assert said(world, "use desklamp 1") == "You turn on the desklamp 1."
    assert said(world, "take desklamp 1 from sidetable 1") == NOTHING  # it cannot be carried


def test_a_thing_in_two_receptacles_stays_in_the_other_one(world):
    said(world, "go to countertop 1", "take mug 1 from countertop 1")
    assert said(world, "open microwave 1").endswith("In it, you see a mug 1.")
    assert said(world, "examine mug 1") == "This is a normal mug 1. In it, you see nothing."
    said(world, "move mug 1 to microwave 1")
    assert said(world, "examine countertop 1") == "On the countertop 1, you see a apple 1."


def test_what_holds_things_shows_them():
    text = problem_text(
        {"t": Place("CounterTop", 1)},
        {
            "e": Thing("Egg", ["t"]),
            "b": Thing("Bowl", ["t"], "pickupable isReceptacleObject"),
            "p": Thing("Pen", ["t"]),
        },
        place_goal("Egg", "CounterTop", "isHot"),
        more="(inReceptacleObject Egg_bar_e Bowl_bar_b) (inReceptacleObject Pen_bar_p Bowl_bar_b)",
    )
    world = world_of(text)
    said(world, "go to countertop 1", "take bowl 1 from countertop 1")
    assert said(world, "examine bowl 1") == "This is a normal bowl 1. In it, you see a egg 1, and a pen 1."


@pytest.mark.parametrize(
    "command",
    ["", " ", "Look", "look around", "go", "go to", "go to  cabinet 1", "go to cabinet", "go to cabinet 3", "open",
     "take apple 1", "take apple 1 from", "examine", "use", "move apple 1 to", "put apple 1 in/on countertop 1",
     "help me", "inventory ?", "slice apple 1 with", "heat apple 1", "step", "_go", "go to apple 1", "examine loc 1",
     "\x00"],
)  # fmt: skip
def test_anything_else_changes_nothing(world, command):
    said(world, "go to countertop 1", "take apple 1 from countertop 1")
    before, listed = world.key(), world.admissible()
    assert world.step(command) == (NOTHING, False)
    assert world.key() == before and world.admissible() == listed


def test_space_around_a_command_does_not_matter(world):
    assert said(world, "  go to countertop 1\n").startswith("You arrive at countertop 1.")


def test_winning_is_told_with_the_step_that_does_it(world):
    way = ["go to countertop 1", "take apple 1 from countertop 1", "heat apple 1 with microwave 1", "go to sidetable 1"]
    assert not any(world.step(command)[1] for command in way) and not world.won
    assert world.step("move apple 1 to sidetable 1") == ("You move the apple 1 to the sidetable 1.", True)
    assert world.won
    assert world.step("take apple 1 from sidetable 1")[1] is False  # the engine itself plays on
    world.reset()
    assert not world.won and world.step("go to countertop 1")[0].endswith("a apple 1, and a mug 1.")


def test_a_light_task_wants_the_thing_in_hand_at_a_lamp_that_was_used():
    world = world_of(kitchen(light_goal("Apple", "DeskLamp")))
    said(world, "go to sidetable 1", "use desklamp 1", "go to countertop 1")
    assert world.step("take apple 1 from countertop 1")[1] is False
    assert world.step("go to sidetable 1")[1] is True


def test_admissible_commands_are_those_that_do_something(world):
    """All commands that could be formed of names here are tried; just the listed ones are answered."""
    said(world, "go to countertop 1", "open microwave 1", "take mug 1 from microwave 1")
    things, places = world.scene.object_names, world.scene.receptacle_names
    forms = ["look", "inventory", "help"]
    for place in places:
        forms += [f"{verb} {place}" for verb in ("go to", "open", "close", "examine", "use")]
        for thing in things:
            forms += [f"take {thing} from {place}", f"move {thing} to {place}"]
            forms += [f"{verb} {thing} with {place}" for verb in ("clean", "heat", "cool", "slice")]
    for thing in things:
        forms += [f"examine {thing}", f"use {thing}", *(f"slice {thing} with {other}" for other in things)]
    assert world.admissible() == sorted(form for form in forms if world.copy().step(form)[0] != NOTHING)


def test_a_copy_goes_its_own_way(world):
    said(world, "go to countertop 1", "take apple 1 from countertop 1")
    before, twin = world.key(), world.copy()
    assert twin.key() == before
    for command in (
        "heat apple 1 with microwave 1",
        "open microwave 1",
        "move apple 1 to microwave 1",
        "go to fridge 1",
    ):
        said(twin, command)
        assert world.key() == before != twin.key()


def test_a_world_survives_pickling(world):
    said(world, "go to countertop 1", "take apple 1 from countertop 1", "heat apple 1 with microwave 1")
    twin = pickle.loads(pickle.dumps(world))
    assert twin.key() == world.key() and twin.admissible() == world.admissible()
    assert twin.step("go to sidetable 1") == world.step("go to sidetable 1")


def test_states_that_differ_in_one_thing_have_different_keys(world):
    said(world, "go to countertop 1")
    branches = [
        "open microwave 1", "take apple 1 from countertop 1", "take mug 1 from countertop 1", "go to fridge 1"
    ]  # fmt: skip
    keys = {world.key()}
    for command in branches:
        twin = world.copy()
        said(twin, command)
        keys.add(twin.key())
    assert len(keys) == len(branches) + 1
    said(world, "open microwave 1", "close microwave 1")
    assert world.key() in keys  # back again


def test_the_older_wording_differs_in_three_texts_and_has_no_help():
    world = world_of(kitchen(), CLASSIC)
    assert "help" not in world.admissible() and said(world, "help") == NOTHING
    # the ids of seven places in ascending order are loc 7 to loc 1; the counter top is at the fourth
    assert said(world, "go to countertop 1") == (
        "You arrive at loc 4. On the countertop 1, you see a apple 1, and a mug 1."
    )
    said(world, "take apple 1 from countertop 1")
    assert "put apple 1 in/on countertop 1" in world.admissible()
    assert said(world, "move apple 1 to countertop 1") == NOTHING
    assert said(world, "put apple 1 in/on countertop 1") == "You put the apple 1 in/on the countertop 1."


def test_help_lists_the_commands(world):
    text = said(world, "help")
    assert text.startswith("Available commands:\n  look:   ") and text.endswith("using a sharp object\n")
    assert text.count("\n") == 14


def test_an_agent_that_begins_at_a_receptacle_faces_it():
    text = problem_text({**KITCHEN_PLACES, "d": Place("SideTable", 0)}, KITCHEN_THINGS, place_goal("Mug", "Fridge"))
    assert "\n\nYou are facing the sidetable 1. Next to it, you see nothing.\n\n" in world_of(text, MODERN).reset()


def test_a_goal_that_the_engine_cannot_test_is_refused():
    for goal in ("(and (or))", "(not (exists (?o - object) (isHot ?o)))", "(and (exists (?o - object) (full ?o)))"):
        with pytest.raises(EnvironmentFailure, match="goal"):
            world_of(kitchen(goal))
