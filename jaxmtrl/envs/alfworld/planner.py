"""An expert that sees everything: the shortest commands that win a household game from the state it is in.

Every goal of the six task types (and of their sliced variants) is a few errands: fetch a thing, treat it, bring it
somewhere. The planner walks through all choices of thing, tool and place that could differ in length and keeps the
shortest. A move from anywhere to anywhere is one step, so the order within an errand is fixed; what is left to choose
is small.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.goal import Block, ObjectNeed
from jaxmtrl.envs.alfworld.problem import CLEAN, COOL, HOT, SLICED, TOGGLED
from jaxmtrl.envs.alfworld.walk import Walk
from jaxmtrl.errors import EnvironmentFailure

_TREATMENTS = {CLEAN: "clean", HOT: "heat", COOL: "cool"}


def plan(world: World) -> list[str] | None:
    """Commands that win from the state `world` is in, as few as possible; the world is not changed.

    Returns:
        The commands in the game's wording; none if it is won already; None if it cannot be won any more, which happens
        where the agent holds something that no receptacle takes.

    Raises:
        EnvironmentFailure: the goal is none of the task types.
    """
    if world.won:
        return []
    errand = _errand(world.scene.blocks)
    return _best(_place(world, errand) if isinstance(errand, Block) else _light(world, *errand))


def plan_first_errand(world: World) -> list[str] | None:
    """The same for a part of the goal: one thing of two is where it must be, or what the light must fall on is in the
    hand. None where the goal has no such part, too.
    """
    errand = _errand(world.scene.blocks)
    if isinstance(errand, Block):
        part = replace(errand, objects=errand.objects[:1], inside=errand.inside[:1], distinct=())
        return _best(_place(world, part)) if len(errand.objects) > 1 else None
    need, lamp = errand
    return _best(
        walk
        for thing in need.candidates
        for walk in _prepare([Walk(world)], thing, need.state & ~world.states[thing], lamp.receptacles[0].candidates[0])
    )


def _best(walks: Iterable[Walk]) -> list[str] | None:
    """The commands of the shortest walk, the first of equals."""
    best = min(walks, key=lambda walk: len(walk.steps), default=None)
    return None if best is None else best.commands()


def _errand(blocks: tuple[Block, ...]) -> Block | tuple[ObjectNeed, Block]:
    """What to bring where; or what to hold, and the block of the lamp that must be on here."""
    found = _place_block(blocks) or _light_blocks(blocks)
    if found is not None:
        return found
    raise EnvironmentFailure(
        "The game's goal is neither to put one or two things somewhere nor to hold one under a light, so there is no "
        "expert for it; play it without."
    )


def _place_block(blocks: tuple[Block, ...]) -> Block | None:
    """The goal's only block, if it says: one or two objects in one receptacle."""
    if len(blocks) != 1 or len(blocks[0].receptacles) != 1 or not 1 <= len(blocks[0].objects) <= 2:
        return None
    block = blocks[0]
    all_inside = {thing for thing, _ in block.inside} == set(range(len(block.objects)))
    plain = not block.receptacles[0].here and not any(need.held for need in block.objects)
    return block if all_inside and plain else None


def _light_blocks(blocks: tuple[Block, ...]) -> tuple[ObjectNeed, Block] | None:
    """What to hold, and the block of the lamp that must be on here; for goals of these two blocks."""
    if len(blocks) != 2:
        return None
    hold = next((b for b in blocks if len(b.objects) == 1 and not b.receptacles and b.objects[0].held), None)
    lamp = next((b for b in blocks if len(b.objects) == 1 and len(b.receptacles) == 1 and b.receptacles[0].here), None)
    if hold is None or lamp is None or lamp.inside != ((0, 0),) or lamp.objects[0].state != TOGGLED:
        return None
    return hold.objects[0], lamp


def _place(world: World, block: Block) -> Iterator[Walk]:
    """Ways to bring objects into one receptacle that is a candidate."""
    apart = bool(block.distinct)
    needs = block.objects
    same = all(need == needs[0] for need in needs)
    orders = [tuple(range(len(needs)))] if same else list(itertools.permutations(range(len(needs))))
    for receptacle in _different_receptacles(world, block):
        for order in orders:
            things = [_different_objects(world, needs[number], receptacle, len(needs)) for number in order]
            for chosen in itertools.product(*things):
                if apart and len(set(chosen)) < len(chosen):
                    continue
                if world.held in chosen[1:] and world.held != chosen[0]:
                    continue  # what is in the hand comes first
                yield from _bring(world, list(zip(chosen, (needs[number].state for number in order))), receptacle)


def _bring(world: World, errands: list[tuple[int, int]], receptacle: int) -> Iterable[Walk]:
    """Walks that bring each (object, state it must be in) to `receptacle`, in this order."""
    inside = world.contents[receptacle]
    left = [
        (thing, state) for thing, state in errands if not (thing in inside and world.states[thing] & state == state)
    ]
    walks = [Walk(world)]
    for thing, state in left:
        missing = state & ~world.states[thing]
        rest = missing & ~SLICED
        if missing & SLICED:
            cut = _shortest(cut for walk in walks for cut in _cut(walk, thing, receptacle))
            there = [walk for walk in cut if not rest and receptacle in walk.where(thing)]
            brought = _deliver(walks, thing, rest, receptacle)  # and cut there
            walks = there + _deliver(cut, thing, rest, receptacle)
            walks += [cut for walk in brought for cut in _cut(walk, thing, receptacle)]
        else:
            walks = _deliver(walks, thing, missing, receptacle)
    return walks


def _deliver(walks: list[Walk], thing: int, missing: int, receptacle: int) -> list[Walk]:
    """Walks on until `thing` is in the receptacle with the bits of `missing` set."""
    delivered = []
    for walk in _prepare(walks, thing, missing, receptacle):
        if receptacle in walk.where(thing):
            delivered.append(walk.copy())  # it was in two receptacles, and was taken out of the other one
        if thing in walk.world.scene.accepts[receptacle]:
            delivered.append(walk.put(receptacle))
    return _shortest(delivered)


def _light(world: World, need: ObjectNeed, block: Block) -> Iterator[Walk]:
    """Ways to stand at a lamp that has been used, with a candidate in the hand."""
    for thing in need.candidates:
        for lamp, receptacle in itertools.product(block.objects[0].candidates, block.receptacles[0].candidates):
            if lamp not in world.contents[receptacle] or world.scene.problem.receptacle_locations[receptacle] < 0:
                continue
            missing = need.state & ~world.states[thing]
            for walk in _prepare([Walk(world)], thing, missing, receptacle):
                walk.go(receptacle)
                yield walk if world.states[lamp] & TOGGLED else walk.use(lamp)


def _prepare(walks: list[Walk], thing: int, missing: int, goal: int) -> list[Walk]:
    """Branches in which `thing` is in the hand and the bits of `missing`, by treatments, are set."""
    if missing & HOT and missing & COOL or missing & ~(CLEAN | HOT | COOL):
        return []
    walks = _shortest(ready for walk in walks for ready in _fetch(walk, thing, goal))
    verbs = [verb for bit, verb in _TREATMENTS.items() if missing & bit]
    if not verbs:
        return walks
    treated = []
    for walk, order in itertools.product(walks, itertools.permutations(verbs)):
        treated += _treat(walk, order)
    return _shortest(treated)


def _treat(walk: Walk, verbs: tuple[str, ...]) -> list[Walk]:
    scene = walk.world.scene
    walks = [walk]
    for verb in verbs:
        tools = [
            tool
            for tool, its in enumerate(scene.treatment)
            if its == verb and walk.held in scene.treats[tool] and scene.problem.receptacle_locations[tool] >= 0
        ]
        walks = [before.copy().treat(tool) for before in walks for tool in tools]
    return walks


def _fetch(walk: Walk, thing: int, goal: int) -> Iterator[Walk]:
    """Branches in which `thing` is in the hand."""
    if walk.held == thing:
        yield walk.copy()
        return
    scene = walk.world.scene
    if thing not in scene.portable:
        return
    for source in sorted(walk.where(thing)):
        if scene.problem.receptacle_locations[source] >= 0:
            for free in _free_hand(walk, (source, goal)):
                yield free.copy().take(thing, source)


def _free_hand(walk: Walk, on_the_way: tuple[int, ...]) -> list[Walk]:
    """Branches with an empty hand: what is held is put down here, where the walk goes anyway, or anywhere.

    Of all other receptacles one that is open stands for the rest.
    """
    if walk.held < 0:
        return [walk]
    scene = walk.world.scene
    places = scene.problem.receptacle_locations
    useful = {walk.at, *(places[receptacle] for receptacle in on_the_way)}
    willing = [
        receptacle
        for receptacle, accepted in enumerate(scene.accepts)
        if walk.held in accepted and places[receptacle] >= 0
    ]
    near = [receptacle for receptacle in willing if places[receptacle] in useful]
    far = [receptacle for receptacle in willing if places[receptacle] not in useful]
    near += sorted(far, key=lambda receptacle: not walk.accessible(receptacle))[:1]
    return [walk.copy().put(receptacle) for receptacle in near]


def _cut(walk: Walk, thing: int, goal: int) -> Iterator[Walk]:
    """Branches in which `thing` has been sliced; the knife is still in the hand."""
    scene = walk.world.scene
    if thing not in scene.sliceable:
        return
    starts = [walk.copy()]
    if walk.held == thing:
        starts += _free_hand(walk, (goal,))  # where it was put down it can be cut, too
    for start in starts:
        places = sorted(place for place in start.lies_at(thing) if scene.receptacles_at[place])
        for knife, place in itertools.product(sorted(scene.knives), places):
            for armed in _fetch(start, knife, goal):
                yield armed.cut(thing, place)


def _shortest(walks: Iterable[Walk]) -> list[Walk]:
    """One walk for every outcome, the shortest."""
    best: dict[tuple, Walk] = {}
    for walk in walks:
        outcome = (walk.at, walk.held, walk.opened, walk.moved)
        if outcome not in best or len(walk.steps) < len(best[outcome].steps):
            best[outcome] = walk
    return list(best.values())


def _different_objects(world: World, need: ObjectNeed, receptacle: int, count: int) -> list[int]:
    """Candidates, at most `count` of those that lie in the same receptacles in the same state."""
    alike: dict[tuple, list[int]] = {}
    for thing in sorted(need.candidates):
        where = tuple(place for place, inside in enumerate(world.contents) if thing in inside)
        alike.setdefault((where, world.states[thing], thing == world.held), []).append(thing)
    return [thing for things in alike.values() for thing in things[:count]]


def _different_receptacles(world: World, block: Block) -> list[int]:
    """Candidates; of those that play no part but to be filled, one that is open and one that is closed."""
    scene = world.scene
    places = scene.problem.receptacle_locations
    candidates = {thing for need in block.objects for thing in need.candidates}
    if any(need.state & SLICED for need in block.objects):
        candidates |= scene.knives
    busy = {world.at}
    for receptacle, inside in enumerate(world.contents):
        if scene.treatment[receptacle] or not candidates.isdisjoint(inside):
            busy.add(places[receptacle])
    chosen: list[int] = []
    plain: dict[tuple, int] = {}
    for receptacle in block.receptacles[0].candidates:
        if places[receptacle] in busy:
            chosen.append(receptacle)
        elif places[receptacle] >= 0:
            kind = scene.problem.receptacle_classes[receptacle]
            plain.setdefault((kind, world.accessible(receptacle)), receptacle)
    return [*chosen, *plain.values()]
