"""Times our ALFWorld engine against the official one, in processor time, and prints one JSON line.

    bash scripts/setup_alfworld_official.sh
    python scripts/bench_alfworld.py --official .venv-alfworld/bin/python --data FOLDER [--games 12] [--steps 30]

Both play the same games (task types and splits taking turns) with the same commands: errands, the expert's way and
chance. The sides take turns, game by game, and change places; each runs in a process of its own, and only what it
computes counts, not the talk between them. The official engine runs as it is published.

    reset_vs_official   a game from the text of its PDDL problem to the first observation and the admissible commands
    step_vs_official    a command answered, and the admissible commands after it

A ratio of 2 means that ours takes half the time; both are of sums over all games. With --data a file of JSON lines
serves too (see scripts/check_alfworld.py).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "sides"))

from alfworld_peer import OfficialPeer
from alfworld_player import Player
from check_alfworld import choose_games

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import GameRecord
from jaxmtrl.envs.alfworld.problem import read_problem
from jaxmtrl.errors import JaxmtrlError


class Side(Protocol):
    """One engine; each call gives the seconds of processor time that it took."""

    def reset(self, record: GameRecord) -> float: ...
    def step(self, command: str) -> float: ...


class Ours:
    """The engine as an environment uses it."""

    def __init__(self) -> None:
        self._world: World | None = None

    def reset(self, record: GameRecord) -> float:
        began = time.process_time()
        self._world = World(read_problem(record.problem), record.task)
        self._world.reset()
        self._world.admissible()
        return time.process_time() - began

    def step(self, command: str) -> float:
        assert self._world is not None
        began = time.process_time()
        self._world.step(command)
        self._world.admissible()
        return time.process_time() - began


class Official:
    """The published engine, which lists the admissible commands with every answer."""

    def __init__(self, python: str):
        self._peer = OfficialPeer(python, quick=False)

    def reset(self, record: GameRecord) -> float:
        return self._peer.reset(record.problem, record.task, "modern")["seconds"]

    def step(self, command: str) -> float:
        return self._peer.step(command)["seconds"]

    def close(self) -> None:
        self._peer.close()


def commands_for(record: GameRecord, count: int) -> list[str]:
    """What is played in a game, chosen beforehand."""
    world = World(read_problem(record.problem), record.task)
    player = Player(world, 1)
    commands = []
    for _ in range(count):
        commands.append(player.command())
        world.step(commands[-1])
    return commands


def play(
    sides: dict[str, Side], record: GameRecord, commands: list[str], first: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds of every side's reset and of each of its steps; side number `first` begins."""
    names = list(sides)
    times: dict[str, dict[str, list[float]]] = {}
    for name in names[first:] + names[:first]:
        reset = sides[name].reset(record)
        times[name] = {"reset": [reset], "step": [sides[name].step(command) for command in commands]}
    return times


def figures(times: dict[str, list[float]]) -> dict[str, float]:
    """Milliseconds of one side."""
    return {
        f"{what}_ms{suffix}": round(1e3 * measure(values), 4)
        for what, values in times.items()
        for suffix, measure in (("", statistics.fmean), ("_median", statistics.median), ("_most", max))
    }


def benchmark(given: argparse.Namespace) -> dict[str, Any]:
    official = Official(given.official)
    sides: dict[str, Side] = {"ours": Ours(), "official": official}
    times = {name: {"reset": [], "step": []} for name in sides}
    games = choose_games(given.data, given.splits, given.games + 1, given.cache)
    play(sides, games[-1](), ["look"], 0)  # imports and first calls do not count
    for number, game in enumerate(games[: given.games]):
        record = game()
        of_game = play(sides, record, commands_for(record, given.steps), number % 2)
        for name, spent in of_game.items():
            for what, values in spent.items():
                times[name][what] += values
        resets = {name: round(1e3 * spent["reset"][0], 2) for name, spent in of_game.items()}
        print(f"{record.id}: reset ms {resets}", file=sys.stderr, flush=True)
    official.close()
    sums = {name: {what: sum(values) for what, values in spent.items()} for name, spent in times.items()}
    return {
        "bench": "alfworld",
        "n": given.games,
        "steps": given.games * given.steps,
        "ours": figures(times["ours"]),
        "peers": {"official": figures(times["official"])},
        "ratios": {
            f"{what}_vs_official": round(sums["official"][what] / sums["ours"][what], 1) for what in ("reset", "step")
        },
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", required=True, help="interpreter that has the official engine")
    parser.add_argument("--data", required=True, help="folder of the published games, or a file of JSON lines")
    parser.add_argument("--splits", nargs="*", default=(), help="all that are there, if not given")
    parser.add_argument("--games", type=_positive, default=12)
    parser.add_argument("--steps", type=_positive, default=30, help="of each game")
    parser.add_argument("--cache", default=".cache/alfworld", help="folder of the index of the games")
    try:
        line = benchmark(parser.parse_args())
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
