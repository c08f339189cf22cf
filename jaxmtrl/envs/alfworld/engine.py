"""A household game as it is played: one mutable state, the texts it prints and the commands it takes.

Rules and texts are those of the official ALFWorld engine (alfworld 0.4.2 on textworld 1.7.0), letter by letter, with
its oddities: an object may be in two receptacles, and of two receptacles in one place only the first visit leads there.
"""

from __future__ import annotations

from collections.abc import Hashable

from jaxmtrl.envs.alfworld.naming import HELP, MODERN, NOTHING_HAPPENS, Wording, listing
from jaxmtrl.envs.alfworld.problem import CLEAN, CONTAINER, COOL, HOT, ON, SLICED, TOGGLED, Problem
from jaxmtrl.envs.alfworld.scene import Scene, make_scene

_BANNER = "-= Welcome to TextWorld, ALFRED! =-"
# What an object is like, the first that fits: (bits of STATES that are all set, the text).
_CONDITIONS = (
    (CLEAN | HOT | SLICED, "This is a hot and clean sliced {}."),
    (CLEAN | COOL | SLICED, "This is a cool and clean sliced {}."),
    (CLEAN | SLICED, "This is a clean sliced {}."),
    (HOT | SLICED, "This is a hot sliced {}."),
    (COOL | SLICED, "This is a cool sliced {}."),
    (CLEAN | HOT, "This is a hot and clean {}."),
    (CLEAN | COOL, "This is a cool and clean {}."),
    (HOT, "This is a hot {}."),
    (CLEAN, "This is a clean {}."),
    (COOL, "This is a cold {}."),
)
# Verb of a treatment -> (bits it sets, bits it clears)
TREATED = {"clean": (CLEAN, 0), "heat": (HOT, COOL), "cool": (COOL, HOT)}


class World:
    """One game in one state; `reset` goes back to the start, `copy` branches.

    The fields are the state, by the numbers of `Problem`; -1 stands for none. They are for reading.
    """

    __slots__ = ("scene", "at", "held", "contents", "opened", "states", "places", "taken_out")

    scene: Scene
    at: int  # location of the agent
    held: int  # object in its hand
    contents: list[tuple[int, ...]]  # [R] objects inside, ascending
    opened: list[bool]  # [R]
    states: list[int]  # [O] bits of STATES
    places: set[tuple[int, int]]  # (object, location): where it can be cut; left behind when taken elsewhere
    taken_out: set[tuple[int, int]]  # (object, receptacle) it was taken out of and not put back into

    def __init__(self, problem: Problem, task: str, wording: Wording = MODERN):
        """A game at its start.

        Args:
            task: the task sentence without its full stop: "put a mug in desk".

        Raises:
            EnvironmentFailure: the goal is of no form that the engine knows.
        """
        self.scene = make_scene(problem, task, wording)
        self.reset()

    def reset(self) -> str:
        """Goes back to the start and returns the first observation, which ends with the task."""
        problem = self.scene.problem
        self.at, self.held = problem.start, problem.held
        self.contents, self.opened, self.states = list(problem.contents), list(problem.opened), list(problem.states)
        self.places, self.taken_out = set(problem.object_locations), set()
        names = self.scene.receptacle_names
        seen = listing([f"a {name}" for name, place in zip(names, problem.receptacle_locations) if place >= 0])
        around = self._look() if self.scene.receptacles_at[self.at] else _in_the_middle(seen)
        return f"{_BANNER}\n\n{around}\n\nYour task is to: {self.scene.task}."

    def copy(self) -> World:
        """A world in the same state that goes its own way from here."""
        twin = object.__new__(World)
        twin.scene, twin.at, twin.held = self.scene, self.at, self.held
        twin.contents, twin.opened, twin.states = self.contents[:], self.opened[:], self.states[:]
        twin.places, twin.taken_out = set(self.places), set(self.taken_out)
        return twin

    def key(self) -> Hashable:
        """Equal for two worlds of one game exactly if they are in the same state."""
        return (
            self.at,
            self.held,
            tuple(self.contents),
            tuple(self.opened),
            tuple(self.states),
            frozenset(self.places),
            frozenset(self.taken_out),
        )

    @property
    def won(self) -> bool:
        """Whether the goal holds now; it may cease to hold when play goes on."""
        where = self.scene.problem.receptacle_locations
        return all(block.holds(self.at, self.held, self.contents, self.states, where) for block in self.scene.blocks)

    def step(self, command: str) -> tuple[str, bool]:
        """Does a command, written exactly as `admissible` lists it, and returns what follows and whether that wins.

        Whatever cannot be done changes nothing and answers "Nothing happens.".
        """
        verb, _, rest = command.strip().partition(" ")
        handler = _HANDLERS.get(verb)
        answer = handler(self, verb, rest) if handler else None
        return (NOTHING_HAPPENS if answer is None else answer), self.won

    def admissible(self) -> list[str]:
        """Every command that can be done now, in alphabetical order, as the official engine lists them."""
        scene, held = self.scene, self.held
        names = scene.object_names
        found = {"look", "inventory", *scene.elsewhere[self.at]}
        if scene.wording.helps:
            found.add("help")
        for receptacle in scene.receptacles_at[self.at]:
            name = scene.receptacle_names[receptacle]
            found.add(f"examine {name}")
            if scene.problem.openable[receptacle]:
                found.add(f"close {name}" if self.opened[receptacle] else f"open {name}")
            inside = self.contents[receptacle]
            if self.accessible(receptacle):
                if held < 0:
                    found.update(f"take {names[thing]} from {name}" for thing in inside if thing in scene.portable)
                elif held in scene.accepts[receptacle]:
                    found.add(put_command(scene, held, receptacle))
            if held in scene.treats[receptacle]:
                found.add(f"{scene.treatment[receptacle]} {names[held]} with {name}")
            found.update(f"use {names[thing]}" for thing in inside if thing in scene.switches)
        if held >= 0:
            found.add(f"examine {names[held]}")
            if held in scene.knives:
                cut = (thing for thing in scene.sliceable if (thing, self.at) in self.places)
                found.update(f"slice {names[thing]} with {names[held]}" for thing in cut)
        return sorted(found)

    def accessible(self, receptacle: int) -> bool:
        """Whether things can be put in and taken out."""
        return self.opened[receptacle] or not self.scene.problem.openable[receptacle]

    def _here(self, name: str) -> int:
        """The receptacle of that name, if the agent is at it, else -1."""
        receptacle = self.scene.receptacles_named.get(name, -1)
        here = receptacle >= 0 and self.scene.problem.receptacle_locations[receptacle] == self.at
        return receptacle if here else -1

    def _look(self) -> str:
        scene = self.scene
        there = scene.receptacles_at[self.at]
        if not there:
            return _in_the_middle("nothing")
        floor = [
            f"a {scene.object_names[thing]}"
            for thing, receptacle in sorted(self.taken_out)
            if (thing, self.at) in self.places and receptacle in there
        ]
        facing = listing([scene.receptacle_names[receptacle] for receptacle in there])
        return f"You are facing the {facing}. Next to it, you see {listing(floor)}."

    def _look_command(self, verb: str, rest: str) -> str | None:
        return None if rest else self._look()

    def _inventory(self, verb: str, rest: str) -> str | None:
        if rest:
            return None
        if self.held < 0:
            return "You are not carrying anything."
        return f"You are carrying: a {self.scene.object_names[self.held]}."

    def _help(self, verb: str, rest: str) -> str | None:
        return HELP if self.scene.wording.helps and not rest else None

    def _go(self, verb: str, rest: str) -> str | None:
        scene = self.scene
        receptacle = scene.receptacles_named.get(rest[3:], -1) if rest.startswith("to ") else -1
        if receptacle < 0 or scene.problem.receptacle_locations[receptacle] in (-1, self.at):
            return None
        self.at = scene.problem.receptacle_locations[receptacle]
        goal = scene.receptacle_names[receptacle] if scene.wording.names_goal else scene.location_names[self.at]
        return f"You arrive at {goal}. {self._describe(receptacle)}"

    def _describe(self, receptacle: int) -> str:
        scene = self.scene
        name = scene.receptacle_names[receptacle]
        if not self.accessible(receptacle):
            return f"The {name} is closed."
        inside = listing([f"a {scene.object_names[thing]}" for thing in self.contents[receptacle]])
        if scene.problem.openable[receptacle]:
            return f"The {name} is open. In it, you see {inside}."
        return f"On the {name}, you see {inside}."

    def _examine(self, verb: str, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle >= 0:
            return self._describe(receptacle)
        scene, thing = self.scene, self.held
        if thing < 0 or scene.object_names[thing] != rest:
            return None
        if scene.problem.traits[thing] & CONTAINER:
            inside = listing([f"a {scene.object_names[inner]}" for inner in scene.outer[thing]])
            return f"This is a normal {rest}. In it, you see {inside}."
        state = self.states[thing]
        for bits, text in _CONDITIONS:
            if state & bits == bits:
                return text.format(rest)
        if thing in scene.switches and state & TOGGLED:
            return f"This {rest} is on."
        if thing in scene.sliceable and state & SLICED:
            return f"This is a sliced {rest}."
        return f"There's nothing special about {rest}."

    def _open_or_close(self, verb: str, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle < 0 or not self.scene.problem.openable[receptacle]:
            return None
        if self.opened[receptacle] == (verb == "open"):
            return None
        self.opened[receptacle] = verb == "open"
        return f"You open the {rest}. {self._describe(receptacle)}" if verb == "open" else f"You close the {rest}."

    def _take(self, verb: str, rest: str) -> str | None:
        thing_name, _, place_name = rest.partition(" from ")
        receptacle = self._here(place_name)
        thing = self.scene.objects_named.get(thing_name, -1)
        if receptacle < 0 or self.held >= 0 or not self.accessible(receptacle):
            return None
        if thing not in self.contents[receptacle] or thing not in self.scene.portable:
            return None
        self.held = thing
        self.contents[receptacle] = tuple(other for other in self.contents[receptacle] if other != thing)
        self.places.discard((thing, self.at))
        self.taken_out.add((thing, receptacle))
        return f"You pick up the {thing_name} from the {place_name}."

    def _put(self, verb: str, rest: str) -> str | None:
        moves = self.scene.wording.moves
        if moves != (verb == "move"):
            return None
        thing_name, _, place_name = rest.partition(" to " if moves else " in/on ")
        receptacle, thing = self._here(place_name), self.held
        if receptacle < 0 or thing < 0 or self.scene.object_names[thing] != thing_name:
            return None
        if not self.accessible(receptacle) or thing not in self.scene.accepts[receptacle]:
            return None
        self.held = -1
        self.contents[receptacle] = tuple(sorted({*self.contents[receptacle], thing}))
        self.places.add((thing, self.at))
        self.taken_out.discard((thing, receptacle))
        return f"You {verb} the {thing_name} {'to' if moves else 'in/on'} the {place_name}."

    def _treat(self, verb: str, rest: str) -> str | None:
        thing_name, _, place_name = rest.partition(" with ")
        receptacle, thing = self._here(place_name), self.held
        if receptacle < 0 or thing < 0 or self.scene.object_names[thing] != thing_name:
            return None
        if self.scene.treatment[receptacle] != verb or thing not in self.scene.treats[receptacle]:
            return None
        sets, clears = TREATED[verb]
        self.states[thing] = (self.states[thing] | sets) & ~clears
        return f"You {verb} the {thing_name} using the {place_name}."

    def _use(self, verb: str, rest: str) -> str | None:
        thing = self.scene.objects_named.get(rest, -1)
        if thing not in self.scene.switches:
            return None
        if not any(thing in self.contents[receptacle] for receptacle in self.scene.receptacles_at[self.at]):
            return None
        self.states[thing] = (self.states[thing] | TOGGLED) ^ ON
        return f"You turn on the {rest}."  # also when it goes out: the official text asks whether it was ever used

    def _slice(self, verb: str, rest: str) -> str | None:
        thing_name, _, knife_name = rest.partition(" with ")
        thing, knife = self.scene.objects_named.get(thing_name, -1), self.held
        if knife not in self.scene.knives or self.scene.object_names[knife] != knife_name:
            return None
        if thing not in self.scene.sliceable or (thing, self.at) not in self.places:
            return None
        self.states[thing] |= SLICED
        return f"You sliced the {thing_name} with the {knife_name}."


def put_command(scene: Scene, thing: int, receptacle: int) -> str:
    """The command that puts an object down, in the game's wording."""
    names = scene.object_names[thing], scene.receptacle_names[receptacle]
    return "move {} to {}".format(*names) if scene.wording.moves else "put {} in/on {}".format(*names)


def _in_the_middle(seen: str) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {seen}."


_HANDLERS = {
    "look": World._look_command,
    "inventory": World._inventory,
    "help": World._help,
    "go": World._go,
    "examine": World._examine,
    "open": World._open_or_close,
    "close": World._open_or_close,
    "take": World._take,
    "move": World._put,
    "put": World._put,
    "clean": World._treat,
    "heat": World._treat,
    "cool": World._treat,
    "use": World._use,
    "slice": World._slice,
}
