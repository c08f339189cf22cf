"""A four-command adventure in pure Python: the example to copy when writing an environment.

Take the key that fits the door, open the door, take the weapon that the monster fears, hit the monster. Which key,
which weapon and which monster change from task to task; the first observation tells. Wrong keys and wrong weapons
lie about too, and hitting the monster with the wrong thing in hand loses the game. Every game is a number below
2160; the splits take different numbers, so no held-out game was ever trained on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from jaxmtrl.envs.base import OwnReturns, Split
from jaxmtrl.envs.options import read_options
from jaxmtrl.errors import ConfigError
from jaxmtrl.types import StepResult, Task

_COLOURS = ("red", "blue", "gold", "pink", "grey", "green")
_WEAPONS = ("axe", "bow", "saw", "rod", "dart", "club")
_MONSTERS = ("ogre", "wolf", "crab", "imp", "bear", "ghost")
_KEYS = tuple(itertools.permutations(_COLOURS, 2))  # of a door: the first fits, the second does not
GAMES = len(_KEYS) * len(_WEAPONS) * len(_MONSTERS) * 2  # 30 * 6 * 6 * 2 orders of listing = 2160
_STRIDE = 1051  # coprime to GAMES: neighbouring seeds play unlike games, and no two seeds below GAMES the same


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ToyOptions:
    max_steps: Annotated[int, Field(ge=1, description="steps of a one-door game before it is cut")] = 8
    train_tasks: Annotated[int, Field(ge=1, description="games of the train split")] = 512
    heldout_tasks: Annotated[int, Field(ge=1, description="games of the held-out splits")] = 64
    reward: Annotated[
        Literal["sparse", "dense"], Field(description="sparse: 1 for winning; dense: an equal share for each new stage")
    ] = "sparse"


@plain_dataclass(frozen=True)
class _Game:
    """What one task number stands for."""

    keys: tuple[tuple[str, ...], ...]  # [door] the colours of the keys that lie before it, in order of listing
    doors: tuple[str, ...]  # [door] its colour
    weapons: tuple[str, ...]  # in order of listing
    feared: str  # the weapon that wins
    monster: str

    def walkthrough(self) -> list[str]:
        """The shortest win: two commands a door, two for the monster."""
        opening = [command for colour in self.doors for command in (f"take {colour} key", "open door")]
        return [*opening, f"take {self.feared}", f"hit {self.monster}"]


def _game(seed: int, doors: int) -> _Game:
    """The game of a seed: mixed-radix digits of (seed * stride mod GAMES)."""
    number = seed * _STRIDE % GAMES
    rest, order = divmod(number, 2)
    rest, monster = divmod(rest, len(_MONSTERS))
    keys, feared = divmod(rest, len(_WEAPONS))
    step = -1 if order else 1  # listing the right one always first would give it away
    pairs = [_KEYS[(keys + 7 * door) % len(_KEYS)] for door in range(doors)]
    decoy = (feared + 1 + keys % (len(_WEAPONS) - 1)) % len(_WEAPONS)
    return _Game(
        keys=tuple(pair[::step] for pair in pairs),
        doors=tuple(pair[0] for pair in pairs),
        weapons=(_WEAPONS[feared], _WEAPONS[decoy])[:: step if keys % 2 else -step],
        feared=_WEAPONS[feared],
        monster=_MONSTERS[monster],
    )


class ToyEnv:
    """Plays one game at a time; implements `envs.base.TextEnv`."""

    def __init__(self, options: ToyOptions):
        self._options = options
        self._over = True

    def reset(self, task: Task) -> str:
        self._game = _game(task.seed, task.payload["doors"])
        self._max_steps = task.payload["max_steps"]
        self._room = 0  # doors passed
        self._key = self._weapon = ""  # in hand
        self._steps = self._stage = 0
        self._over = False
        game = self._game
        return f"Goal: hit the {game.monster}. It fears the {game.feared}. {self._look()}"

    def step(self, action: str) -> StepResult:
        if self._over:
            raise RuntimeError("the game is over; call reset")
        self._steps += 1
        observation, valid = self._obey(" ".join(action.lower().split()))
        won, lost = observation.startswith("You win"), observation.startswith("You lose")
        truncated = self._steps >= self._max_steps and not (won or lost)
        self._over = won or lost or truncated
        return StepResult(
            observation=observation,
            reward=self._reward(won),
            done=won or lost,
            truncated=truncated,
            success=won,
            metrics={"invalid_action": float(not valid)},
        )

    def admissible(self) -> list[str]:
        """What would be obeyed now, hitting the monster with the wrong thing included."""
        game = self._game
        if self._over:
            return []
        if self._room < len(game.keys):
            return [*(f"take {colour} key" for colour in game.keys[self._room]), "open door", "look"]
        return [*(f"take {weapon}" for weapon in game.weapons), f"hit {game.monster}", "look"]

    def state(self) -> str:
        """Where it stands, what it holds, and what dense rewards have been paid."""
        return f"room {self._room}, key {self._key}, weapon {self._weapon}, stage {self._stage}"

    def progress(self) -> float:
        """Share of the stages that it is in by now; one that is lost again no longer counts."""
        return self._reached() / (2 * len(self._game.doors) + 2)

    def close(self) -> None:
        self._over = True

    def _obey(self, command: str) -> tuple[str, bool]:
        """Does a command. Returns what is seen, and whether it was a command that means something here."""
        game, behind_doors = self._game, self._room == len(self._game.doors)
        if command == "look":
            return self._look(), True
        if not behind_doors:
            for colour in game.keys[self._room]:
                if command == f"take {colour} key":
                    self._key = colour
                    return f"You hold the {colour} key.", True
            if command == "open door":
                if self._key != game.doors[self._room]:
                    return "It is locked.", True
                self._room, self._key = self._room + 1, ""
                return "It opens. " + self._look(), True
        else:
            for weapon in game.weapons:
                if command == f"take {weapon}":
                    self._weapon = weapon
                    return f"You hold the {weapon}.", True
            if command == f"hit {game.monster}":
                if self._weapon == game.feared:
                    return f"You win: the {game.monster} is beaten.", True
                return f"You lose: the {game.monster} beats you.", True
        return "You cannot do that.", False

    def _look(self) -> str:
        game = self._game
        if self._room < len(game.doors):
            keys = ", ".join(f"{colour} key" for colour in game.keys[self._room])
            return f"You see: {game.doors[self._room]} door, {keys}."
        return f"You see: {game.monster}, {', '.join(game.weapons)}."

    def _reward(self, won: bool) -> float:
        """1 in all for a win. Dense pays a stage once, when it is first reached, so walking in circles pays nothing."""
        if self._options.reward == "sparse":
            return float(won)
        stage = self._reached() + won
        gained, self._stage = max(stage - self._stage, 0), max(stage, self._stage)
        return gained / (2 * len(self._game.doors) + 2)

    def _reached(self) -> int:
        """The stage it is in: two for each door passed, one for what is in hand and fits."""
        game = self._game
        fits = self._key == game.doors[self._room] if self._room < len(game.doors) else self._weapon == game.feared
        return 2 * self._room + fits


class ToyEnvironment:
    """Its splits, experts and players; implements `envs.base.Environment`."""

    reports = ("invalid_action",)

    def __init__(self, options: ToyOptions):
        self._options = options
        if options.train_tasks + options.heldout_tasks > GAMES:
            raise ConfigError(
                "env.options",
                [
                    f"env.options.train_tasks + env.options.heldout_tasks must be at most {GAMES} (there are no more "
                    f"games), got {options.train_tasks} + {options.heldout_tasks}; lower one of them."
                ],
            )

    @property
    def max_steps(self) -> int:
        return self._options.max_steps * 2  # of the longest game, "harder"

    def split_names(self) -> Sequence[str]:
        return ("train", "harder_train", "heldout", "harder")

    def split(self, name: str) -> Split:
        """train and heldout are other games of one kind; those of harder have a second door (6 commands, not 4)."""
        options, last = self._options, GAMES - self._options.heldout_tasks
        if name == "train":
            return Split(name=name, tasks=[self._task(seed, doors=1) for seed in range(options.train_tasks)])
        if name == "harder_train":  # for a curriculum that goes on to two doors
            return Split(name=name, tasks=[self._task(seed, doors=2) for seed in range(options.train_tasks)])
        if name == "heldout":
            return Split(name=name, tasks=[self._task(seed, doors=1) for seed in range(last, GAMES)])
        if name == "harder":
            return Split(name=name, tasks=[self._task(seed, doors=2) for seed in range(last, GAMES)])
        raise ConfigError("env", [f"the toy has no split {name!r}; it has: {', '.join(self.split_names())}."])

    def make_env(self) -> ToyEnv:
        return ToyEnv(self._options)

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        return _game(task.seed, task.payload["doors"]).walkthrough()

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        report(len(tasks), len(tasks))  # nothing to make

    def own_returns(self, tasks: Sequence[Task]) -> OwnReturns:
        """1 for a win; dense pays others for every stage but the last."""
        stages = max((2 * task.payload["doors"] + 2 for task in tasks), default=2)
        most = 0.0 if self._options.reward == "sparse" else 1 - 1 / stages
        return OwnReturns(win_least=1.0, other_most=most, step_least=0.0)

    def _task(self, seed: int, doors: int) -> Task:
        steps = self._options.max_steps * doors
        return Task(id=f"doors{doors}/{seed}", seed=seed, payload={"doors": doors, "max_steps": steps})


def make(options: Mapping[str, Any]) -> ToyEnvironment:
    """The environment behind `env.factory: jaxmtrl.envs.toy:make`; for `options` see `ToyOptions`."""
    return ToyEnvironment(read_options(ToyOptions, options))
