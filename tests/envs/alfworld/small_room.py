"""Small households for tests: a PDDL problem from a few words, and goals of every task type."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.naming import MODERN, Wording
from jaxmtrl.envs.alfworld.problem import read_problem


class Place(NamedTuple):
    """A receptacle; it is called after its class, and numbers fall in the order of ids."""

    kind: str
    location: int  # 0 is where the agent starts
    openable: bool = False
    opened: bool = False


class Thing(NamedTuple):
    """An object in receptacles, with predicates of its own."""

    kind: str
    inside: Sequence[str]  # ids of places
    facts: str = "pickupable"


def location(number: int) -> str:
    return f"loc_bar_{number}_bar_0_bar_0_bar_45"


def identifier(name: str, kind: str) -> str:
    """`name` sorts among its class; basins are parts of a sink."""
    if kind == "SinkBasin":
        return f"Sink_bar_{name}_bar_SinkBasin"
    return f"{kind}_bar_{name}"


def problem_text(
    places: Mapping[str, Place],
    things: Mapping[str, Thing],
    goal: str,
    *,
    refuses: Collection[tuple[str, str]] = (),
    more: str = "",
) -> str:
    """A problem in which everything may be put everywhere but `refuses`, pairs of a place's and a thing's class."""
    where = {name: identifier(name, place.kind) for name, place in places.items()}
    what = {name: identifier(name, thing.kind) for name, thing in things.items()}
    kinds = sorted({thing.kind for thing in things.values()})
    place_kinds = sorted({place.kind for place in places.values()})
    facts = [f"atLocation agent1 {location(0)}"]
    for name, place in places.items():
        facts += [f"receptacleType {where[name]} {place.kind}Type"]
        facts += [f"receptacleAtLocation {where[name]} {location(place.location)}"]
        facts += [f"openable {where[name]}"] * place.openable + [f"opened {where[name]}"] * place.opened
    for name, thing in things.items():
        facts += [
            f"objectType {what[name]} {thing.kind}Type",
            *(f"{fact} {what[name]}" for fact in thing.facts.split()),
        ]
        facts += [f"inReceptacle {what[name]} {where[place]}" for place in thing.inside]
        facts += [f"objectAtLocation {what[name]} {location(places[place].location)}" for place in thing.inside[:1]]
    facts += [f"canContain {r}Type {o}Type" for r in place_kinds for o in kinds if (r, o) not in refuses]
    objects = [
        "agent1 - agent",
        *(f"{kind} - object" for kind in kinds),
        # the domain itself names some types
        *(f"{kind}Type - otype" for kind in sorted({*kinds, "Knife", "ButterKnife"})),
        *(f"{kind}Type - rtype" for kind in sorted({*place_kinds, "SinkBasin", "Microwave", "Fridge"})),
        *(f"{name} - receptacle" for name in where.values()),
        *(f"{name} - object" for name in what.values()),
        *(f"{location(number)} - location" for number in sorted({0, *(place.location for place in places.values())})),
    ]
    listed = "\n".join(f"        ({fact})" for fact in facts)
    declared = "\n        ".join(objects)
    return (
        f"(define (problem plan_test)\n(:domain alfred)\n(:objects\n        {declared}\n)\n"
        f"(:init\n{listed}\n{more})\n(:goal {goal})\n)\n"
    )


def place_goal(thing: str, place: str, *conditions: str, count: int = 1) -> str:
    """`count` things of a class, with `conditions` as "isClean", in one receptacle of a class."""
    more = " ".join(f"({condition} ?o)" for condition in conditions)
    one = f"(objectType ?o {thing}Type) (receptacleType ?r {place}Type) {more} (inReceptacle ?o ?r)"
    if count == 2:
        second = one.replace("?o", "?o2")
        one += f" (exists (?o2 - object) (and (not (= ?o ?o2)) {second}))"
    return f"(and (exists (?r - receptacle) (exists (?o - object) (and {one}))))"


def light_goal(thing: str, lamp: str) -> str:
    return (
        "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) "
        f"(and (objectType ?ot {lamp}Type) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) "
        "(atLocation ?a ?l) (inReceptacle ?ot ?r))) "
        f"(exists (?o - object ?a - agent) (and (objectType ?o {thing}Type) (holds ?a ?o))))"
    )


KITCHEN_PLACES = {
    "c1": Place("Cabinet", 1, openable=True),
    "c2": Place("Cabinet", 2, openable=True),
    "t": Place("CounterTop", 3),
    "f": Place("Fridge", 4, openable=True),
    "m": Place("Microwave", 3, openable=True),  # on the counter top: they share a location
    "s": Place("SinkBasin", 5),
    "d": Place("SideTable", 6),
}
KITCHEN_THINGS = {
    "a1": Thing("Apple", ["f"], "pickupable cleanable heatable coolable sliceable"),
    "a2": Thing("Apple", ["t"], "pickupable cleanable heatable coolable sliceable"),
    "k": Thing("Knife", ["c1"], "pickupable cleanable"),
    "l": Thing("DeskLamp", ["d"], "toggleable"),
    "mug": Thing("Mug", ["t", "m"], "pickupable cleanable heatable coolable isReceptacleObject"),
}


def kitchen(goal: str | None = None) -> str:
    """Seven receptacles and five objects; by default a hot apple goes on the side table."""
    return problem_text(
        KITCHEN_PLACES,
        KITCHEN_THINGS,
        goal or place_goal("Apple", "SideTable", "heatable", "isHot"),
        refuses=[("SideTable", "Knife")],
    )


def world_of(text: str, wording: Wording = MODERN) -> World:
    return World(read_problem(text), "test it", wording)
