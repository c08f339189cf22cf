"""What stays as it is while a game is played: names, places, what fits where, and the commands they allow."""

from __future__ import annotations

from dataclasses import dataclass

from jaxmtrl.envs.alfworld.goal import Block, compile_goal
from jaxmtrl.envs.alfworld.naming import Wording, name_things
from jaxmtrl.envs.alfworld.problem import CLEANABLE, COOLABLE, HEATABLE, PICKUPABLE, SLICEABLE, TOGGLEABLE, Problem

_KNIVES = frozenset({"knife", "butterknife"})
# Verb -> (class of the receptacle, trait of the object)
TREATMENTS = {
    "clean": ("sinkbasin", CLEANABLE),
    "heat": ("microwave", HEATABLE),
    "cool": ("fridge", COOLABLE),
}


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """Tables over a problem's numbers; shared by all worlds of one game and never changed."""

    problem: Problem
    task: str  # sentence without its full stop
    wording: Wording
    blocks: tuple[Block, ...]  # the goal
    object_names: tuple[str, ...]  # [O] "mug 1"
    receptacle_names: tuple[str, ...]  # [R] "cabinet 2"
    location_names: tuple[str, ...]  # [L] "loc 13"
    objects_named: dict[str, int]
    receptacles_named: dict[str, int]
    receptacles_at: tuple[tuple[int, ...], ...]  # [L] receptacles there, ascending
    elsewhere: tuple[tuple[str, ...], ...]  # [L] the commands that lead away from there
    accepts: tuple[frozenset[int], ...]  # [R] objects that may be put there
    treatment: tuple[str, ...]  # [R] what is done there: "clean", "heat", "cool" or ""
    treats: tuple[frozenset[int], ...]  # [R] objects that this can be done to
    knives: frozenset[int]
    sliceable: tuple[int, ...]
    portable: frozenset[int]
    switches: frozenset[int]  # toggleable objects
    outer: tuple[tuple[int, ...], ...]  # [O] objects that are inside an object


def make_scene(problem: Problem, task: str, wording: Wording) -> Scene:
    """The tables of a game.

    Raises:
        EnvironmentFailure: the goal is of no form that the engine knows.
    """
    objects, receptacles, locations = problem.objects, problem.receptacles, problem.locations
    names = name_things([*objects, *receptacles, *locations])
    object_names = tuple(names[: len(objects)])
    receptacle_names = tuple(names[len(objects) : len(objects) + len(receptacles)])
    at: list[list[int]] = [[] for _ in locations]
    for receptacle, location in enumerate(problem.receptacle_locations):
        if location >= 0:
            at[location].append(receptacle)
    go = [(location, f"go to {name}") for location, name in zip(problem.receptacle_locations, receptacle_names)]
    treatment = tuple(
        next((verb for verb, (kind, _) in TREATMENTS.items() if kind == its), "") for its in problem.receptacle_classes
    )

    def having(trait: int) -> frozenset[int]:
        return frozenset(thing for thing, traits in enumerate(problem.traits) if traits & trait)

    by_class: dict[str, list[int]] = {}
    for thing, kind in enumerate(problem.object_classes):
        by_class.setdefault(kind, []).append(thing)
    welcome: dict[str, list[int]] = {}
    for receptacle_class, object_class in problem.fits:
        welcome.setdefault(receptacle_class, []).extend(by_class.get(object_class, ()))
    accepts = {kind: frozenset(things) for kind, things in welcome.items()}
    treatable = {verb: having(trait) for verb, (_, trait) in TREATMENTS.items()}
    return Scene(
        problem=problem,
        task=task,
        wording=wording,
        blocks=compile_goal(problem),
        object_names=object_names,
        receptacle_names=receptacle_names,
        location_names=tuple(names[len(objects) + len(receptacles) :]),
        objects_named={name: number for number, name in enumerate(object_names)},
        receptacles_named={name: number for number, name in enumerate(receptacle_names)},
        receptacles_at=tuple(tuple(there) for there in at),
        elsewhere=tuple(
            tuple(command for place, command in go if place not in (-1, here)) for here in range(len(locations))
        ),
        accepts=tuple(accepts.get(kind, frozenset()) for kind in problem.receptacle_classes),
        treatment=treatment,
        treats=tuple(treatable.get(verb, frozenset()) for verb in treatment),
        knives=frozenset(thing for thing, kind in enumerate(problem.object_classes) if kind in _KNIVES),
        sliceable=tuple(sorted(having(SLICEABLE))),
        portable=having(PICKUPABLE),
        switches=having(TOGGLEABLE),
        outer=tuple(tuple(inner for inner, outer in problem.nested if outer == thing) for thing in range(len(objects))),
    )
