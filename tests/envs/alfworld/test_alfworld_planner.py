"""The expert's ways win, and are as short as a search through all states says they can be."""

from __future__ import annotations

import pickle
import random
from collections import deque
from collections.abc import Hashable

import pytest
from small_room import Place, Thing, kitchen, light_goal, place_goal, problem_text, world_of

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.naming import CLASSIC
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.errors import EnvironmentFailure

TELLING = ("look", "inventory", "help", "examine")
TWO_TABLES = {
    "b": Place("Box", 1, openable=True),
    "t1": Place("Table", 2),
    "t2": Place("Table", 3),
}


def what_matters(world: World) -> Hashable:
    """A state without what only shows in texts."""
    return (world.at, world.held, *world.contents, *world.opened, *world.states, frozenset(world.places))


def distances(start: World) -> list[tuple[World, int | None]]:
    """All states that can be reached, each with the fewest commands to win from there; None: it cannot be won.

    Runs through them forward once, then backward from those that are won.
    """
    worlds = {what_matters(start): start}
    before: dict[Hashable, list[Hashable]] = {what_matters(start): []}
    waiting = deque(worlds)
    while waiting:
        key = waiting.popleft()
        for command in worlds[key].admissible():
            if command.startswith(TELLING):
                continue
            after = worlds[key].copy()
            after.step(command)
            reached = what_matters(after)
            if reached not in worlds:
                worlds[reached], before[reached] = after, []
                waiting.append(reached)
            before[reached].append(key)
    steps: dict[Hashable, int] = {key: 0 for key, world in worlds.items() if world.won}
    waiting = deque(steps)
    while waiting:
        key = waiting.popleft()
        for earlier in before[key]:
            if earlier not in steps:
                steps[earlier] = steps[key] + 1
                waiting.append(earlier)
    return [(world, steps.get(key)) for key, world in worlds.items()]


def two_things(facts: str, goal: str, tool: str | None = None, **others) -> str:
    places = TWO_TABLES | ({"tool": Place(tool, 4, openable=tool != "SinkBasin")} if tool else {})
    things = {"a": Thing("Apple", ["b"], facts), "m": Thing("Apple", ["t1"], facts)} | others
    return problem_text(places, things, goal)


PROBLEMS = {
    "simple": two_things("pickupable", place_goal("Apple", "Table"), p=Thing("Pen", ["t2"])).replace(
        "(inReceptacle Apple_bar_m Table_bar_t1)", "(inReceptacle Apple_bar_m Box_bar_b)"
    ),
    "two": two_things("pickupable", place_goal("Apple", "Table", count=2), p=Thing("Pen", ["t1"])),
    "clean": two_things(
        "pickupable cleanable", place_goal("Apple", "Box", "isClean"), "SinkBasin", p=Thing("Pen", ["t1"])
    ),
    "heat": two_things("pickupable heatable", place_goal("Apple", "Table", "isHot"), "Microwave"),
    "cool": two_things("pickupable coolable", place_goal("Apple", "Fridge", "isCool"), "Fridge"),
    "light": problem_text(
        {**TWO_TABLES, "d": Place("Desk", 3)},
        {
            "a": Thing("Apple", ["b"]),
            "n": Thing("Apple", ["t1"]),
            "p": Thing("Pen", ["t2"]),
            "l": Thing("Lamp", ["d", "t1"], "toggleable"),
        },
        light_goal("Apple", "Lamp"),
    ),
    "in two places": problem_text(
        {**TWO_TABLES, "s": Place("SinkBasin", 3)},
        {"a": Thing("Apple", ["t1", "b"], "pickupable cleanable"), "p": Thing("Pen", ["t2"])},
        place_goal("Apple", "Box", "isClean"),
    ),
    "dead ends": problem_text(
        TWO_TABLES,
        {"a": Thing("Apple", ["b"]), "bear": Thing("Bear", ["t1"])},
        place_goal("Apple", "Table"),
        refuses=[("Box", "Bear"), ("Table", "Bear")],
    ),
    "sliced": problem_text(
        TWO_TABLES,
        {"a": Thing("Apple", ["b"], "pickupable sliceable"), "k": Thing("Knife", ["t1"])},
        place_goal("Apple", "Table", "isSliced"),
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_plans_are_shortest_from_every_state(name):
    start = world_of(PROBLEMS[name])
    states = distances(start)
    assert len(states) > 40
    states = random.Random(name).sample(states, min(len(states), 250))
    for world, fewest in states:
        way = plan(world)
        if fewest is None:
            assert way is None
            continue
        assert way is not None
        played = world.copy()
        for command in way:
            assert command in played.admissible(), (way, command)
            played.step(command)
        assert played.won and len(way) == fewest, (world.key(), way, fewest)
    assert any(fewest is None for _, fewest in states) == (name == "dead ends")
    assert any(fewest == 0 for _, fewest in states)


def household(draw: random.Random) -> str:
    """A small problem by chance: places that share locations, things in two places, doors open or not, refusals."""
    goal, tools, facts, conditions = draw.choice(
        (
            ("place", (), "", ()),
            ("two", (), "", ()),
            ("place", ("SinkBasin",), "cleanable", ("isClean",)),
            ("place", ("Microwave", "SinkBasin"), "heatable cleanable", ("isHot", "isClean")),
            ("place", ("Fridge",), "coolable", ("isCool",)),
            ("place", (), "sliceable", ("isSliced",)),
            ("light", (), "", ()),
        )
    )
    kinds = [*draw.choices(("Table", "Box", "Safe"), k=draw.randint(2, 4)), *tools]
    doors = [kind in ("Box", "Safe", "Microwave", "Fridge") for kind in kinds]
    places = {
        f"p{number}": Place(kind, draw.randint(1, 4), door, door and draw.random() < 0.3)
        for number, (kind, door) in enumerate(zip(kinds, doors))
    }
    anywhere = list(places)

    def thing(kind: str, facts: str) -> Thing:
        return Thing(kind, draw.sample(anywhere, draw.choice((1, 1, 1, 2))), facts)

    things = {f"a{number}": thing("Apple", f"pickupable {facts}") for number in range(1 + (goal == "two"))}
    if conditions == ("isSliced",):
        things["k"] = thing("Knife", "pickupable")
    elif len(tools) < 2:
        things["n"] = thing("Pen", "pickupable")
    if goal == "light":
        things["l"] = thing("Lamp", "toggleable")
        wanted = light_goal("Apple", "Lamp")
    else:
        wanted = place_goal("Apple", draw.choice(kinds), *conditions, count=2 if goal == "two" else 1)
    pairs = [(place, kind) for place in sorted(set(kinds)) for kind in sorted({each.kind for each in things.values()})]
    return problem_text(places, things, wanted, refuses=[pair for pair in pairs if draw.random() < 0.15])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_plans_are_shortest_in_households_by_chance(seed):
    draw = random.Random(seed)
    states = distances(world_of(household(draw)))
    for world, fewest in draw.sample(states, min(len(states), 200)):
        way = plan(world)
        assert (None if way is None else len(way)) == fewest, (world.key(), way, fewest)


def test_a_plan_is_what_a_person_would_do():
    world = world_of(kitchen())  # a hot apple on the side table; one lies beside the microwave
    way = [
        "go to countertop 1",
        "take apple 1 from countertop 1",
        "heat apple 1 with microwave 1",
        "go to sidetable 1",
        "move apple 1 to sidetable 1",
    ]
    assert plan(world) == way
    for done, command in enumerate(way):
        world.step(command)
        assert plan(world) == way[done + 1 :]


def test_planning_leaves_the_world_as_it_was_and_always_says_the_same():
    world = world_of(kitchen(place_goal("Apple", "Cabinet", count=2)))
    before = world.key()
    ways = [plan(world) for _ in range(3)] + [plan(pickle.loads(pickle.dumps(world)))]
    assert world.key() == before and ways.count(ways[0]) == 4
    assert ways[0] is not None and len(ways[0]) == 10  # go open take go open move, go take go move


def test_what_is_in_the_hand_is_put_aside_where_it_costs_least():
    world = world_of(kitchen(place_goal("Apple", "SideTable")))
    for command in ("go to cabinet 2", "open cabinet 2", "take knife 1 from cabinet 2"):
        world.step(command)
    assert plan(world) == [
        "move knife 1 to cabinet 2",
        "go to countertop 1",
        "take apple 1 from countertop 1",
        "go to sidetable 1",
        "move apple 1 to sidetable 1",
    ]


def test_what_must_be_put_aside_elsewhere_goes_where_no_door_is():
    text = problem_text(
        {"b": Place("Box", 1, openable=True), "k": Place("Shelf", 2), "t": Place("Table", 3), "w": Place("Stand", 4)},
        {"a": Thing("Apple", ["k"]), "p": Thing("Pen", ["k"])},
        place_goal("Apple", "Stand"),
        refuses=[("Shelf", "Pen"), ("Stand", "Pen")],
    )
    world = world_of(text)
    for command in ("go to shelf 1", "take pen 1 from shelf 1"):
        world.step(command)
    way = plan(world)
    assert way is not None and way[:2] == ["go to table 1", "move pen 1 to table 1"] and len(way) == 6


def test_plans_speak_the_older_wording():
    way = plan(world_of(kitchen(), CLASSIC))
    assert way is not None and way[-1] == "put apple 1 in/on sidetable 1"


def test_a_goal_without_expert_is_said_to_be_one():
    world = world_of(kitchen("(and (exists (?o - object) (isSliced ?o)))"))
    with pytest.raises(EnvironmentFailure, match="no expert"):
        plan(world)
