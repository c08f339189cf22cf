"""An expert that knows what a player knows: what the texts have shown, and where such things are likely to lie.

The planner sees into closed cabinets. Its demonstrations never look in vain, and who imitates them never learns what to
do after that. This one looks for what it has not seen, in the likeliest places first, and with what it has seen does
as the planner would.
"""

from __future__ import annotations

import functools

from jaxmtrl.envs.alfworld.engine import TREATED, World
from jaxmtrl.envs.alfworld.planner import plan, plan_first_errand
from jaxmtrl.envs.alfworld.problem import SLICED
from jaxmtrl.envs.alfworld.room import can_lie, usual_number
from jaxmtrl.envs.alfworld.tables import tables

_UNLIKELY = 0.01  # of what is otherwise said of a place, where a thing is brought, treated or not to be expected


def search(world: World) -> list[str] | None:
    """Commands that win from the start of a game, each chosen by what those before it have shown; nothing is drawn.

    Args:
        world: at its start; not changed.

    Returns:
        None if the game cannot be won.

    Raises:
        EnvironmentFailure: the goal is none of the task types.
    """
    world = world.copy()
    seen = [False] * len(world.contents)
    commands: list[str] = []
    while not world.won:
        belief = world.copy()
        belief.contents = [inside if known else () for inside, known in zip(world.contents, seen)]
        steps = plan(belief) or plan_first_errand(belief)
        command = steps[0] if steps else _look(belief, seen)
        if command is None:
            return None
        world.step(command)
        commands.append(command)
        verb, _, rest = command.partition(" ")
        if verb in ("go", "open", "examine"):
            receptacle = world.scene.receptacles_named[rest.removeprefix("to ")]
            seen[receptacle] = seen[receptacle] or world.accessible(receptacle)
    return commands


def _look(belief: World, seen: list[bool]) -> str | None:
    """The command that leads to the likeliest place of what is wanted; None once all places are known."""
    scene = belief.scene
    places = scene.problem.receptacle_locations
    kinds = _wanted(belief)
    used = _used(belief)

    def likelihood(receptacle: int) -> float:
        there = scene.problem.receptacle_classes[receptacle]
        usual = max((_likelihood(kind, there) for kind in kinds), default=1.0)
        return usual * (_UNLIKELY if receptacle in used else 1.0)

    unseen = [receptacle for receptacle, known in enumerate(seen) if not known and places[receptacle] >= 0]
    best = max(unseen, key=lambda receptacle: (likelihood(receptacle), -receptacle), default=None)
    if best is None:
        return None
    name = scene.receptacle_names[best]
    if places[best] != belief.at:
        return f"go to {name}"
    return f"examine {name}" if belief.accessible(best) else f"open {name}"


def _wanted(belief: World) -> set[str]:
    """Classes of what the goal asks for and too few have been seen of; of all that it asks for if none is missing."""
    scene = belief.scene
    known = {belief.held, *(thing for inside in belief.contents for thing in inside)}
    needs = [need for block in scene.blocks for need in block.objects]
    groups = [(need.candidates, needs.count(need)) for need in needs]
    if any(need.state & SLICED for need in needs):
        groups.append((scene.knives, 1))
    missing = [things for things, number in groups if len(things & known) < number]
    classes = scene.problem.object_classes
    return {classes[thing] for things in missing or [things for things, _ in groups] for thing in things}


def _used(belief: World) -> set[int]:
    """Receptacles that a thing is to be brought to or treated at; games seldom begin with it there."""
    scene = belief.scene
    goals = {
        place for block in scene.blocks for need in block.receptacles if not need.here for place in need.candidates
    }
    states = [need.state for block in scene.blocks for need in block.objects]
    tools = {
        place
        for place, verb in enumerate(scene.treatment)
        if verb and any(TREATED[verb][0] & state for state in states)
    }
    return goals | tools


@functools.cache
def _likelihood(kind: str, receptacle: str) -> float:
    """How likely a thing of one class lies in a receptacle of another, up to a factor; classes in lower case."""
    names = {name.lower(): name for name in (*tables().object_classes, *tables().receptacle_classes)}
    usual = usual_number(names.get(receptacle, receptacle))
    return usual if can_lie(names.get(kind, kind), names.get(receptacle, receptacle)) else usual * _UNLIKELY
