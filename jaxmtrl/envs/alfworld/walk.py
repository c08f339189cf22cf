"""A way through a household that is being thought out: steps so far, and what they would have changed.

The planner's notebook. A walk shares the world it began in and keeps only the differences, so that thousands of them
can be tried in the time of one plan.
"""

from __future__ import annotations

from jaxmtrl.envs.alfworld.engine import World, put_command

Step = tuple[str, int, int]  # verb, object (-1: none), receptacle (-1: none)


class Walk:
    """Steps from a world's state on. A method that does something returns the walk itself; `copy` branches."""

    __slots__ = ("world", "at", "held", "opened", "moved", "steps")

    def __init__(self, world: World):
        self.world = world
        self.at, self.held = world.at, world.held
        self.opened: frozenset[int] = frozenset()  # receptacles that the steps opened
        self.moved: tuple[tuple[int, int], ...] = ()  # (object, receptacle) of all that was taken and put
        self.steps: list[Step] = []

    def copy(self) -> Walk:
        twin = object.__new__(Walk)
        twin.world, twin.at, twin.held, twin.opened = self.world, self.at, self.held, self.opened
        twin.moved, twin.steps = self.moved, self.steps[:]
        return twin

    def go(self, receptacle: int) -> Walk:
        place = self.world.scene.problem.receptacle_locations[receptacle]
        if place != self.at:
            self.steps.append(("go", -1, receptacle))
            self.at = place
        return self

    def take(self, thing: int, receptacle: int) -> Walk:
        self.go(receptacle)._open(receptacle)
        self.steps.append(("take", thing, receptacle))
        self.moved += ((thing, receptacle),)
        self.held = thing
        return self

    def put(self, receptacle: int) -> Walk:
        self.go(receptacle)._open(receptacle)
        self.steps.append(("put", self.held, receptacle))
        self.moved += ((self.held, receptacle),)
        self.held = -1
        return self

    def treat(self, receptacle: int) -> Walk:
        """Cleans, heats or cools what is held, by what the receptacle is for."""
        self.go(receptacle)
        self.steps.append((self.world.scene.treatment[receptacle], self.held, receptacle))
        return self

    def use(self, thing: int) -> Walk:
        self.steps.append(("use", thing, -1))
        return self

    def cut(self, thing: int, place: int) -> Walk:
        """Slices with what is held; `place` is a location that a receptacle leads to."""
        if place != self.at:
            self.go(self.world.scene.receptacles_at[place][0])
        self.steps.append(("slice", thing, self.held))
        return self

    def accessible(self, receptacle: int) -> bool:
        return self.world.accessible(receptacle) or receptacle in self.opened

    def where(self, thing: int) -> set[int]:
        """Receptacles that `thing` is in after the steps."""
        found = {receptacle for receptacle, inside in enumerate(self.world.contents) if thing in inside}
        for verb, moved, receptacle in self.steps:
            if moved == thing and verb == "take":
                found.discard(receptacle)
            elif moved == thing and verb == "put":
                found.add(receptacle)
        return found

    def lies_at(self, thing: int) -> set[int]:
        """Locations where `thing` could be cut after the steps."""
        where = self.world.scene.problem.receptacle_locations
        found = {place for its, place in self.world.places if its == thing}
        for verb, moved, receptacle in self.steps:
            if moved == thing and verb == "take":
                found.discard(where[receptacle])
            elif moved == thing and verb == "put":
                found.add(where[receptacle])
        return found

    def commands(self) -> list[str]:
        """The steps as the game takes them."""
        return [self._command(*step) for step in self.steps]

    def _open(self, receptacle: int) -> None:
        if not self.accessible(receptacle):
            self.steps.append(("open", -1, receptacle))
            self.opened |= {receptacle}

    def _command(self, verb: str, thing: int, other: int) -> str:
        scene = self.world.scene
        names = scene.object_names
        match verb:
            case "put":
                return put_command(scene, thing, other)
            case "use":
                return f"use {names[thing]}"
            case "slice":
                return f"slice {names[thing]} with {names[other]}"
        place = scene.receptacle_names[other]
        match verb:
            case "go":
                return f"go to {place}"
            case "open":
                return f"open {place}"
            case "take":
                return f"take {names[thing]} from {place}"
        return f"{verb} {names[thing]} with {place}"
