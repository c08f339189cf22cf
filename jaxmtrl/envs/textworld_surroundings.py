"""What a player of a TextWorld game sees, read off the facts that are true in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxmtrl.envs.state_template import Surroundings

Fact = tuple[str, tuple[tuple[str, str], ...]]  # predicate, and names and types of its arguments
_PLAYER, _INVENTORY, _DOOR, _CONTAINER = "P", "I", "d", "c"
_DIRECTIONS = ("north", "south", "east", "west")
_LOOKS = ("open", "closed", "locked")


def surroundings(facts: Iterable[Fact]) -> Surroundings:
    """The room the player is in, things in it, things carried, and the ways out with their doors.

    Things in a container that is not open are hidden. Everything is sorted by name, exits by direction.
    """
    known = list(facts)
    looks = {arguments[0][0]: name for name, arguments in known if name in _LOOKS}
    here = next((place[0] for name, (what, place) in _pairs(known) if name == "at" and what[1] == _PLAYER), "")
    inside = [(what[0], place) for name, (what, place) in _pairs(known) if name in ("on", "in")]
    kinds = {name: kind for _, arguments in known for name, kind in arguments}
    there = sorted(
        what[0] for name, (what, place) in _pairs(known) if name == "at" and place[0] == here and what[1] != _PLAYER
    )
    items = [_with(name, looks.get(name)) for name in there if kinds[name] != _DOOR]
    items += [
        _with(what, place[0])
        for what, place in sorted(inside)
        if place[0] in there and (place[1] != _CONTAINER or looks.get(place[0]) == "open")
    ]
    doors = {
        (arguments[0][0], arguments[2][0]): arguments[1][0]
        for name, arguments in known
        if name == "link" and len(arguments) == 3
    }
    ways: list[tuple[str, str]] = []
    for name, (there_room, from_room) in _pairs(known):
        direction = name.removesuffix("_of")
        if direction in _DIRECTIONS and name.endswith("_of") and from_room[0] == here and there_room[1] == "r":
            ways.append((direction, doors.get((here, there_room[0]), "")))
    ways.sort(key=lambda way: _DIRECTIONS.index(way[0]))
    return Surroundings(
        room=here,
        items=items,
        inventory=sorted(what for what, place in inside if place[1] == _INVENTORY),
        exits=[_with(direction, f"{door}, {looks.get(door, 'open')}" if door else None) for direction, door in ways],
    )


def _pairs(facts: Sequence[Fact]) -> list[Fact]:
    return [(name, arguments) for name, arguments in facts if len(arguments) == 2]


def _with(name: str, remark: str | None) -> str:
    return f"{name} ({remark})" if remark else name
