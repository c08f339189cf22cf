"""Plays compiled TextWorld games: one clean command in, one clean text out.

Talks to the Z-machine interpreter (jericho) directly, because the status line it prints already holds score and moves;
TextWorld itself (1.4 s of import, 30 ms a game) is used only where admissible commands are asked for.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass
from typing import Any, Protocol

from jaxmtrl.envs.actions import REFUSED, UNTAGGED, tagged_action, with_tags
from jaxmtrl.envs.state_template import Surroundings, state_text
from jaxmtrl.envs.textworld_games import GameInfo, read_info
from jaxmtrl.envs.textworld_surroundings import surroundings
from jaxmtrl.types import StepResult, Task

_MAX_BYTES = 198  # the interpreter cuts longer input
# Whitelist: NUL and backslash hot keys hang the interpreter, '.' and ',' and line breaks chain commands.
_PLAIN = re.compile(r"[A-Za-z0-9' -]+")
# Words that make one command many.
_MANY = frozenset({"then", "and", "all", "each", "every", "everything", "both", "except"})
# First words that speak to the interpreter instead of the game: they write files, rewind, quit or change its output.
_META = frozenset(
    "save restore restart quit q undo again g oops verify version script unscript noscript transcript recording replay "
    "superbrief superverbose verbose brief normal long short notify score full fullscore pronouns nouns places objects "
    "enable disable restrict print help test debug showme purloin abstract actions rules relations scenes tree gonear "
    "goto trace random".split()
)
_STATUS = re.compile(r"\n>\s+-= (?P<room>[^\n]*?) =-\s*(?P<score>\d+)/(?P<moves>\d+)\s*\Z")
_FINAL_SCORE = re.compile(r"You scored (\d+) out of a possible")
_WON, _LOST = "*** The End ***", "*** You lost! ***"


@dataclass(frozen=True, kw_only=True)
class View:
    """What an observation shows."""

    full_objective: bool  # the objective tells every step, or only the last one
    admissible: bool  # list the commands that would change something
    inventory: bool  # say what is carried after every command
    description: bool  # describe the room after every command
    track_state: bool = False  # be able to name the state of the game
    think: bool = False  # the command stands between tags
    template: bool = False  # every observation tells room, items, what is carried, ways out, goal and feedback


@dataclass(frozen=True)
class Screen:
    """One answer of the interpreter, taken apart."""

    text: str
    description: str
    inventory: str
    score: int | None  # None: no status line
    moves: int | None
    won: bool
    lost: bool


def refuses(command: str, goal_hidden: bool = False) -> bool:
    """True for a text that must not reach the interpreter: empty, odd characters, several commands, meta commands.

    Args:
        command: one command without surrounding white space.
        goal_hidden: refuse "goal" too, which prints the whole objective.
    """
    words = command.lower().split()
    if not words or len(command.encode("utf-8", "replace")) > _MAX_BYTES or not _PLAIN.fullmatch(command):
        return True
    meta = words[0] in _META or words[0].startswith("tw-") or (goal_hidden and words[0] == "goal")
    return meta or not _MANY.isdisjoint(words)


def read_screen(raw: str) -> Screen:
    """Takes an answer apart: title banner, status line, tagged extras and end-of-game menu come off the text."""
    status = _STATUS.search(raw)
    body = raw[: status.start()] if status else raw
    final = _FINAL_SCORE.search(body)  # at the end the status line is one command old
    score = final.group(1) if final else status and status.group("score")
    description, body = _tagged("description", body)
    inventory, body = _tagged("inventory", body)
    won, lost = _WON in body, _LOST in body
    for end, said in ((_WON, "You win."), (_LOST, "You lose.")):
        if end in body:
            body = body[: body.index(end)] + said
    return Screen(
        text=_tidy(body),
        description=_tidy(description),
        inventory=_tidy(inventory),
        score=int(score) if score else None,
        moves=int(status.group("moves")) if status else None,
        won=won,
        lost=lost,
    )


def _tagged(tag: str, body: str) -> tuple[str, str]:
    if f"<{tag}>" not in body:
        return "", body
    match = re.search(rf"<{tag}>\n(.*?)</{tag}>", body, re.DOTALL)
    return (match.group(1), body[: match.start()] + body[match.end() :]) if match else ("", body)


def _tidy(text: str) -> str:
    """Room titles lose their frame, runs of white space and empty lines shrink."""
    if not text:
        return ""
    text = re.sub(r"-= ([^\n]*?) =-", r"[\1]", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


class _Interpreter(Protocol):
    def restart(self) -> str: ...
    def send(self, command: str) -> str: ...
    def admissible(self) -> list[str]: ...
    def remaining(self) -> int: ...
    def state(self) -> str: ...
    def surroundings(self) -> Surroundings: ...
    def close(self) -> None: ...


class _Jericho:
    """The interpreter alone; knows neither admissible commands nor the way to win."""

    def __init__(self, path: str):
        import jericho

        if not os.path.isfile(path):
            raise FileNotFoundError(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "not fully supported": it has no built-in walkthrough of our games
            self._frotz = jericho.FrotzEnv(path, 1)  # seed 0 would mean the clock

    def restart(self) -> str:
        return self._frotz.reset()[0]

    def send(self, command: str) -> str:
        return self._frotz.step(command)[0]

    def admissible(self) -> list[str]:
        return []

    def remaining(self) -> int:
        return 0

    def state(self) -> str:
        return ""  # the interpreter's own hash of its objects does not change in games made by TextWorld

    def surroundings(self) -> Surroundings:
        raise NotImplementedError("only TextWorld's tracker knows what is there")

    def close(self) -> None:
        self._frotz.close()


_ONLY_LOOKING = ("look", "examine", "inventory")  # understood, but they change nothing


class _TextWorld:
    """The interpreter under TextWorld's tracker, which knows what could be done next."""

    def __init__(self, path: str, *, plan: bool):
        """
        Args:
            plan: whether it keeps track of the way to win.
        """
        import textworld

        # a new one for every episode: load() on an old one leaks
        self._env: Any = textworld.start(
            path, textworld.EnvInfos(admissible_commands=True, policy_commands=plan, facts=True)
        )
        self._state: Any = None

    def restart(self) -> str:
        self._state = self._env.reset()
        return self._state["feedback"]

    def send(self, command: str) -> str:
        if command.startswith("tw-"):
            return self._env.unwrapped._send(command)  # past the tracker, which would take it for a move
        self._state, _, _ = self._env.step(command)
        return self._state["feedback"]

    def admissible(self) -> list[str]:
        listed = self._state["admissible_commands"]
        return [command for command in listed if command.split()[0] not in _ONLY_LOOKING]

    def remaining(self) -> int:
        """Commands of the way to win that TextWorld knows from here, which may lead back first; 0 if won or lost."""
        return len(self._state["policy_commands"] or ())

    def state(self) -> str:
        return "; ".join(sorted(str(fact) for fact in self._state["facts"]))

    def surroundings(self) -> Surroundings:
        facts = self._state["facts"]
        return surroundings(
            (fact.name, tuple((argument.name, argument.type) for argument in fact.arguments)) for fact in facts
        )

    def close(self) -> None:
        self._env.close()


class TextWorldEnv:
    """Plays one game at a time; implements `envs.base.TextEnv`.

    Rewards are changes of the game's score, scaled so that a won game adds up to 1; or half of that and half changes of
    progress, which adds up to 1 by itself. A game that is lost is done without success. An action that is no command
    (refused here, or not understood by the game) costs a step, and the penalty if there is one.
    """

    def __init__(self, view: View, invalid_action_penalty: float = 0.0, *, pay_progress: bool = False):
        """
        Args:
            invalid_action_penalty: taken from the reward of an action that is no command.
            pay_progress: half of the reward is for changes of 1 - remaining commands / commands of the whole way, kept
                in 0..1. They add up to the progress at the end, so walking in circles earns nothing in the sum; with a
                discount below 1 a step there and back keeps a part of it.
        """
        self._view = view
        self._penalty = invalid_action_penalty
        self._pay_progress = self._plan = pay_progress  # plan: keep track of the way to win
        self._game: _Interpreter | None = None
        self._over = True

    def reset(self, task: Task) -> str:
        self.close()
        self._task, path = task, task.payload["path"]
        self._info: GameInfo = read_info(path)
        self._max_steps: int = task.payload["max_steps"]
        self._steps = self._score = self._moves = 0
        view = self._view
        tracked = view.admissible or self._plan or view.track_state or view.template
        self._game = _TextWorld(path, plan=self._plan) if tracked else _Jericho(path)
        opening = self._game.restart()
        self._whole, self._progress = self._game.remaining() if self._plan else 0, 0.0
        room = read_screen(opening[opening.rfind("\n-= ", 0, opening.rfind("\n>")) :])  # banner and objective end there
        carried = ""
        if self._view.inventory:
            carried = read_screen(self._game.send("tw-extra-infos inventory")).inventory
        if self._view.description:
            self._game.send("tw-extra-infos description")
        self._moves = room.moves or 0
        self._over = False
        self._goal = self._info.objective if self._view.full_objective else self._info.goal
        if self._view.template:
            return self._compose("")
        return self._compose(f"Goal: {self._goal}", room.text, carried)

    def step(self, action: str) -> StepResult:
        if self._over or self._game is None:
            raise RuntimeError("the game is over; call reset")
        self._steps += 1
        text = tagged_action(action) if self._view.think else action
        if text is None:
            return self._result(self._compose(UNTAGGED), None)
        command = text.strip()
        if refuses(command, goal_hidden=not self._view.full_objective):
            return self._result(self._compose(REFUSED), None)
        screen = read_screen(self._game.send(command))
        news = "" if screen.description in screen.text else screen.description  # walking describes the room anyway
        return self._result(self._compose(screen.text, news, screen.inventory), screen)

    def admissible(self) -> list[str]:
        """The commands that would change something now, as `View.admissible` lists them; none if it is off."""
        if self._game is None or self._over or not self._view.admissible:
            return []
        listed = self._game.admissible()
        return [with_tags(command) for command in listed] if self._view.think else listed

    def state(self) -> str:
        """All that is true in the game now: where everything is, what is open or locked; "" where it is not tracked."""
        return self._game.state() if self._game is not None else ""

    def progress(self) -> float:
        """1 - remaining commands / commands of the whole way, in 0..1; 0 where no way is left.

        The first time of all it must be asked right after a reset, which is then done again under the tracker that
        knows the way; later resets begin under it. Raises RuntimeError before a reset, or if first asked too late.
        """
        if self._game is None or (self._steps and not self._plan):
            raise RuntimeError("progress must be asked for right after a reset")
        if not self._plan:
            self._plan = True
            self.reset(self._task)
        return self._ahead()

    def close(self) -> None:
        self._over = True
        if self._game is not None:
            self._game.close()
            self._game = None

    def _compose(self, *parts: str) -> str:
        """The parts that say something, or the state with them as feedback; and the admissible commands if shown."""
        assert self._game is not None
        listed = self._game.admissible() if self._view.admissible else []
        if self._view.template:
            parts = (state_text(self._game.surroundings(), goal=self._goal, feedback="\n".join(parts)),)
        return "\n".join([*filter(None, parts), *(["You can: " + "; ".join(listed) + "."] if listed else [])])

    def _progressed(self, won: bool) -> float:
        """How much further on the way to win than before, in -1..1."""
        before = self._progress
        self._progress = 1.0 if won else self._ahead()
        return self._progress - before

    def _ahead(self) -> float:
        assert self._game is not None
        left = self._game.remaining()
        return max(0.0, 1 - left / max(self._whole, 1)) if left else 0.0  # no way left is no progress

    def _result(self, observation: str, screen: Screen | None) -> StepResult:
        """The outcome of a command; `screen` is None where the game never saw it."""
        score, moved, won, lost = self._score, False, False, False
        if screen is not None:
            won, lost = screen.won, screen.lost
            score = self._score if screen.score is None else screen.score
            moved = won or lost or (screen.moves or 0) > self._moves
            self._moves = self._moves if screen.moves is None else screen.moves
        gained, self._score = (score - self._score) / max(self._info.max_score, 1), score
        reward = (gained + self._progressed(won)) / 2 if self._pay_progress else gained
        truncated = self._steps >= self._max_steps and not (won or lost)
        self._over = won or lost or truncated
        return StepResult(
            observation=observation,
            reward=reward if moved else reward - self._penalty,
            done=won or lost,
            truncated=truncated,
            success=won,
            metrics={"invalid_action": float(not moved)},
        )
