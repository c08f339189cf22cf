"""ALFWorld as an environment: splits of generated or published households, mixed of six task types.

Generated games are named by seed, complexity and scenes; they need neither data nor a simulator, and are made by the
worker that plays them. Published games are those that alfworld-download fetches; they are looked for only where a
split asks for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from jaxmtrl.envs.actions import THINK, with_tags
from jaxmtrl.envs.alfworld.draws import Draws
from jaxmtrl.envs.alfworld.mixes import MIXES, shares, weight_mistakes
from jaxmtrl.envs.alfworld.naming import CLASSIC, MODERN
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.player import AlfworldEnv, Games, Rules
from jaxmtrl.envs.alfworld.search import search
from jaxmtrl.envs.base import OwnReturns, Split
from jaxmtrl.envs.mixing import apportion, interleave
from jaxmtrl.envs.options import read_options
from jaxmtrl.envs.state_template import OBSERVATION
from jaxmtrl.errors import ConfigError
from jaxmtrl.types import Task

_WORDINGS = {"modern": MODERN, "classic": CLASSIC, None: None}
_Mix = Literal["single", "four", "six"]
_Complexity = Literal["small", "medium", "large"]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SplitOptions:
    source: Annotated[
        Literal["generated", "train", "valid_seen", "valid_unseen"],
        Field(description="generated: games made by seed; the others: the published split of that name"),
    ] = "generated"
    scenes: Annotated[
        Literal["train", "unseen"] | None,
        Field(description="rooms of generated games, which have none in common; none: train"),
    ] = None
    complexity: Annotated[
        _Complexity | None, Field(description="of generated games; as env.options.complexity, which it defaults to")
    ] = None
    first_seed: Annotated[
        int | None, Field(ge=0, lt=2**31, description="seed of the first generated game; the others follow")
    ] = None
    count: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="games; none, of a published split: all of the mix")
    ] = None
    mix: Annotated[_Mix | None, Field(description="as env.options.mix, which it defaults to")] = None
    weights: Annotated[
        dict[str, float], Field(description="as env.options.weights, which it defaults to where no mix is named either")
    ] = Field(default_factory=dict)
    steps: Annotated[
        tuple[int, int] | None,
        Field(description="fewest and most commands of the shortest way to win a generated game; none: any"),
    ] = None
    max_steps: Annotated[int | None, Field(ge=1, description="steps before a game is cut; none: as env.options")] = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class AlfworldOptions:
    data: Annotated[
        str | None, Field(min_length=1, description="folder of the published games; none: $ALFWORLD_DATA")
    ] = None
    cache_dir: Annotated[str, Field(min_length=1, description="folder of the lists of published games")] = (
        ".cache/alfworld"
    )
    complexity: Annotated[
        _Complexity,
        Field(description="of generated games: 8 receptacles and 6 other things at most, 16 and 18, or as published"),
    ] = "medium"
    mix: Annotated[
        _Mix | None,
        Field(
            description="task types, equally many of each; single: pick and place; four: heat, cool, clean and "
            "examine in light (texts on this mix do not agree: some name clean first and none for examine, some a "
            '"cook" that is no type); six: all; none: six, or weights'
        ),
    ] = None
    weights: Annotated[
        dict[str, float],
        Field(
            description="a mix of one's own: type to its part of the tasks, as {pick_and_place_simple: 0.25, others: "
            "0.75}; others is shared evenly by the types that are not named"
        ),
    ] = Field(default_factory=dict)
    max_steps: Annotated[int, Field(ge=1, description="steps before a game is cut")] = 50
    splits: Annotated[
        dict[str, SplitOptions],
        Field(description="by name; empty: train, heldout (its rooms, other seeds) and unseen (other rooms)"),
    ] = Field(default_factory=dict)
    wording: Annotated[
        Literal["modern", "classic"] | None,
        Field(
            description='modern: "move mug 1 to desk 1"; classic: "put mug 1 in/on desk 1", as in data of version '
            "2.1.1; none: modern, and published games as their files have it"
        ),
    ] = None
    observation: Annotated[Literal["text", "state"], Field(description=OBSERVATION)] = "text"
    repeat_goal: Annotated[
        bool,
        Field(description="the goal ends every observation, instead of beginning the first; state tells it anyway"),
    ] = False
    show_admissible: Annotated[bool, Field(description="list the commands that would change something")] = False
    expert: Annotated[
        Literal["planner", "searching"],
        Field(
            description="whose play is shown; planner: the shortest, by one who knows where everything is; searching: "
            "by one who looks in likely places first, and the planner's where that takes more than max_steps"
        ),
    ] = "planner"
    think: Annotated[bool, Field(description=THINK)] = False
    reward: Annotated[
        Literal["score", "progress"],
        Field(description="score: 1 for winning; progress: half of it, and half for the steps on the way to win"),
    ] = "score"
    invalid_action_penalty: Annotated[
        float, Field(ge=0, lt=1, description="taken from the reward of an action at which nothing happens")
    ] = 0.0


class AlfworldEnvironment:
    """Splits, experts and players; implements `envs.base.Environment`."""

    reports = ("invalid_action",)

    def __init__(self, options: AlfworldOptions):
        self._options = options
        self._splits = dict(options.splits) or _default_splits()
        mistakes = list(_mistakes(options, self._splits))
        if mistakes:
            raise ConfigError("env.options", mistakes)
        data = Path(options.data).absolute() if options.data else None  # workers may run in another folder
        self._games = Games(data, Path(options.cache_dir).absolute(), _WORDINGS[options.wording])

    @property
    def max_steps(self) -> int:
        """The largest of all splits; a task's own limit is in its payload."""
        return max(self._max_steps(split) for split in self._splits.values())

    def split_names(self) -> Sequence[str]:
        return tuple(self._splits)

    def split(self, name: str) -> Split:
        """The tasks of one split, types spread evenly; a published one is looked for on the disk.

        Raises:
            ConfigError: there is no such split, or it asks for more games than were published.
            EnvironmentFailure: the published games are not there.
        """
        if name not in self._splits:
            raise ConfigError("env", [f"ALFWorld has no split {name!r}; it has: {', '.join(self._splits)}."])
        split = self._splits[name]
        tasks = self._generated(split) if split.source == "generated" else self._published(name, split)
        return Split(name=name, tasks=list(tasks))

    def make_env(self) -> AlfworldEnv:
        options = self._options
        return AlfworldEnv(
            self._games,
            Rules(
                show_admissible=options.show_admissible,
                think=options.think,
                pay_progress=options.reward == "progress",
                invalid_action_penalty=options.invalid_action_penalty,
                repeat_goal=options.repeat_goal,
                template=options.observation == "state",
            ),
        )

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        """Commands that win, as an answer of the policy would have them."""
        world = self._games.open(task)
        commands = search(world) if self._options.expert == "searching" else None
        if commands is None or len(commands) > task.payload["max_steps"]:
            commands = plan(world)
        return [with_tags(command) for command in commands] if commands and self._options.think else commands

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        """Nothing to make: opens a game of every kind of split and type, so that one that cannot be had is known now.

        Raises:
            EnvironmentFailure: a game cannot be read, or none can be made that takes as many steps as asked.
        """
        samples: dict[str, Task] = {}
        for task in tasks:
            samples.setdefault(repr({**task.payload, "game": None}), task)
        for task in samples.values():
            self._games.open(task)
        report(len(tasks), len(tasks))

    def own_returns(self, tasks: Sequence[Task]) -> OwnReturns:
        """A win is worth 1, others nothing, or less than the half that is for progress."""
        steps = max((task.payload["max_steps"] for task in tasks), default=self.max_steps)
        penalty, half = self._options.invalid_action_penalty, 0.5 if self._options.reward == "progress" else 0.0
        return OwnReturns(win_least=1 - penalty * steps, other_most=half, step_least=-half - penalty)

    def _max_steps(self, split: SplitOptions) -> int:
        return split.max_steps or self._options.max_steps

    def _generated(self, split: SplitOptions) -> Iterator[Task]:
        assert split.count is not None and split.first_seed is not None
        scenes, complexity = split.scenes or "train", split.complexity or self._options.complexity
        counts = apportion(shares(_weights(self._options, split)), split.count)
        for seed, kind in enumerate(interleave(counts), start=split.first_seed):
            payload = {
                "kind": kind,
                "source": split.source,
                "complexity": complexity,
                "scenes": scenes,
                "steps": split.steps,
                "max_steps": self._max_steps(split),
            }
            yield Task(id=f"{kind}/{complexity}-{scenes}/{seed}", seed=seed, payload=payload)

    def _published(self, name: str, split: SplitOptions) -> Iterator[Task]:
        """Of each type the first games of an order drawn once and for all, so that more games hold the fewer."""
        known = self._games.published.games(split.source)
        parts = shares(_weights(self._options, split))
        order = {
            kind: iter(Draws(f"alfworld/{split.source}/{kind}").shuffled([g.id for g in known if g.kind == kind]))
            for kind in parts
        }
        there = {kind: sum(entry.kind == kind for entry in known) for kind in parts}
        counts = there if split.count is None else apportion(parts, split.count)
        lacking = [
            f"env.options.splits.{name}.count {split.count} asks for {counts[kind]} games of {kind}, but "
            f"{split.source} has {there[kind]}; lower it, change the mix, or use generated games."
            for kind in parts
            if counts[kind] > there[kind]
        ]
        if lacking:
            raise ConfigError("env.options", lacking)
        for number, kind in enumerate(interleave(counts)):
            game = next(order[kind])
            payload = {"kind": kind, "source": split.source, "game": game, "max_steps": self._max_steps(split)}
            yield Task(id=f"{kind}/{split.source}/{game}", seed=number, payload=payload)


def _default_splits() -> dict[str, SplitOptions]:
    """Generated games: 5000 to train on, and for tests 100 new ones in the same rooms and 100 in other rooms."""
    return {
        "train": SplitOptions(first_seed=30001, count=5000),
        "heldout": SplitOptions(first_seed=1, count=100),
        "unseen": SplitOptions(scenes="unseen", first_seed=1, count=100),
    }


def _weights(options: AlfworldOptions, split: SplitOptions) -> Mapping[str, float]:
    """The mix of a split: its own, else that of all splits, else all types alike."""
    for place in (split, options):
        if place.weights or place.mix:
            return place.weights or MIXES[place.mix or "six"]
    return MIXES["six"]


def _mistakes(options: AlfworldOptions, splits: Mapping[str, SplitOptions]) -> Iterator[str]:
    """Every rule that no single field can state."""
    places: dict[str, AlfworldOptions | SplitOptions] = {"env.options": options}
    places |= {f"env.options.splits.{name}": split for name, split in splits.items()}
    for place, its in places.items():
        yield from weight_mistakes(f"{place}.weights", its.weights) if its.weights else ()
        if its.mix and its.weights:
            yield f"{place}.mix and {place}.weights both say what is mixed; remove one of them."
    for name, split in splits.items():
        yield from _split_mistakes(options, name, split)
    longest = max(split.max_steps or options.max_steps for split in splits.values())
    room = 0.5 if options.reward == "progress" else 1.0  # what a win pays more than any other end, without penalties
    if options.invalid_action_penalty * longest >= room:
        yield (
            f"env.options.invalid_action_penalty {options.invalid_action_penalty:g} times max_steps {longest} must "
            f"stay below {room:g} with reward {options.reward}, or a win could pay less than a loss; "
            f"{0.8 * room / longest:.2g} would do."
        )
    for (name, one), (other_name, other) in itertools.combinations(splits.items(), 2):
        both = f"env.options.splits.{name} and env.options.splits.{other_name}"
        shared = sorted(_seeds(one) & _seeds(other)) if (one.scenes or "train") == (other.scenes or "train") else []
        if shared:
            yield (
                f"{both} share {len(shared)} seeds of games in {one.scenes or 'train'} scenes, from {shared[0]} on; "
                "move first_seed of one of them."
            )
        if one.source == other.source != "generated" and "train" in (name, other_name):
            yield f"{both} both take games of the published {one.source}; test on another source."


def _split_mistakes(options: AlfworldOptions, name: str, split: SplitOptions) -> Iterator[str]:
    place = f"env.options.splits.{name}"
    if split.source == "generated":
        missing = [field for field in ("first_seed", "count") if getattr(split, field) is None]
        if missing:
            yield f"{place} needs {' and '.join(missing)}, because its games are generated; write them."
        if split.steps and not 1 <= split.steps[0] <= split.steps[1]:
            yield f"{place}.steps must be [fewest, most] with 1 <= fewest <= most, got {list(split.steps)}."
        return
    for field in ("scenes", "complexity", "first_seed", "steps"):
        if getattr(split, field) is not None:
            yield f"{place}.{field} means nothing with source {split.source}, whose games are given; remove it."
    weights = _weights(options, split)
    if split.count is None and not weight_mistakes("", weights) and len(set(shares(weights).values())) > 1:
        yield f"{place} needs a count, because its weights are unequal; without one, all games of a type are taken."


def _seeds(split: SplitOptions) -> set[int]:
    """Of a split of generated games; none of a published one, or where it is not said."""
    if split.source != "generated" or split.first_seed is None or split.count is None:
        return set()
    return set(range(split.first_seed, split.first_seed + split.count))


def make(options: Mapping[str, Any]) -> AlfworldEnvironment:
    """The environment behind `env.factory: jaxmtrl.envs.alfworld:make`; for `options` see `AlfworldOptions`."""
    return AlfworldEnvironment(read_options(AlfworldOptions, options))
