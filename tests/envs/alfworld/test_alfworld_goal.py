"""Goals hold exactly where their formula is true, for a slow reader of formulas over all facts of a state."""

from __future__ import annotations

import itertools
import random

import pytest
from small_room import kitchen, light_goal, place_goal, world_of

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.pddl import And, Atom, Exists, Goal, Not
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.problem import STATES, TRAITS

GOALS = {
    "simple": place_goal("Apple", "Cabinet"),
    "heat": place_goal("Apple", "Fridge", "heatable", "isHot"),
    "clean": place_goal("Mug", "SideTable", "cleanable", "isClean"),
    "cool": place_goal("Apple", "CounterTop", "coolable", "isCool"),
    "two": place_goal("Apple", "Fridge", count=2),
    "light": light_goal("Apple", "DeskLamp"),
    "two cuts": place_goal("Apple", "CounterTop", "isSliced", "isClean"),
}


def facts(world: World) -> set[tuple[str, ...]]:
    """Everything that is true, as the problem's text would say it."""
    problem = world.scene.problem
    found = {("atlocation", "agent1", problem.locations[world.at])}
    for number, name in enumerate(problem.objects):
        found.add(("objecttype", name, f"{problem.object_classes[number]}type"))
        found |= {(fact, name) for fact, bit in TRAITS.items() if problem.traits[number] & bit}
        found |= {(fact, name) for fact, bit in STATES.items() if world.states[number] & bit}
        if world.held == number:
            found.add(("holds", "agent1", name))
    for number, name in enumerate(problem.receptacles):
        found.add(("receptacletype", name, f"{problem.receptacle_classes[number]}type"))
        found.add(("receptacleatlocation", name, problem.locations[problem.receptacle_locations[number]]))
        found |= {("inreceptacle", problem.objects[thing], name) for thing in world.contents[number]}
    return found


def true(goal: Goal, known: set[tuple[str, ...]], world: World, names: dict[str, str]) -> bool:
    match goal:
        case And(parts):
            return all(true(part, known, world, names) for part in parts)
        case Not(part):
            return not true(part, known, world, names)
        case Exists(variables, part):
            problem = world.scene.problem
            ids = {"object": problem.objects, "receptacle": problem.receptacles, "location": problem.locations}
            choices = itertools.product(*(ids.get(kind, ("agent1",)) for _, kind in variables))
            variable_names = [name for name, _ in variables]
            return any(true(part, known, world, names | dict(zip(variable_names, chosen))) for chosen in choices)
        case Atom("=", (a, b)):
            return names[a] == names[b]
        case Atom(predicate, arguments):
            return (predicate, *(names.get(argument, argument) for argument in arguments)) in known


@pytest.mark.parametrize("name", GOALS)
def test_goals_hold_where_their_formula_is_true(name):
    world, draw = world_of(kitchen(GOALS[name])), random.Random(name)
    doing = ("take", "move", "open", "heat", "cool", "clean", "slice", "use")
    seen = set()
    for number in range(900):
        commands = world.admissible()
        active = [command for command in commands if command.startswith(doing)]
        way = plan(world) if number % 5 == 0 else None  # chance alone seldom wins
        world.step(way[0] if way else draw.choice(active if active and draw.random() < 0.6 else commands))
        if number % 3 == 0 or world.won:
            assert world.won == true(world.scene.problem.goal, facts(world), world, {})
            seen.add(world.won)
    assert seen == {True, False}
