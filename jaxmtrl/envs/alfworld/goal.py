"""Goals: "there is a receptacle and there are objects such that ...", as candidates and conditions over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxmtrl.envs.alfworld.pddl import And, Atom, Exists, Goal, Not
from jaxmtrl.envs.alfworld.problem import STATES, TRAITS, Problem, class_of
from jaxmtrl.errors import EnvironmentFailure


@dataclass(frozen=True, slots=True)
class ObjectNeed:
    """A variable that stands for an object."""

    candidates: frozenset[int]  # objects of its classes and traits
    state: int  # bits of STATES that must all be set
    held: bool  # must be in the agent's hand


@dataclass(frozen=True, slots=True)
class ReceptacleNeed:
    """A variable that stands for a receptacle."""

    candidates: tuple[int, ...]  # receptacles of its classes, ascending
    here: bool  # must be at the agent's location


@dataclass(frozen=True, slots=True)
class Block:
    """One `exists` of a goal, with those inside it; the goal is reached when all its blocks hold."""

    objects: tuple[ObjectNeed, ...]
    receptacles: tuple[ReceptacleNeed, ...]
    inside: tuple[tuple[int, int], ...]  # (object variable, receptacle variable)
    distinct: tuple[tuple[int, int], ...]  # object variables that must differ

    def holds(self, at: int, held: int, contents: Sequence[Sequence[int]], states: Sequence[int], where: Sequence[int]):
        """Whether some choice of objects and receptacles fulfils the block.

        Args:
            at: the agent's location.
            held: the object in its hand, -1 for none.
            contents: [R] objects in every receptacle.
            states: [O] bits of STATES.
            where: [R] location of every receptacle.
        """
        suitable = [
            [
                thing
                for thing in need.candidates
                if states[thing] & need.state == need.state and (thing == held or not need.held)
            ]
            for need in self.objects
        ]
        if not all(suitable):
            return False
        for receptacles in _choices(
            [[r for r in need.candidates if not need.here or where[r] == at] for need in self.receptacles]
        ):
            for_each = [list(things) for things in suitable]
            for thing, receptacle in self.inside:
                there = contents[receptacles[receptacle]]
                for_each[thing] = [candidate for candidate in for_each[thing] if candidate in there]
            if not all(for_each):
                continue
            if not self.distinct:
                return True
            if any(all(chosen[a] != chosen[b] for a, b in self.distinct) for chosen in _choices(for_each)):
                return True
        return False


def _choices(columns: list[list[int]]):
    """All ways to take one of each column."""
    if not columns:
        yield []
        return
    for first in columns[0]:
        for rest in _choices(columns[1:]):
            yield [first, *rest]


def compile_goal(problem: Problem) -> tuple[Block, ...]:
    """The blocks of a problem's goal.

    Raises:
        EnvironmentFailure: the goal asks for something that no block can say.
    """
    goal = problem.goal
    parts = goal.parts if isinstance(goal, And) else (goal,)
    return tuple(_Reader(problem).block(part) for part in parts)


class _Reader:
    """Collects what one block says of its variables."""

    def __init__(self, problem: Problem):
        self._problem = problem
        self._kinds: dict[str, str] = {}
        self._atoms: list[Atom] = []
        self._distinct: list[tuple[str, str]] = []

    def block(self, goal: Goal) -> Block:
        self._collect(goal)
        objects = [name for name, kind in self._kinds.items() if kind == "object"]
        receptacles = [name for name, kind in self._kinds.items() if kind == "receptacle"]
        here = self._here()
        return Block(
            objects=tuple(self._object(name) for name in objects),
            receptacles=tuple(
                ReceptacleNeed(candidates=tuple(self._receptacles(name)), here=name in here) for name in receptacles
            ),
            inside=tuple(
                (objects.index(thing), receptacles.index(receptacle))
                for thing, receptacle in self._pairs("inreceptacle")
            ),
            distinct=tuple((objects.index(a), objects.index(b)) for a, b in self._distinct),
        )

    def _collect(self, goal: Goal) -> None:
        match goal:
            case And(parts):
                for part in parts:
                    self._collect(part)
            case Exists(variables, part):
                if any(name in self._kinds for name, _ in variables):
                    raise EnvironmentFailure(f"The goal names a variable twice: {variables}; rename one of them.")
                self._kinds.update(variables)
                self._collect(part)
            case Not(Atom("=", (a, b))):
                self._distinct.append((a, b))
            case Atom(predicate, arguments):
                self._check(predicate, arguments)
                self._atoms.append(goal)
            case _:
                raise EnvironmentFailure(f"The goal has a part {goal} that the engine does not know; rewrite the goal.")

    def _check(self, predicate: str, arguments: tuple[str, ...]) -> None:
        wanted = _GOAL_ARGUMENTS.get(predicate)
        got = tuple(self._kinds.get(argument, argument) for argument in arguments)
        fits = wanted is not None and len(got) == len(wanted)
        if not fits or any(kind not in ("", its) for kind, its in zip(wanted or (), got)):
            raise EnvironmentFailure(
                f"The goal asks for ({' '.join((predicate, *arguments))}), which the engine does not know; it knows "
                f"{', '.join(_GOAL_ARGUMENTS)}, each about variables that an exists declares."
            )

    def _pairs(self, predicate: str) -> list[tuple[str, str]]:
        return [(atom.arguments[0], atom.arguments[1]) for atom in self._atoms if atom.predicate == predicate]

    def _of(self, name: str) -> list[Atom]:
        return [atom for atom in self._atoms if atom.arguments[0] == name]

    def _object(self, name: str) -> ObjectNeed:
        classes = {class_of(kind) for its, kind in self._pairs("objecttype") if its == name}
        traits = sum({TRAITS[atom.predicate] for atom in self._of(name) if atom.predicate in TRAITS})
        return ObjectNeed(
            candidates=frozenset(
                thing
                for thing, kind in enumerate(self._problem.object_classes)
                if classes <= {kind} and self._problem.traits[thing] & traits == traits
            ),
            state=sum({STATES[atom.predicate] for atom in self._of(name) if atom.predicate in STATES}),
            held=any(thing == name for _, thing in self._pairs("holds")),
        )

    def _receptacles(self, name: str) -> list[int]:
        classes = {class_of(kind) for its, kind in self._pairs("receptacletype") if its == name}
        openable = any(atom.predicate == "openable" for atom in self._of(name))
        return [
            receptacle
            for receptacle, kind in enumerate(self._problem.receptacle_classes)
            if classes <= {kind} and (not openable or self._problem.openable[receptacle])
        ]

    def _here(self) -> set[str]:
        """Receptacle variables whose location is the agent's."""
        agents = {location for _, location in self._pairs("atlocation")}
        placed = self._pairs("receptacleatlocation")
        if agents - {location for _, location in placed}:
            raise EnvironmentFailure("The goal has the agent at a location where it has no receptacle; name one there.")
        return {receptacle for receptacle, location in placed if location in agents}


_GOAL_ARGUMENTS = {
    "objecttype": ("object", ""),
    "receptacletype": ("receptacle", ""),
    "inreceptacle": ("object", "receptacle"),
    "holds": ("agent", "object"),
    "atlocation": ("agent", "location"),
    "receptacleatlocation": ("receptacle", "location"),
    "openable": ("receptacle",),
    **dict.fromkeys((*TRAITS, *STATES), ("object",)),
}
