"""The six task types: what each can be about in a scene, and what it needs to be there."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from jaxmtrl.envs.alfworld.room import STANDS, Need, can_lie
from jaxmtrl.envs.alfworld.tables import tables

_TOOLS = {
    "pick_clean_then_place_in_recep": "SinkBasin",
    "pick_heat_then_place_in_recep": "Microwave",
    "pick_cool_then_place_in_recep": "Fridge",
}
_LAMP = "DeskLamp"  # floor lamps stand in nothing, and what stands in nothing cannot be switched
_NO_GOAL = ("SinkBasin", "BathtubBasin")  # published games never ask to put something there


@functools.cache
def possible_tasks(kind: str, number: int) -> tuple[tuple[str, str], ...]:
    """The tasks of type `kind` that can be set in floor plan `number`: (object class, receptacle class or lamp)."""
    scene = tables().scenes[number]
    if scene.room not in tables().goals[kind].rooms:
        return ()
    there = sorted({receptacle.kind for receptacle in scene.receptacles})
    places = there if kind != "look_at_obj_in_light" else [_LAMP] if _LAMP in scene.objects else []
    targets = [target for target in scene.objects if target in _targets(kind)]
    return tuple((target, place) for target in targets for place in places if _is_possible(kind, target, place, there))


def _targets(kind: str) -> frozenset[str]:
    known = tables()
    return known.pickupable & {
        "pick_clean_then_place_in_recep": known.cleanable,
        "pick_heat_then_place_in_recep": known.heatable,
        "pick_cool_then_place_in_recep": known.coolable,
    }.get(kind, known.pickupable)


def _is_possible(kind: str, target: str, place: str, there: Sequence[str]) -> bool:
    """Whether a target can begin somewhere else than where it must go, and all that the task needs is there."""
    need = need_of(kind, target, place)
    if place != _LAMP and (place in _NO_GOAL or place == _TOOLS.get(kind) or not can_lie(target, place)):
        return False
    if any(not set(kinds) & set(there) for kinds in need.present):
        return False
    return any(can_lie(target, source) for source in there if source not in need.apart)


def need_of(kind: str, target: str, place: str) -> Need:
    """What the room must have. Targets begin outside of the goal's receptacles and of the tool."""
    if kind == "look_at_obj_in_light":
        return Need(target, 1, (), (STANDS[_LAMP],))
    tool = (_TOOLS[kind],) if kind in _TOOLS else ()
    return Need(target, 2 if kind == "pick_two_obj_and_place" else 1, (place, *tool), ((place,), *((t,) for t in tool)))
