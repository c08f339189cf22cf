"""Plays ALFWorld's households: a policy's text in, one clean text out, rewards for winning and for getting nearer."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

from jaxmtrl.envs.actions import REFUSED, UNTAGGED, one_command, tagged_action, with_tags
from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import AlfworldData
from jaxmtrl.envs.alfworld.generator import complexity, generate
from jaxmtrl.envs.alfworld.naming import NOTHING_HAPPENS, Wording
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.problem import read_problem
from jaxmtrl.envs.state_template import Surroundings, state_text
from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.types import StepResult, Task

_ONLY_LOOKING = ("look", "inventory", "help", "examine")  # understood, but they change nothing


class Games:
    """Opens the game of a task: makes it by its seed, or reads it from the published ones."""

    def __init__(self, data: Path | None, cache_dir: Path, wording: Wording | None):
        """
        Args:
            data: folder of the published games; None: what ALFWORLD_DATA names. Looked for when first needed.
            cache_dir: for the lists of published games.
            wording: of all games; None: each game's own.
        """
        self._data, self._cache, self._wording = data, cache_dir, wording

    @functools.cached_property
    def published(self) -> AlfworldData:
        """The published games. Raises EnvironmentFailure where there are none; says how to get them."""
        return AlfworldData(self._data, self._cache)

    def open(self, task: Task) -> World:
        """The game of a task at its start; takes some milliseconds.

        Raises:
            EnvironmentFailure: it is not there, it is damaged, or no such game can be made.
        """
        payload = task.payload
        if payload["source"] == "generated":
            spec = complexity(
                payload["complexity"], kinds=(payload["kind"],), scenes=payload["scenes"], steps=payload["steps"]
            )
            game = generate(spec, task.seed)
        else:
            game = self.published.load(payload["source"], payload["game"])
        try:
            return World(read_problem(game.problem), game.task, self._wording or game.wording)
        except EnvironmentFailure as err:
            raise EnvironmentFailure(f"The game {game.id} cannot be played: {err}") from err


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is shown, what is understood and what is paid."""

    show_admissible: bool  # list the commands that would change something
    think: bool  # the command stands between tags
    pay_progress: bool  # half of the reward is for getting nearer
    invalid_action_penalty: float  # taken from the reward of an action at which nothing happens
    repeat_goal: bool = False  # the goal stands at the end of every observation, not at the beginning of the first
    template: bool = False  # every observation tells place, items, what is carried, ways, goal and feedback


class AlfworldEnv:
    """Plays one game at a time; implements `envs.base.TextEnv`.

    The reward is 1 for winning; or half of that and half changes of progress, 1 - commands still needed / commands
    needed at the start, kept in 0..1 and 0 where winning has become impossible. Progress adds up to what it is at the
    end, so that walking in circles earns nothing in the sum. A game cannot be lost.
    """

    def __init__(self, games: Games, rules: Rules):
        self._games, self._rules = games, rules
        self._world: World | None = None
        self._over = True

    def reset(self, task: Task) -> str:
        world = self._world = self._games.open(task)
        self._max_steps: int = task.payload["max_steps"]
        self._steps, self._over, self._progress = 0, False, 0.0
        self._whole = len(plan(world) or ()) if self._rules.pay_progress else None
        _, around, _ = world.reset().split("\n\n")  # a banner before it, the task behind it
        self._goal = f"Goal: {world.scene.task}."
        if self._rules.template:
            return self._compose()
        return self._compose(around) if self._rules.repeat_goal else self._compose(self._goal, around)

    def step(self, action: str) -> StepResult:
        world = self._world
        if self._over or world is None:
            raise RuntimeError("the game is over; call reset")
        self._steps += 1
        text = tagged_action(action) if self._rules.think else action
        command = None if text is None else one_command(text)
        if command is None:
            return self._result(UNTAGGED if text is None else REFUSED, valid=False)
        before = world.key()
        answer, _ = world.step(" ".join(command.lower().split()))  # every name is in lower case
        return self._result(answer.strip(), valid=answer != NOTHING_HAPPENS, moved=world.key() != before)

    def admissible(self) -> list[str]:
        """The actions that would change something now; none after the end."""
        commands = self._commands()
        return [with_tags(command) for command in commands] if self._rules.think else commands

    def state(self) -> str:
        """Where the agent is, what it holds, and a digest of all there is; "" before the first game."""
        world = self._world
        if world is None:
            return ""
        scene, held = world.scene, world.held
        fixed = (world.at, held, world.contents, world.opened, world.states)
        whole = repr((*fixed, sorted(world.places), sorted(world.taken_out)))
        digest = hashlib.blake2b(whole.encode("ascii"), digest_size=12).hexdigest()
        here = ", ".join(scene.receptacle_names[receptacle] for receptacle in scene.receptacles_at[world.at])
        return f"at {here or 'start'}, with {scene.object_names[held] if held >= 0 else 'nothing'}, {digest}"

    def progress(self) -> float:
        """1 - commands still needed / commands needed at the start, in 0..1; 0 where winning is impossible.

        First asked right after a reset. Raises RuntimeError before one, or if first asked after a step.
        """
        world = self._world
        if world is None or (self._steps and self._whole is None):
            raise RuntimeError("progress must be asked for right after a reset")
        if self._whole is None:
            self._whole = len(plan(world) or ())
        return self._ahead(world)

    def close(self) -> None:
        self._over, self._world = True, None

    def _commands(self) -> list[str]:
        if self._over or self._world is None:
            return []
        return [command for command in self._world.admissible() if command.split()[0] not in _ONLY_LOOKING]

    def _compose(self, *parts: str) -> str:
        """The parts, or the state with them as feedback; and the list of admissible commands where it is shown."""
        assert self._world is not None
        listed = self._commands() if self._rules.show_admissible else []
        if self._rules.template:
            goal = f"{self._world.scene.task}."
            parts = (state_text(_surroundings(self._world), goal=goal, feedback="\n".join(parts)),)
        elif self._rules.repeat_goal:
            parts = (*parts, self._goal)
        return "\n".join([*parts, *(["You can: " + "; ".join(listed) + "."] if listed else [])])

    def _progressed(self) -> float:
        """How much nearer than before, in -1..1."""
        assert self._world is not None
        before, self._progress = self._progress, self._ahead(self._world)
        return self._progress - before

    def _ahead(self, world: World) -> float:
        left = plan(world)
        if left is None:
            return 0.0
        return max(0.0, 1 - len(left) / self._whole) if self._whole else 1.0

    def _result(self, answer: str, *, valid: bool, moved: bool = False) -> StepResult:
        """The outcome of an action; `moved` where it changed the state."""
        assert self._world is not None
        won = self._world.won
        truncated = self._steps >= self._max_steps and not won
        observation = answer if won and not self._rules.template else self._compose(answer)
        self._over = won or truncated
        reward = float(won)
        if self._rules.pay_progress:
            reward = (reward + (self._progressed() if moved else 0.0)) / 2
        return StepResult(
            observation=observation,
            reward=reward if valid else reward - self._rules.invalid_action_penalty,
            done=won,
            truncated=truncated,
            success=won,
            metrics={"invalid_action": float(not valid)},
        )


def _surroundings(world: World) -> Surroundings:
    """What can be seen from where the agent stands; a closed receptacle hides what is in it."""
    scene = world.scene
    here = scene.receptacles_at[world.at]
    items = []
    for receptacle in here:
        name = scene.receptacle_names[receptacle]
        if scene.problem.openable[receptacle]:
            items.append(f"{name} ({'open' if world.opened[receptacle] else 'closed'})")
        if world.accessible(receptacle):
            items += [f"{scene.object_names[thing]} ({name})" for thing in world.contents[receptacle]]
    ways = [command.removeprefix("go to ") for command in scene.elsewhere[world.at]]
    return Surroundings(
        room=", ".join(scene.receptacle_names[receptacle] for receptacle in here) or "middle of the room",
        items=items,
        inventory=[scene.object_names[world.held]] if world.held >= 0 else [],
        exits=ways,
    )
