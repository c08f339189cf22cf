"""Plays household games so that as much as possible happens: errands, the expert's way, chance and near misses."""

from __future__ import annotations

import random
from collections import deque

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.problem import SLICED
from jaxmtrl.envs.alfworld.walk import Walk

_DOING = ("take", "move", "put", "open", "close", "clean", "heat", "cool", "use", "slice")
_ODD = ("", " ", "go", "go to", "take", "xyzzy", "open the door", "Look", "look around", "examine", "help me", "use")


class Player:
    """Chooses commands for one game. The seed and what happens decide all."""

    def __init__(self, world: World, seed: int):
        self._world, self._random = world, random.Random(seed)
        self._errand: deque[str] = deque()

    def command(self) -> str:
        """The next command, often one that can be done."""
        chance = self._random.random()
        if chance < 0.12:
            return self._near_miss()
        if chance < 0.20:
            return self._random.choice(("look", "inventory", *self._examining()))
        if self._errand and chance < 0.75:
            return self._errand.popleft()
        admissible = self._world.admissible()
        if chance < 0.45:
            kind = self._random.random()
            errand = self._cook() if kind < 0.3 else self._some_errand() if kind < 0.85 else plan(self._world)
            self._errand = deque(errand or [])
            if self._errand:
                return self._errand.popleft()
        doing = [command for command in admissible if command.startswith(_DOING)]
        return self._random.choice(doing if doing and chance < 0.9 else admissible)

    def _examining(self) -> list[str]:
        return [command for command in self._world.admissible() if command.startswith("examine")]

    def _some_errand(self) -> list[str]:
        """Fetch something, perhaps do something with it, put it somewhere; some steps may prove impossible."""
        world, scene = self._world, self._world.scene
        places = scene.problem.receptacle_locations
        walk = Walk(world)
        if walk.held < 0:
            lying = [(thing, r) for r, inside in enumerate(world.contents) for thing in inside if places[r] >= 0]
            cut = [(thing, r) for thing, r in lying if world.states[thing] & SLICED]
            near = [(thing, r) for thing, r in lying if thing in scene.knives or places[r] == world.at]
            rare = cut if cut and self._random.random() < 0.6 else near
            pool = rare if rare and self._random.random() < 0.4 else lying
            if not pool:
                return []
            walk.take(*self._random.choice(pool))
        if walk.held in scene.knives and self._random.random() < 0.8:
            cut = [(thing, place) for thing, place in world.places if thing in scene.sliceable]
            cut = [(thing, place) for thing, place in cut if scene.receptacles_at[place]]
            if cut:
                walk.cut(*self._random.choice(sorted(cut)))
        tools = [tool for tool, treats in enumerate(scene.treats) if walk.held in treats and places[tool] >= 0]
        for tool in self._random.sample(tools, min(len(tools), self._random.randrange(3))):
            walk.treat(tool)
        willing = [r for r, accepted in enumerate(scene.accepts) if walk.held in accepted and places[r] >= 0]
        near = [r for r in willing if places[r] == walk.at]
        if willing and self._random.random() < 0.6:
            walk.put(self._random.choice(near if near and self._random.random() < 0.5 else willing))
        commands = walk.commands()
        if walk.held >= 0:
            commands.append(f"examine {scene.object_names[walk.held]}")
        if self._random.random() < 0.3:
            commands.insert(self._random.randrange(len(commands) + 1), self._random.choice(self._world.admissible()))
        return commands

    def _cook(self) -> list[str]:
        """Slice something, treat it in every way that there is, and look at it each time; empty where one cannot."""
        world, scene = self._world, self._world.scene
        places = scene.problem.receptacle_locations
        walk = Walk(world)
        knives = [(knife, r) for knife in sorted(scene.knives) for r in walk.where(knife) if places[r] >= 0]
        food = [(thing, r) for thing in scene.sliceable for r in walk.where(thing) if places[r] >= 0]
        food = [(thing, r) for thing, r in food if (thing, places[r]) in world.places and thing in scene.portable]
        if world.held >= 0 or not knives or not food:
            return []
        knife, (thing, lies) = self._random.choice(knives), self._random.choice(food)
        walk.take(*knife).cut(thing, places[lies])
        willing = [r for r, accepted in enumerate(scene.accepts) if knife[0] in accepted and places[r] >= 0]
        if not willing:
            return []
        walk.put(self._random.choice(willing)).take(thing, lies)
        for tool in self._random.sample(range(len(places)), len(places)):
            if thing in scene.treats[tool] and places[tool] >= 0:
                walk.treat(tool)
        commands = []
        for command in walk.commands():
            commands.append(command)
            if command.startswith(("take", "clean", "heat", "cool")):
                commands.append(f"examine {scene.object_names[thing]}")
        return commands

    def _near_miss(self) -> str:
        """A command that almost is one."""
        world, choose = self._world, self._random.choice
        scene = world.scene
        thing = choose(scene.object_names or ("mug 1",))
        other = choose(scene.object_names or ("mug 1",))
        place = choose(scene.receptacle_names)
        admissible = choose(world.admissible())
        return choose(
            (
                choose(_ODD),
                f"  {admissible} ",
                admissible.upper(),
                admissible + "1",
                admissible[:-1],
                admissible.replace(" ", "  ", 1),
                f"go to {place}",
                f"examine {place}",
                f"examine {thing}",
                f"open {place}",
                f"close {place}",
                f"take {thing} from {place}",
                f"move {thing} to {place}",
                f"put {thing} in/on {place}",
                f"clean {thing} with {place}",
                f"heat {thing} with {place}",
                f"cool {thing} with {place}",
                f"slice {thing} with {other}",
                f"use {thing}",
            )
        )
