"""The searching expert wins, and nothing it does depends on what it has not seen."""

from __future__ import annotations

import pytest
from small_room import Place, Thing, light_goal, place_goal, problem_text, world_of

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import KINDS
from jaxmtrl.envs.alfworld.generator import complexity, generate
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.problem import read_problem
from jaxmtrl.envs.alfworld.search import search

PLACES = {
    "d": Place("Desk", 1),
    "s1": Place("Shelf", 2),
    "s2": Place("Shelf", 3),
    "w": Place("Drawer", 4, openable=True),
}


def pen_in(*places: str, number: int = 1) -> World:
    things = {f"p{turn}": Thing("Pen", [place]) for turn, place in enumerate(places)}
    return world_of(problem_text(PLACES, things, place_goal("Pen", "Desk", count=number)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ["small", "large"])
def test_it_wins_games_of_every_type_by_admissible_commands_and_leaves_the_world_alone(kind, size):
    lengths = []
    for seed in range(12):
        game = generate(complexity(size, kinds=(kind,)), seed)
        world = World(read_problem(game.problem), game.task)
        before = world.key()
        commands = search(world)
        assert world.key() == before
        for command in commands:
            assert not world.won
            assert command in world.admissible()
            world.step(command)
        assert world.won
        lengths.append((len(commands), len(game.walkthrough)))
    assert all(searched >= planned for searched, planned in lengths)
    if size == "large":
        assert any(searched > planned for searched, planned in lengths)


def test_it_does_the_same_until_it_has_seen_a_difference():
    near, far = search(pen_in("s2")), search(pen_in("w"))
    looked = ["go to shelf 2", "go to shelf 1"]
    assert near == ["go to shelf 2", "go to shelf 1", "take pen 1 from shelf 1", "go to desk 1", "move pen 1 to desk 1"]
    assert far[:3] == [*looked, "go to drawer 1"]
    assert far[3:5] == ["open drawer 1", "take pen 1 from drawer 1"]


def test_a_thing_that_was_found_is_brought_before_the_next_is_looked_for():
    commands = search(pen_in("s1", "w", number=2))
    assert commands.index("move pen 2 to desk 1") < commands.index("go to drawer 1")


def test_what_is_already_where_it_must_be_is_not_fetched_again():
    commands = search(pen_in("d", "s2", number=2))
    assert [command for command in commands if command.startswith("take")] == ["take pen 1 from shelf 1"]


def test_it_takes_what_the_light_must_fall_on_and_then_looks_for_the_lamp():
    things = {"p": Thing("Pen", ["s1"]), "l": Thing("DeskLamp", ["d"], "toggleable")}
    commands = search(world_of(problem_text(PLACES, things, light_goal("Pen", "DeskLamp"))))
    assert commands[-2:] == ["go to desk 1", "use desklamp 1"]
    assert "take pen 1 from shelf 2" in commands


def test_a_place_beside_another_is_looked_into_without_going():
    places = {
        "s1": Place("Shelf", 1),
        "s2": Place("Shelf", 1),
        "w": Place("Drawer", 1, openable=True),
        "d": Place("Desk", 2),
    }
    things = {"p": Thing("Pen", ["w"])}
    commands = search(world_of(problem_text(places, things, place_goal("Pen", "Desk"))))
    assert commands[:4] == ["go to shelf 2", "examine shelf 1", "open drawer 1", "take pen 1 from drawer 1"]


def test_a_game_that_cannot_be_won_has_no_way():
    nothing = world_of(problem_text(PLACES, {"c": Thing("Cup", ["d"])}, place_goal("Pen", "Desk")))
    assert plan(nothing) is None
    assert search(nothing) is None
