"""A game's PDDL problem, read into a compact value: who and what there is, the facts at the start, and the goal.

Knows the predicates of the household domain, but neither what actions do nor how anything is called in a text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jaxmtrl.envs.alfworld.pddl import Fact, Goal, read_facts, read_goal, section
from jaxmtrl.errors import EnvironmentFailure

# What an object is by nature, a bit each; no action changes it.
PICKUPABLE, CLEANABLE, HEATABLE, COOLABLE, TOGGLEABLE, SLICEABLE, CONTAINER, MOVEABLE = (1 << bit for bit in range(8))
TRAITS = {
    "pickupable": PICKUPABLE,
    "cleanable": CLEANABLE,
    "heatable": HEATABLE,
    "coolable": COOLABLE,
    "toggleable": TOGGLEABLE,
    "sliceable": SLICEABLE,
    "isreceptacleobject": CONTAINER,
    "moveable": MOVEABLE,
}
# What has been done to an object, a bit each.
CLEAN, HOT, COOL, SLICED, TOGGLED, ON = (1 << bit for bit in range(6))
STATES = {"isclean": CLEAN, "ishot": HOT, "iscool": COOL, "issliced": SLICED, "istoggled": TOGGLED, "ison": ON}

_PAIRS = "atlocation receptacleatlocation objectatlocation inreceptacle inreceptacleobject receptacletype objecttype"
# Predicates by number of arguments. Those that are named here and nowhere else change nothing that is seen.
_ARGUMENTS = {
    **dict.fromkeys(TRAITS, 1),
    **dict.fromkeys(STATES, 1),
    **dict.fromkeys(_PAIRS.split(), 2),
    **dict.fromkeys("openable opened holdsany checked examined full".split(), 1),
    **dict.fromkeys(("isreceptacleobjectfull", "holdsanyreceptacleobject"), 1),
    **dict.fromkeys(("cancontain", "holds", "wasinreceptacle"), 2),
}
_KINDS = ("agent", "object", "receptacle", "location", "otype", "rtype")
_DECLARED = re.compile(r"([^-\s][^\s]*)|-\s+(\S+)")


@dataclass(frozen=True, slots=True)
class Problem:
    """O objects, R receptacles and L locations, each numbered from 0 in the order of their ids; ids in lower case.

    Only what occurs in a fact is listed. -1 stands for none.
    """

    objects: tuple[str, ...]  # [O] ids in ascending order, for example "mug_bar__plus_00_dot_68_bar_..."
    receptacles: tuple[str, ...]  # [R]
    locations: tuple[str, ...]  # [L]
    object_classes: tuple[str, ...]  # [O] "mug"; "" where none is stated
    receptacle_classes: tuple[str, ...]  # [R] "cabinet"
    traits: tuple[int, ...]  # [O] bits of TRAITS
    states: tuple[int, ...]  # [O] bits of STATES at the start
    openable: tuple[bool, ...]  # [R]
    opened: tuple[bool, ...]  # [R] at the start
    receptacle_locations: tuple[int, ...]  # [R] index of the location
    contents: tuple[tuple[int, ...], ...]  # [R] objects inside at the start, ascending; one may be in two receptacles
    object_locations: tuple[tuple[int, int], ...]  # (object, location) at the start, ascending
    nested: tuple[tuple[int, int], ...]  # (inner object, outer object), never changed
    fits: frozenset[tuple[str, str]]  # (receptacle class, object class) that may be put into one another
    start: int  # location of the agent
    held: int  # object in the agent's hand at the start
    goal: Goal


def read_problem(text: str) -> Problem:
    """Reads a PDDL problem of the household domain ("alfred"), as a game file has it in `pddl_problem`.

    Raises:
        EnvironmentFailure: the text is not such a problem; says which fact or section is at fault.
    """
    text = re.sub(r";[^\n]*", "", text).lower()
    kinds = _kinds(section(text, ":objects"))
    facts = _checked(read_facts(section(text, ":init")), kinds)
    return _build(facts, kinds, read_goal(section(text, ":goal")))


def _kinds(declared: str) -> dict[str, str]:
    """Name -> one of `_KINDS`, for everything that the section :objects declares."""
    kinds: dict[str, str] = {}
    waiting: list[str] = []
    for match in _DECLARED.finditer(declared):
        name, kind = match.groups()
        if name:
            waiting.append(name)
        elif kind not in _KINDS:
            raise EnvironmentFailure(
                f"The problem's :objects declare {kind!r}, which is no type of the ALFWorld domain; its types are "
                f"{', '.join(_KINDS)}."
            )
        else:
            kinds.update(dict.fromkeys(waiting, kind))
            waiting.clear()
    if waiting:
        raise EnvironmentFailure(f"The problem's :objects end without a type for {waiting[-1]!r}; the text is damaged.")
    return kinds


def _checked(facts: Iterable[Fact], kinds: dict[str, str]) -> dict[str, list[tuple[str, ...]]]:
    """Predicate -> arguments of each of its facts, in the order of the text, all of them known."""
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for predicate, *arguments in facts:
        wanted = _ARGUMENTS.get(predicate)
        if wanted != len(arguments):
            why = "is no predicate of the ALFWorld domain" if wanted is None else f"takes {wanted} arguments"
            raise EnvironmentFailure(
                f"The problem's :init has ({' '.join((predicate, *arguments))}); {predicate} {why}."
            )
        for argument in arguments:
            if argument not in kinds:
                raise EnvironmentFailure(
                    f"The problem's :init has ({' '.join((predicate, *arguments))}), but :objects do not declare "
                    f"{argument!r}; the text is damaged."
                )
        found[predicate].append(tuple(arguments))
    return found


class _Index:
    """Ids of one kind that occur in facts, and their numbers."""

    def __init__(self, kind: str, facts: dict[str, list[tuple[str, ...]]], kinds: dict[str, str]):
        self.kind = kind
        used = {argument for rows in facts.values() for row in rows for argument in row}
        self.ids = tuple(sorted(name for name in used if kinds[name] == kind))
        self._numbers = {name: number for number, name in enumerate(self.ids)}

    def __call__(self, name: str, fact: Sequence[str]) -> int:
        if name not in self._numbers:
            raise EnvironmentFailure(f"The problem's :init has ({' '.join(fact)}); {name!r} is no {self.kind}.")
        return self._numbers[name]


def _build(facts: dict[str, list[tuple[str, ...]]], kinds: dict[str, str], goal: Goal) -> Problem:
    objects, receptacles, locations = (_Index(kind, facts, kinds) for kind in ("object", "receptacle", "location"))

    def pairs(predicate: str, first: _Index, second: _Index) -> list[tuple[int, int]]:
        rows = facts.get(predicate, ())
        return sorted({(first(a, (predicate, a, b)), second(b, (predicate, a, b))) for a, b in rows})

    def bits(known: dict[str, int]) -> tuple[int, ...]:
        found = [0] * len(objects.ids)
        for predicate, bit in known.items():
            for (name,) in facts.get(predicate, ()):
                found[objects(name, (predicate, name))] |= bit
        return tuple(found)

    def flags(predicate: str) -> tuple[bool, ...]:
        named = {receptacles(name, (predicate, name)) for (name,) in facts.get(predicate, ())}
        return tuple(number in named for number in range(len(receptacles.ids)))

    where = _one_each("receptacleatlocation", pairs("receptacleatlocation", receptacles, locations), receptacles)
    inside: list[list[int]] = [[] for _ in receptacles.ids]
    for thing, receptacle in pairs("inreceptacle", objects, receptacles):
        inside[receptacle].append(thing)
    starts = {locations(place, ("atlocation", agent, place)) for agent, place in facts.get("atlocation", ())}
    if len(starts) != 1:
        raise EnvironmentFailure(
            f"The problem's :init puts the agent in {len(starts)} locations; it needs exactly one."
        )
    held = [objects(thing, ("holds", agent, thing)) for agent, thing in facts.get("holds", ())]
    if len(held) > 1 or bool(held) != bool(facts.get("holdsany")):
        raise EnvironmentFailure("The problem's :init must say (holds ..) once and (holdsany ..) with it, or neither.")
    return Problem(
        objects=objects.ids,
        receptacles=receptacles.ids,
        locations=locations.ids,
        object_classes=_classes("objecttype", facts, objects),
        receptacle_classes=_classes("receptacletype", facts, receptacles),
        traits=bits(TRAITS),
        states=bits(STATES),
        openable=flags("openable"),
        opened=flags("opened"),
        receptacle_locations=where,
        contents=tuple(tuple(things) for things in inside),
        object_locations=tuple(pairs("objectatlocation", objects, locations)),
        nested=tuple(pairs("inreceptacleobject", objects, objects)),
        fits=frozenset((class_of(r), class_of(o)) for r, o in facts.get("cancontain", ())),
        start=starts.pop(),
        held=held[0] if held else -1,
        goal=goal,
    )


def class_of(type_name: str) -> str:
    """The class behind a PDDL type, in lower case: "SinkBasinType" -> "sinkbasin"."""
    return type_name.lower().removesuffix("type")


def _one_each(predicate: str, pairs: Iterable[tuple[int, int]], index: _Index) -> tuple[int, ...]:
    """The second of the one pair that each has; -1 without."""
    found = [-1] * len(index.ids)
    for first, second in pairs:
        if found[first] >= 0:
            raise EnvironmentFailure(
                f"The problem's :init has two facts ({predicate} {index.ids[first]} ..); one wanted."
            )
        found[first] = second
    return tuple(found)


def _classes(predicate: str, facts: dict[str, list[tuple[str, ...]]], index: _Index) -> tuple[str, ...]:
    rows = sorted(set(facts.get(predicate, ())))
    types = sorted({kind for _, kind in rows})
    numbers = [(index(name, (predicate, name, kind)), types.index(kind)) for name, kind in rows]
    return tuple("" if kind < 0 else class_of(types[kind]) for kind in _one_each(predicate, numbers, index))
