"""TextWorld as an environment: levels, splits by seed, and the games behind them.

Levels are named by rooms, objects and quest length ("w2-o3-q4"). The default splits are those of the published study:
training games, held-out games of the same level, a harder level, and levels with more rooms, more objects or both.
Building and playing games needs the optional packages `textworld` and `jericho`; listing tasks and experts does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from jaxmtrl.envs.actions import THINK, with_tags
from jaxmtrl.envs.base import OwnReturns, Split
from jaxmtrl.envs.options import read_options
from jaxmtrl.envs.state_template import OBSERVATION
from jaxmtrl.envs.textworld_games import GameSpec, build_games, is_made, level_sizes, read_info
from jaxmtrl.envs.textworld_player import TextWorldEnv, View
from jaxmtrl.errors import ConfigError
from jaxmtrl.types import Task

_SIMPLE_STEPS = 24  # twice the longest way through the fixed house
_STEPS_PER_COMMAND = 3  # of a quest: 12 steps for 4 commands, 24 for 8, as in the study


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SplitOptions:
    level: Annotated[str | None, Field(description="as env.options.level, which it defaults to")] = None
    first_seed: Annotated[int, Field(ge=0, lt=2**31, description="seed of the first game; the others follow")]
    count: Annotated[int, Field(ge=1, le=1_000_000, description="games")]
    exclude: Annotated[tuple[int, ...], Field(description="seeds left out, because their game is in train too")] = ()
    max_steps: Annotated[int | None, Field(ge=1, description="steps before a game is cut; none: by the level")] = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class TextWorldOptions:
    games: Annotated[
        Literal["custom", "simple"],
        Field(description="custom: random houses of a level; simple: a fixed house, find and cook a food, can be lost"),
    ] = "custom"
    level: Annotated[str, Field(description="rooms, objects and quest length of custom games, w2-o3-q4")] = "w2-o3-q4"
    reward_density: Annotated[
        Literal["sparse", "balanced", "dense"], Field(description="how many sub-goals of simple games pay")
    ] = "sparse"
    theme: Annotated[
        Literal["house", "basic", "plain"],
        Field(description="names of things: house rich words, basic box77 and Z-key, plain as basic with one digit"),
    ] = "house"
    cache_dir: Annotated[str, Field(min_length=1, description="folder of compiled games")] = ".cache/textworld"
    max_steps: Annotated[int | None, Field(ge=1, description="steps before a game is cut; none: by the level")] = None
    splits: Annotated[dict[str, SplitOptions], Field(description="seed ranges by name; empty: the study's")] = Field(
        default_factory=dict
    )
    observation: Annotated[Literal["text", "state"], Field(description=OBSERVATION)] = "text"
    show_objective: Annotated[
        Literal["full", "hidden"], Field(description="full: every step to win; hidden: only the last one")
    ] = "full"
    show_admissible: Annotated[bool, Field(description="list the commands that would change something (slower)")] = (
        False
    )
    show_inventory: Annotated[bool, Field(description="say what is carried, in every observation")] = False
    show_description: Annotated[bool, Field(description="describe the room in every observation")] = False
    track_state: Annotated[
        bool,
        Field(description="follow the game's state, by which algorithm gigpo knows turns that began alike (slower)"),
    ] = False
    think: Annotated[bool, Field(description=THINK)] = False
    reward: Annotated[
        Literal["score", "progress"],
        Field(description="score: the game's own; progress: half of it, and half for the steps on the way to win"),
    ] = "score"
    invalid_action_penalty: Annotated[
        float, Field(ge=0, lt=1, description="taken from the reward of an action that the game does not understand")
    ] = 0.0
    build_workers: Annotated[int, Field(ge=1, description="processes that build games")] = 2


class TextWorldEnvironment:
    """Splits, experts, players and the cache of games; implements `envs.base.Environment`."""

    reports = ("invalid_action",)

    def __init__(self, options: TextWorldOptions):
        self._options = options
        self._splits = dict(options.splits) or _study_splits(options)
        mistakes = _mistakes(options, self._splits)
        if mistakes:
            raise ConfigError("env.options", mistakes)
        self._cache = Path(options.cache_dir).absolute()  # workers may run in another folder

    @property
    def max_steps(self) -> int:
        """The largest of all splits; a task's own limit is in its payload."""
        return max(_max_steps(self._options, split) for split in self._splits.values())

    def split_names(self) -> Sequence[str]:
        return tuple(self._splits)

    def split(self, name: str) -> Split:
        if name not in self._splits:
            raise ConfigError("env", [f"TextWorld has no split {name!r}; it has: {', '.join(self._splits)}."])
        split = self._splits[name]
        return Split(name=name, tasks=[self._task(split, seed) for seed in _seeds(split)])

    def make_env(self) -> TextWorldEnv:
        options = self._options
        return TextWorldEnv(
            View(
                full_objective=options.show_objective == "full",
                admissible=options.show_admissible,
                inventory=options.show_inventory,
                description=options.show_description,
                track_state=options.track_state,
                think=options.think,
                template=options.observation == "state",
            ),
            options.invalid_action_penalty,
            pay_progress=options.reward == "progress",
        )

    def warm_up(self) -> None:
        """Opens a game that has been made, if there is one: the first takes a worker 1.4 s where state is tracked."""
        for task in itertools.chain.from_iterable(self.split(name).tasks for name in self._splits):
            if is_made(task.payload["path"]):
                env = self.make_env()
                env.reset(task)
                env.close()
                return

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        """The walkthrough that made the game. Raises EnvironmentFailure if the game has not been made."""
        commands = read_info(task.payload["path"]).walkthrough
        return [with_tags(command) for command in commands] if self._options.think else commands

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        """Builds the games that are missing.

        Raises:
            EnvironmentFailure: some could not be built.
            ConfigError: a game of another split is also a training game, seen when both have been made.
        """
        specs = [
            GameSpec(level=task.payload["level"], theme=self._options.theme, seed=task.seed, path=task.payload["path"])
            for task in tasks
        ]
        build_games(specs, self._options.build_workers, report)
        self._refuse_known_games({spec.level for spec in specs})

    def own_returns(self, tasks: Sequence[Task]) -> OwnReturns:
        """A win is worth 1; others have all points but one at most, and less than a whole way of progress.

        Raises:
            EnvironmentFailure: the game of a task has not been made.
        """
        points = max((read_info(task.payload["path"]).max_score for task in tasks), default=1)
        steps = max((task.payload["max_steps"] for task in tasks), default=self.max_steps)
        most, penalty = 1 - 1 / max(points, 1), self._options.invalid_action_penalty
        if self._options.reward == "progress":
            return OwnReturns(win_least=1 - penalty * steps, other_most=(most + 1) / 2, step_least=-0.5 - penalty)
        return OwnReturns(win_least=1 - penalty * steps, other_most=most, step_least=-penalty)

    def _refuse_known_games(self, levels: set[str]) -> None:
        """Different seeds can make the same game, which would then be trained on and held out.

        Trained on are the split "train" and those whose names begin with it, such as "train-harder" of a curriculum.
        """
        made = {name: self._made(split) for name, split in self._splits.items() if self._level(split) in levels}
        known = {
            read_info(path).fingerprint: (name, seed)
            for name, games in made.items()
            if name.startswith("train")
            for seed, path in games.items()
        }
        if not known:
            return
        same = [
            ((name, seed), known.get(read_info(path).fingerprint))
            for name, games in made.items()
            if not name.startswith("train")
            for seed, path in games.items()
        ]
        mistakes = [
            f"env.options.splits.{name}: seed {seed} makes the same game as seed {twin[1]} of {twin[0]}; add it to "
            f"env.options.splits.{name}.exclude."
            for (name, seed), twin in same
            if twin is not None
        ]
        if mistakes:
            raise ConfigError("env.options", mistakes)

    def _made(self, split: SplitOptions) -> dict[int, str]:
        paths = {seed: self._path(split, seed) for seed in _seeds(split)}
        return {seed: path for seed, path in paths.items() if is_made(path)}

    def _level(self, split: SplitOptions) -> str:
        return _level(self._options, split)

    def _path(self, split: SplitOptions, seed: int) -> str:
        return str(self._cache / f"{self._level(split)}-{self._options.theme}" / f"{seed}.z8")

    def _task(self, split: SplitOptions, seed: int) -> Task:
        level = self._level(split)
        payload = {"path": self._path(split, seed), "level": level, "max_steps": _max_steps(self._options, split)}
        return Task(id=f"{level}/{seed}", seed=seed, payload=payload)


def _seeds(split: SplitOptions) -> list[int]:
    return [seed for seed in range(split.first_seed, split.first_seed + split.count) if seed not in split.exclude]


def _max_steps(options: TextWorldOptions, split: SplitOptions) -> int:
    """Steps before a game of the split is cut."""
    sizes = level_sizes(_level(options, split))
    return split.max_steps or options.max_steps or (_STEPS_PER_COMMAND * sizes[2] if sizes else _SIMPLE_STEPS)


def _level(options: TextWorldOptions, split: SplitOptions) -> str:
    if options.games == "simple":
        return f"simple-{options.reward_density}"
    return split.level or options.level


def _study_splits(options: TextWorldOptions) -> dict[str, SplitOptions]:
    """The seeds of the study: 5000 training games from 30001, and games 1 to 100 of every level for tests."""
    splits = {
        "train": SplitOptions(first_seed=30001, count=5000),
        "heldout": SplitOptions(first_seed=1, count=100),
    }
    if options.games == "custom":
        named = {"harder": "w4-o6-q8", **{level: level for level in ("w8-o3-q4", "w2-o12-q4", "w8-o12-q4")}}
        splits |= {
            name: SplitOptions(level=level, first_seed=1, count=100)
            for name, level in named.items()
            if level != options.level  # heldout is that one
        }
    return splits


def _mistakes(options: TextWorldOptions, splits: Mapping[str, SplitOptions]) -> list[str]:
    """Every rule that two fields share, and the form of level names."""
    mistakes = []
    levels = {"env.options.level": options.level}
    levels |= {f"env.options.splits.{name}.level": split.level for name, split in splits.items() if split.level}
    for place, level in levels.items():
        if level_sizes(level) is None:
            mistakes.append(
                f'{place} must look like "w2-o3-q4" (rooms, objects, quest length, each 1 or more), got {level!r}.'
            )
    for name, split in splits.items():
        if options.games == "simple" and split.level:
            mistakes.append(f"env.options.splits.{name}.level means nothing with env.options.games: simple; remove it.")
        if not _seeds(split):
            mistakes.append(f"env.options.splits.{name}.exclude leaves no game of its {split.count}.")
    longest = max((_max_steps(options, split) for split in splits.values()), default=0)
    room = 0.5 if options.reward == "progress" else 1.0  # what a win pays more than any other end, without penalties
    if options.invalid_action_penalty * longest >= room:
        mistakes.append(
            f"env.options.invalid_action_penalty {options.invalid_action_penalty:g} times max_steps {longest} must "
            f"stay below {room:g} with reward {options.reward}, or a win could pay less than a loss; "
            f"{0.8 * room / longest:.2g} would do."
        )
    if options.games == "simple" and options.theme != "house":
        mistakes.append(
            f"env.options.theme {options.theme} means nothing with env.options.games: simple, whose names are fixed; "
            "remove it."
        )
    for field in ("show_inventory", "show_description"):
        if options.observation == "state" and getattr(options, field):
            mistakes.append(
                f"env.options.{field} means nothing with env.options.observation: state, which tells it anyway; "
                "remove it."
            )
    for (name, one), (other_name, other) in itertools.combinations(splits.items(), 2):
        shared = set(_seeds(one)) & set(_seeds(other)) if _level(options, one) == _level(options, other) else set()
        if shared:
            mistakes.append(
                f"env.options.splits.{name} and env.options.splits.{other_name} share {len(shared)} seeds of "
                f"{_level(options, one)}, from {min(shared)} on; move first_seed of one of them."
            )
    return mistakes


def make(options: Mapping[str, Any]) -> TextWorldEnvironment:
    """The environment behind `env.factory: jaxmtrl.envs.textworld:make`; for `options` see `TextWorldOptions`."""
    return TextWorldEnvironment(read_options(TextWorldOptions, options))
