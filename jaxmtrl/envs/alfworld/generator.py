"""Makes games of six task types by seed, in rooms like those of the published games; needs neither alfworld nor a disk.

A spec and a seed always give the same game, whatever the version of Python. Specs that differ only in receptacles and
distractors ask the same seed for the same thing in the same scene. Training scenes and unseen ones have nothing in
common.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import astuple, dataclass, replace

from jaxmtrl.envs.alfworld.draws import Draws
from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import KINDS, GameRecord
from jaxmtrl.envs.alfworld.naming import MODERN
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.problem import read_problem
from jaxmtrl.envs.alfworld.problem_text import write_problem
from jaxmtrl.envs.alfworld.room import furnish
from jaxmtrl.envs.alfworld.tables import UNSEEN_SCENES, tables, train_scenes
from jaxmtrl.envs.alfworld.task_types import need_of, possible_tasks
from jaxmtrl.errors import ConfigError, EnvironmentFailure

_FEWEST_RECEPTACLES = 4  # goal, tool and source, and somewhere else to look
_TRIES = 200


@dataclass(frozen=True, kw_only=True)
class GeneratorSpec:
    """Which games to make, and how hard. Raises ConfigError where no such game can be."""

    kinds: tuple[str, ...] = KINDS  # task types, all equally likely
    scenes: str | tuple[int, ...] = "train"  # "train", "unseen", or numbers of floor plans
    receptacles: int = 64  # at most; the largest room has 54
    distractors: int = 64  # objects at most that can be taken and are not of the target's class
    steps: tuple[int, int] | None = None  # fewest and most commands of the planner's way to win; None: any
    colocated: bool = False  # receptacles may share a location, so that one cannot go from one to the other

    def __post_init__(self) -> None:
        mistakes = _mistakes(self)
        if mistakes:
            raise ConfigError("the spec of generated ALFWorld games", mistakes)

    def scene_numbers(self) -> tuple[int, ...]:
        """The floor plans that games may play in."""
        if isinstance(self.scenes, str):
            return train_scenes() if self.scenes == "train" else UNSEEN_SCENES
        return self.scenes


# How large a room and how much in it; "large" is what the published games have.
COMPLEXITIES = {
    "small": {"receptacles": 8, "distractors": 6},
    "medium": {"receptacles": 16, "distractors": 18},
    "large": {"receptacles": 64, "distractors": 64, "colocated": True},
}


def complexity(name: str, **others: object) -> GeneratorSpec:
    """The spec of a named complexity, "small", "medium" or "large", with any other field of GeneratorSpec.

    Raises:
        ConfigError: there is no such complexity, or a field is wrong.
    """
    if name not in COMPLEXITIES:
        raise ConfigError(
            "the spec of generated ALFWorld games",
            [f"complexity must be one of {', '.join(COMPLEXITIES)}, got {name!r}."],
        )
    return GeneratorSpec(**{**COMPLEXITIES[name], **others})  # type: ignore[arg-type]


def generate(spec: GeneratorSpec, seed: int) -> GameRecord:
    """The game that `spec` and `seed` name, with the planner's way to win it; takes some milliseconds.

    Raises:
        EnvironmentFailure: none of 200 drawn games has a plan of as many commands as `spec.steps` asks for.
    """
    lengths = []
    for attempt in range(_TRIES):
        game = _draw(spec, seed, Draws(f"alfworld/{seed}/{attempt}"))
        commands = plan(World(read_problem(game.problem), game.task)) or ()
        lengths.append(len(commands))
        if commands and (spec.steps is None or spec.steps[0] <= len(commands) <= spec.steps[1]):
            return replace(game, walkthrough=tuple(commands))
    fewest, most = spec.steps or (1, math.inf)
    raise EnvironmentFailure(
        f"No game that takes {fewest} to {most} commands was found for seed {seed}: {_TRIES} games of "
        f"{', '.join(spec.kinds)} take {min(lengths)} to {max(lengths)}; widen steps or choose other kinds."
    )


def _draw(spec: GeneratorSpec, seed: int, draws: Draws) -> GameRecord:
    """One game that is as the spec says except for the number of commands."""
    kind = draws.pick(spec.kinds)
    number = draws.pick([number for number in spec.scene_numbers() if possible_tasks(kind, number)])
    choices = possible_tasks(kind, number)
    target = draws.pick(sorted({target for target, _ in choices}))
    place = draws.pick([place for other, place in choices if other == target])
    goal = tables().goals[kind]
    words = {"obj": target, "recep": place, "toggle": place}
    task = draws.pick(goal.sentences).format(**{name: word.lower() for name, word in words.items()})
    room = furnish(
        tables().scenes[number],
        need_of(kind, target, place),
        draws,
        receptacles=spec.receptacles,
        distractors=spec.distractors,
        colocated=spec.colocated,
    )
    trial = f"trial_{seed}_{_tag(spec)}".replace("-", "minus")  # a name in PDDL
    return GameRecord(
        id=f"{kind}-{target}-None-{place}-{number}/{trial}",
        kind=kind,
        task=task,
        problem=write_problem(f"plan_{trial}", room, goal.pddl.format(**words)),
        walkthrough=None,
        wording=MODERN,
    )


def _tag(spec: GeneratorSpec) -> str:
    """Tells the games of different specs apart that have the same seed; eight hexadecimal digits."""
    return hashlib.sha256(repr(astuple(spec)).encode("utf-8")).hexdigest()[:8]


def _mistakes(spec: GeneratorSpec) -> list[str]:
    """Everything that is wrong with a spec, a sentence each."""
    mistakes = [
        f"kinds: {kind!r} is no task type; they are {', '.join(KINDS)}." for kind in spec.kinds if kind not in KINDS
    ]
    if not spec.kinds:
        mistakes.append("kinds must name at least one task type, got none.")
    if isinstance(spec.scenes, str) and spec.scenes not in ("train", "unseen"):
        mistakes.append(f'scenes must be "train", "unseen" or numbers of floor plans, got {spec.scenes!r}.')
    elif unknown := [number for number in spec.scene_numbers() if number not in tables().scenes]:
        mistakes.append(f"scenes: no floor plans {unknown}; they are 1-30, 201-230, 301-330 and 401-430.")
    if spec.receptacles < _FEWEST_RECEPTACLES:
        mistakes.append(f"receptacles must be at least {_FEWEST_RECEPTACLES}, got {spec.receptacles}.")
    if spec.distractors < 0:
        mistakes.append(f"distractors must be at least 0, got {spec.distractors}.")
    if spec.steps is not None and not 1 <= spec.steps[0] <= spec.steps[1]:
        mistakes.append(f"steps must be (fewest, most) with 1 <= fewest <= most, got {spec.steps}.")
    if not mistakes:
        mistakes.extend(
            f"kinds: {kind} can be set in none of the scenes {spec.scenes}; leave it out or name scenes of "
            f"{' or '.join(sorted(tables().goals[kind].rooms))}."
            for kind in spec.kinds
            if not any(possible_tasks(kind, number) for number in spec.scene_numbers())
        )
    return mistakes
