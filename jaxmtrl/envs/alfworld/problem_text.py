"""Writes a furnished room and a goal as the PDDL problem that ALFWorld and our own engine read.

Sections, predicates and names are those of the published games: every class is declared, ids are written in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jaxmtrl.envs.alfworld.room import Room
from jaxmtrl.envs.alfworld.tables import Location, tables

_WORDS = (("-", "_minus_"), ("|", "_bar_"), ("+", "_plus_"), (".", "_dot_"))  # what PDDL names cannot have


def pddl_name(identifier: str) -> str:
    """An id of the simulator as a PDDL name: "Mug|+00.68" -> "Mug_bar__plus_00_dot_68"."""
    for sign, word in _WORDS:
        identifier = identifier.replace(sign, word)
    return identifier


def write_problem(name: str, room: Room, goal: str) -> str:
    """The text of a problem, equal for equal arguments.

    Args:
        name: of the problem; letters, digits and underscores.
        goal: "(:goal ...)" with its classes filled in.
    """
    sections = (f"\n(define (problem {name})", "(:domain alfred)", "(:objects", *_objects(room), ")", "\n(:init")
    return "\n".join((*sections, *_facts(room), ")\n", goal, ")\n"))


def _objects(room: Room) -> Iterator[str]:
    """Declarations; locations last, that of the agent's start among them."""
    known = tables()
    yield "agent1 - agent"
    yield from (f"    {kind} - object" for kind in known.object_classes)
    yield from (f"    {kind}Type - otype" for kind in known.object_classes)
    yield from (f"    {kind}Type - rtype" for kind in known.receptacle_classes)
    yield from (f"    {pddl_name(thing.id)} - object" for thing in room.things)
    yield from (f"    {pddl_name(receptacle.id)} - receptacle" for receptacle in room.receptacles)
    used = {entry.stand for entry in room.receptacles} | {thing.location for thing in room.things} | {room.start}
    yield from (f"    {_place(location)} - location" for location in _sorted(used))


def _facts(room: Room) -> Iterator[str]:
    """What is true at the start, predicate by predicate."""
    known = tables()
    things = [(pddl_name(thing.id), thing) for thing in room.things]
    places = [(pddl_name(receptacle.id), receptacle) for receptacle in room.receptacles]
    yield from _rows("receptacleType", (f"{name} {place.kind}Type" for name, place in places))
    yield from _rows("objectType", (f"{name} {thing.kind}Type" for name, thing in things))
    yield from _rows("canContain", _fits(room))
    classes_of = {
        "pickupable": known.pickupable,
        "isReceptacleObject": known.containers,
        "cleanable": known.cleanable,
        "heatable": known.heatable,
        "coolable": known.coolable,
        "toggleable": known.toggleable,
        "sliceable": known.sliceable,
    }
    for predicate, classes in classes_of.items():
        yield from _rows(predicate, (name for name, thing in things if thing.kind in classes))
    yield from _rows("isCool", (name for name, thing in things if thing.cool))
    yield from _rows("openable", (name for name, place in places if place.kind in known.openable))
    yield from _rows("atLocation", [f"agent1 {_place(room.start)}"])
    inside = ((name, thing.holder) for name, thing in things if thing.holder is not None)
    yield from _rows("inReceptacle", (f"{name} {pddl_name(holder.id)}" for name, holder in inside))
    nested = (f"{pddl_name(inner.id)} {pddl_name(outer.id)}" for inner, outer in room.nested)
    yield from _rows("inReceptacleObject", nested)
    yield from _rows("receptacleAtLocation", (f"{name} {_place(place.stand)}" for name, place in places))
    yield from _rows("objectAtLocation", (f"{name} {_place(thing.location)}" for name, thing in things))


def _fits(room: Room) -> Iterator[str]:
    """Which class of object may be put into which class of receptacle, of the classes in the room."""
    kinds = sorted({thing.kind for thing in room.things})
    for receptacle in sorted({receptacle.kind for receptacle in room.receptacles}):
        inside = tables().can_contain.get(receptacle, ())
        yield from (f"{receptacle}Type {kind}Type" for kind in kinds if kind in inside)


def _rows(predicate: str, arguments: Iterable[str]) -> Iterator[str]:
    return (f"    ({predicate} {argument})" for argument in arguments)


def _place(location: Location) -> str:
    return pddl_name(location.id)


def _sorted(locations: Iterable[Location]) -> list[Location]:
    return sorted(locations, key=lambda location: location.id)
