"""The facts games are made of: classes of things, what may lie in what, the goals, and the rooms of 120 floor plans.

They are those of the alfworld package (MIT; `tables.json` names the version and carries the licence), taken out by
`scripts/extract_alfworld_tables.py`, so that nothing needs alfworld to be installed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}  # the part of the id before the first bar


@dataclass(frozen=True)
class Location:
    """Where the agent can stand and how it looks; one name in the game."""

    x: int  # steps of 25 cm
    z: int  # steps of 25 cm
    turn: int  # quarter turns, 0 to 3
    horizon: int  # degrees of looking down

    @property
    def id(self) -> str:
        return f"loc|{self.x}|{self.z}|{self.turn}|{self.horizon}"


@dataclass(frozen=True)
class Receptacle:
    """One thing of a room that things lie in."""

    kind: str  # class, for example "Cabinet"
    position: tuple[int, int, int]  # x, y, z in centimetres
    stand: Location  # where one stands to reach it; receptacles may share it

    @property
    def id(self) -> str:
        return thing_id(self.kind, self.position)


@dataclass(frozen=True)
class Scene:
    """One floor plan."""

    number: int
    room: str  # "Kitchen", "LivingRoom", "Bedroom" or "Bathroom"
    receptacles: tuple[Receptacle, ...]
    objects: tuple[str, ...]  # classes of what may lie or stand about in it, sorted
    points: tuple[tuple[int, int], ...]  # x, z in steps of 25 cm, where one can stand


@dataclass(frozen=True)
class Goal:
    """What a task type asks for."""

    pddl: str  # "(:goal ...)" with {obj}, {recep} and {toggle} to fill in by str.format
    sentences: tuple[str, ...]  # the same for the sentence that the agent reads, in lower case once filled in
    rooms: frozenset[str]  # where the task makes sense


@dataclass(frozen=True)
class Tables:
    """Everything in tables.json; classes are sorted where their order can show in a game."""

    object_classes: tuple[str, ...]  # everything that is not a fixed receptacle
    receptacle_classes: tuple[str, ...]  # everything that things lie in and that stays where it is
    containers: frozenset[str]  # objects that can hold others, such as bowls
    openable: frozenset[str]  # of the receptacle classes
    can_contain: Mapping[str, frozenset[str]]  # of receptacles and containers: which classes may lie in them
    cleanable: frozenset[str]
    heatable: frozenset[str]
    coolable: frozenset[str]
    toggleable: frozenset[str]
    sliceable: frozenset[str]
    goals: Mapping[str, Goal]  # by task type
    scenes: Mapping[int, Scene]  # by number of the floor plan

    @functools.cached_property
    def pickupable(self) -> frozenset[str]:
        """Object classes that can be taken, because there is a fixed receptacle in which they may lie."""
        return frozenset().union(*(self.can_contain.get(kind, frozenset()) for kind in self.receptacle_classes))


# The scenes of no game of the published training set; its valid_unseen games play in 10, 219, 308 and 424.
UNSEEN_SCENES = (9, 10, 29, 215, 219, 226, 308, 315, 325, 404, 424, 425)


def thing_id(kind: str, position: tuple[int, int, int]) -> str:
    """The name of a receptacle or object in the simulator, such as "Mug|+00.68|+00.91|-01.20".

    Args:
        position: x, y, z in centimetres.
    """
    x, y, z = (f"{centimetres / 100:+06.2f}" for centimetres in position)
    name = f"{_BASINS.get(kind, kind)}|{x}|{y}|{z}"
    return f"{name}|{kind}" if kind in _BASINS else name


@functools.cache
def tables() -> Tables:
    """The tables, read once a process."""
    page = json.loads(resources.files("jaxmtrl.envs.alfworld").joinpath("tables.json").read_text("utf-8"))
    classes = {
        name: frozenset(page[name].split())
        for name in ("containers", "openable", "cleanable", "heatable", "coolable", "toggleable", "sliceable")
    }
    return Tables(
        object_classes=tuple(page["object_classes"].split()),
        receptacle_classes=tuple(page["receptacle_classes"].split()),
        can_contain={kind: frozenset(inside.split()) for kind, inside in page["can_contain"].items()},
        goals={
            kind: Goal(goal["pddl"], tuple(goal["sentences"]), frozenset(goal["rooms"]))
            for kind, goal in page["goals"].items()
        },
        scenes={int(number): _scene(int(number), entry) for number, entry in page["scenes"].items()},
        **classes,
    )


def train_scenes() -> tuple[int, ...]:
    """The scenes to train in: all but `UNSEEN_SCENES`."""
    return tuple(number for number in tables().scenes if number not in UNSEEN_SCENES)


def _scene(number: int, entry: Mapping[str, Any]) -> Scene:
    return Scene(
        number=number,
        room=entry["room"],
        receptacles=tuple(
            Receptacle(kind, (x, y, z), Location(*stand))
            for kind, places in entry["receptacles"].items()
            for x, y, z, *stand in places
        ),
        objects=tuple(entry["objects"].split()),
        points=tuple((x, z) for x, z in entry["points"]),
    )
