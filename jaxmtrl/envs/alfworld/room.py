"""Furnishes a room: which of a scene's receptacles are there, where one stands, and what lies in what.

Knows of a task only what must be there for it, and where its objects must not lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxmtrl.envs.alfworld.draws import Draws
from jaxmtrl.envs.alfworld.tables import Location, Receptacle, Scene, tables, thing_id

# About how many things lie in a receptacle of each class in the published training games; `_ELSEWHERE` in the others,
# most of them cabinets and drawers. It is how likely a thing is to come there, and `_FULL` times as many is the most.
_LEVELS = (
    (9.0, "DiningTable"),
    (6.0, "CounterTop Desk"),
    (5.0, "Dresser"),
    (4.5, "CoffeeTable Fridge"),
    (4.0, "Bed"),
    (3.0, "Cart SideTable TVStand"),
    (2.5, "Sofa Toilet"),
    (2.0, "BathtubBasin SinkBasin"),
    (1.0, "ArmChair GarbageCan Microwave Ottoman Shelf"),
    (0.4, "CoffeeMachine HandTowelHolder StoveBurner ToiletPaperHanger TowelHolder"),
)
_USUAL = {kind: number for number, kinds in _LEVELS for kind in kinds.split()}
_ELSEWHERE = 0.8
_FULL = 2.5
# What stands on furniture though nothing says that one may put it there.
STANDS = {
    "DeskLamp": ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable"),
    "HousePlant": ("CounterTop", "SideTable", "DiningTable", "Shelf", "CoffeeTable", "Desk", "Dresser"),
    "Television": ("Dresser", "TVStand", "CoffeeTable", "SideTable"),
}
_COPIES = (1, 2, 3)
_COPIES_WEIGHTS = (0.43, 0.32, 0.25)  # of a class, in the published games
# Of what a task is about there are 1 to 4 there, in shares of .40, .28, .17 and .14.
_TARGETS_MORE = (0, 1, 2, 3)  # than the task wants
_TARGETS_MORE_WEIGHTS = (0.42, 0.28, 0.17, 0.13)
_TARGETS_MOST = 4
_NESTED = 0.17  # share of the published games in which something lies in a bowl or the like
_HORIZONS = (30, 60, 45, 15, 0, -15, -30)  # degrees


@dataclass(frozen=True)
class Need:
    """What a task wants of a room."""

    target: str  # class of the objects it is about
    targets: int  # how many of them at least
    apart: tuple[str, ...]  # receptacle classes in which no target may lie
    present: tuple[tuple[str, ...], ...]  # of each of these lists of receptacle classes, one receptacle must be there


@dataclass(frozen=True)
class Thing:
    """An object."""

    kind: str
    position: tuple[int, int, int]  # x, y, z in centimetres
    holder: Receptacle | None  # what it lies in; None: it stands about
    location: Location
    cool: bool = False  # it has been in the fridge

    @property
    def id(self) -> str:
        return thing_id(self.kind, self.position)


@dataclass(frozen=True)
class Room:
    """A furnished room before anything is done in it."""

    scene: int
    receptacles: tuple[Receptacle, ...]  # sorted by id
    things: tuple[Thing, ...]  # sorted by id
    nested: tuple[tuple[Thing, Thing], ...]  # (inner, outer), both of `things`
    start: Location  # of the agent; out of reach of everything


def can_lie(kind: str, receptacle: str) -> bool:
    """Whether an object of class `kind` may lie, or stand, in a receptacle of this class."""
    return kind in tables().can_contain.get(receptacle, ()) or receptacle in STANDS.get(kind, ())


def usual_number(receptacle: str) -> float:
    """About how many things lie in a receptacle of this class in the published training games."""
    return _USUAL.get(receptacle, _ELSEWHERE)


def furnish(scene: Scene, need: Need, draws: Draws, *, receptacles: int, distractors: int, colocated: bool) -> Room:
    """Draws a room of `scene` in which the task can be done.

    Args:
        need: fits the scene: there are receptacles of all lists in `present`, and one in which a target may lie.
        receptacles: how many there are at most; at least len(need.present) + 1.
        distractors: how many objects there are at most that can be taken and are not of the target's class.
        colocated: receptacles that are reached from one spot share their location, as in the published games.
    """
    chosen = _choose(scene, need, draws, receptacles)
    standing = chosen if colocated else _spread(chosen)
    filler = _Filler(standing, draws)
    for kind in scene.objects:
        if kind in STANDS:
            filler.put(kind)
    wanted = need.targets + draws.weighted(_TARGETS_MORE, _TARGETS_MORE_WEIGHTS)
    for number in range(min(wanted, _TARGETS_MOST)):
        filler.put_target(need, crowded=number < need.targets)
    others = [
        kind for kind in scene.objects if kind != need.target and kind not in STANDS and kind in tables().pickupable
    ]
    copies = [kind for kind in others for _ in range(draws.weighted(_COPIES, _COPIES_WEIGHTS))]
    there = 0
    for kind in draws.shuffled(copies):
        if there < distractors:
            there += filler.put(kind)
    nested = filler.nest() if draws.chance(_NESTED) else ()
    used = {receptacle.stand for receptacle in standing}
    start = _free_location(scene, draws, used)
    around = _free_location(scene, draws, used | {start})
    fixtures = [kind for kind in scene.objects if kind not in STANDS and kind not in tables().pickupable]
    for kind in fixtures:
        filler.stand(kind, around)
    return Room(
        scene=scene.number,
        receptacles=tuple(sorted(standing, key=lambda receptacle: receptacle.id)),
        things=tuple(sorted(filler.things, key=lambda thing: thing.id)),
        nested=nested,
        start=start,
    )


def _choose(scene: Scene, need: Need, draws: Draws, most: int) -> list[Receptacle]:
    """What must be there, then one of every class as far as `most` allows, then second ones, and so on."""
    order = draws.shuffled(scene.receptacles)
    sources = tuple(
        kind for kind in tables().receptacle_classes if kind not in need.apart and can_lie(need.target, kind)
    )
    chosen: list[Receptacle] = []
    for kinds in (*need.present, sources):
        if not any(receptacle.kind in kinds for receptacle in chosen):
            chosen.append(next(receptacle for receptacle in order if receptacle.kind in kinds))
    seen: Counter[str] = Counter(receptacle.kind for receptacle in chosen)
    turns = []
    for place, receptacle in enumerate(order):
        if receptacle not in chosen:
            turns.append((seen[receptacle.kind], place, receptacle))
            seen[receptacle.kind] += 1
    turns.sort(key=lambda turn: turn[:2])
    return [*chosen, *(receptacle for _, _, receptacle in turns)][:most]


def _spread(receptacles: Sequence[Receptacle]) -> list[Receptacle]:
    """The same with a location for each: who would share one looks up or down a little more or less."""
    used: set[Location] = set()
    spread = []
    for receptacle in receptacles:
        stand = receptacle.stand
        turns = [(stand.turn + quarter) % 4 for quarter in range(4)]
        looks = [stand, *(replace(stand, turn=turn, horizon=horizon) for turn in turns for horizon in _HORIZONS)]
        stand = next(look for look in looks if look not in used)
        used.add(stand)
        spread.append(replace(receptacle, stand=stand))
    return spread


def _free_location(scene: Scene, draws: Draws, used: set[Location]) -> Location:
    """A location of the scene that is none of `used`."""
    x, z = draws.pick(scene.points)
    looks = (Location(x, z, turn, look) for look in _HORIZONS for turn in range(4))
    return next(look for look in looks if look not in used)


class _Filler:
    """Puts things into receptacles that may hold them and have space."""

    def __init__(self, receptacles: Sequence[Receptacle], draws: Draws):
        self.things: list[Thing] = []
        self._receptacles = receptacles
        self._inside: Counter[str] = Counter()  # by the receptacle's id
        self._names: set[str] = set()
        self._draws = draws

    def put(self, kind: str) -> bool:
        """Puts one more object somewhere; False if there is no space for it."""
        places = [place for place in self._receptacles if can_lie(kind, place.kind) and self._has_space(place)]
        if places:
            self._lay(kind, places)
        return bool(places)

    def put_target(self, need: Need, crowded: bool) -> None:
        """Puts one more target where it may lie; only if `crowded` it does so where there is no space."""
        allowed = [p for p in self._receptacles if p.kind not in need.apart and can_lie(need.target, p.kind)]
        places = [place for place in allowed if self._has_space(place)] or (allowed if crowded else [])
        if places:
            # A target out of the fridge is cool in the published games; other things there are not.
            self._lay(need.target, places, cools=True)

    def _lay(self, kind: str, places: Sequence[Receptacle], cools: bool = False) -> None:
        holder = self._draws.weighted(places, [usual_number(place.kind) for place in places])
        self._inside[holder.id] += 1
        x, y, z = holder.position
        spot = (x + self._draws.below(61) - 30, y + self._draws.below(21), z + self._draws.below(61) - 30)
        self._add(Thing(kind, spot, holder, holder.stand, cool=cools and holder.kind == "Fridge"))

    def _has_space(self, place: Receptacle) -> bool:
        return self._inside[place.id] < max(1, int(_FULL * usual_number(place.kind)))

    def stand(self, kind: str, location: Location) -> None:
        """Has an object stand about, out of everything."""
        spot = (25 * location.x + self._draws.below(101) - 50, self._draws.below(201), 25 * location.z)
        self._add(Thing(kind, spot, None, location))

    def nest(self) -> tuple[tuple[Thing, Thing], ...]:
        """One thing within another beside it, where there are two that allow it."""
        pairs = [
            (inner, outer)
            for outer in self.things
            for inner in self.things
            if inner is not outer and inner.holder is not None and inner.holder is outer.holder
            if inner.kind in tables().can_contain.get(outer.kind, ())
        ]
        return (self._draws.pick(pairs),) if pairs else ()

    def _add(self, thing: Thing) -> None:
        while thing.id in self._names:  # a centimetre aside: ids are names
            x, y, z = thing.position
            thing = replace(thing, position=(x + 1, y, z))
        self._names.add(thing.id)
        self.things.append(thing)
