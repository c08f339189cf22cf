"""Times our pool of environment processes against TextWorld's own batch environment, and prints one JSON line.

    python scripts/bench_pool.py [--rounds 5] [--steps 960] [--workers 2]

Both sides play the same games (w2-o3-q4, seeds from 1 on, built if they are missing) with the same fixed commands,
which look and walk about and end no game. Ours is `MultiprocessPool` with `jaxmtrl.envs.textworld`; the peer is
`textworld.gym.make` with `asynchronous=True`, a process an environment. Processes are started and games are reset
before the clock starts; the sides take turns within one run and medians of the rounds are compared. A ratio of 2
means that ours does twice the steps in the same time.

    vs_textworld_N            N environments as a run plays them by default: the text, score, moves, and whether the
                              game is won or lost. The peer requests those four infos; ours reads them off the screen.
    tracked_vs_textworld_N    N environments that follow the game's state (options show_admissible and track_state):
                              both sides request the same infos of TextWorld, admissible_commands and facts

Resets are timed apart (`resets_per_s`): a new game loaded and its opening read. `echo_steps_per_s` is our pool with an
environment that answers at once: what the processes and the channel alone allow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.rollout.pool import MultiprocessPool
from jaxmtrl.types import Task

FACTORY = "jaxmtrl.envs.textworld:make"
COMMANDS = ("look", "go north", "inventory", "go east", "wait", "go south", "look", "go west")
OPTIONS = {"text": {}, "tracked": {"show_admissible": True, "track_state": True}}
INFOS = {"text": ("score", "moves", "won", "lost"), "tracked": ("admissible_commands", "facts")}
NO_END = 1 << 30  # steps before a game is cut
SIZES = (2, 8, 32)


class Side(Protocol):
    """One way to play all games at once."""

    def reset(self) -> None: ...
    def play(self, steps: int) -> None:
        """`steps` steps of every game. Raises SystemExit if one ends."""
        ...

    def close(self) -> None: ...


class Ours:
    """Every game is sent its next command as soon as it has answered."""

    def __init__(self, factory: str, options: dict[str, Any], tasks: Sequence[Task], workers: int, states: bool):
        self._tasks = tasks
        self._pool = MultiprocessPool(
            factory,
            options,
            workers=workers,
            step_timeout_s=60.0,
            reset_timeout_s=120.0,
            recycle_after=0,
            name_states=states,
        )

    def reset(self) -> None:
        for episode, task in enumerate(self._tasks):
            self._pool.release(episode)
            self._pool.reset(episode, task)
        self._hear(dict.fromkeys(range(len(self._tasks)), 0))

    def play(self, steps: int) -> None:
        for episode in range(len(self._tasks)):
            self._pool.step(episode, command(0, episode))
        self._hear(dict.fromkeys(range(len(self._tasks)), steps - 1), steps)

    def close(self) -> None:
        self._pool.close()

    def _hear(self, left: dict[int, int], steps: int = 0) -> None:
        """Takes answers until every episode has given `left` more than one; each but the last is followed by a step."""
        while left:
            for event in self._pool.receive(None):
                result = event.step
                if event.kind == "failure" or (result is not None and (result.done or result.truncated)):
                    raise SystemExit(f"error: a game of ours ended: {event}")
                episode = event.episode
                if not left[episode]:
                    del left[episode]
                    continue
                self._pool.step(episode, command(steps - left[episode], episode))
                left[episode] -= 1


class TextWorlds:
    """TextWorld's own: one command for every game, then the answers of all."""

    def __init__(self, tasks: Sequence[Task], infos: Sequence[str]):
        import textworld
        import textworld.gym

        name = textworld.gym.register_games(
            [task.payload["path"] for task in tasks],
            textworld.EnvInfos(**dict.fromkeys(infos, True)),
            batch_size=len(tasks),
            asynchronous=True,
            max_episode_steps=NO_END,
            name="bench",
        )
        with _silent():  # when they are closed, its processes print a traceback each
            self._env: Any = textworld.gym.make(name)
        self._size = len(tasks)

    def reset(self) -> None:
        self._env.reset()

    def play(self, steps: int) -> None:
        for turn in range(steps):
            _, _, done, _ = self._env.step([command(turn, episode) for episode in range(self._size)])
            if any(done):
                raise SystemExit("error: a game of TextWorld's batch ended")

    def close(self) -> None:
        self._env.close()
        self._env = None


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """What is forked here has nowhere to print to."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def command(turn: int, episode: int) -> str:
    return COMMANDS[(turn + episode) % len(COMMANDS)]


def play_in_turns(sides: dict[str, Side], steps: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every side's reset and of its `steps` steps a game, a number a round; sides change places."""
    for side in sides.values():
        side.reset()
        side.play(min(steps, len(COMMANDS)))
    times: dict[str, dict[str, list[float]]] = {name: {"reset": [], "steps": []} for name in sides}
    names = list(sides)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            began = time.perf_counter()
            sides[name].reset()
            reset = time.perf_counter()
            sides[name].play(steps)
            times[name]["steps"].append(time.perf_counter() - reset)
            times[name]["reset"].append(reset - began)
    return times


def benchmark(size: int, view: str, *, workers: int, steps: int, rounds: int, cache: str) -> dict[str, dict[str, Any]]:
    """Steps and resets a second of both sides with `size` environments; `steps` are those of all together."""
    options = {
        "cache_dir": str(Path(cache).absolute()),
        "splits": {"games": {"first_seed": 1, "count": size}},
        "max_steps": NO_END,
        **OPTIONS[view],
    }
    environment = load_environment(FACTORY, options)
    tasks = environment.split("games").tasks
    environment.prepare(tasks, lambda done, total: None)
    # The peer forks, so it comes first: its processes hold nothing of ours.
    theirs = TextWorlds(tasks, INFOS[view])
    ours = Ours(FACTORY, options, tasks, min(workers, size), states=view == "tracked")
    each = max(1, steps // size)
    try:
        times = play_in_turns({"ours": ours, "textworld": theirs}, each, rounds)
    finally:
        ours.close()
        theirs.close()
    return {name: _rates(of_side, size, each) for name, of_side in times.items()}


def echo(size: int, *, workers: int, steps: int, rounds: int) -> float:
    """Steps a second of our pool with environments that answer at once."""
    side = Ours(
        "answering_env:make",
        {"turns": (NO_END, NO_END)},
        [Task(id=f"echo/{seed}", seed=seed) for seed in range(size)],
        min(workers, size),
        states=False,
    )
    each = max(1, steps // size)
    try:
        times = play_in_turns({"echo": side}, each, rounds)["echo"]
    finally:
        side.close()
    return _rates(times, size, each)["steps_per_s"]


def _rates(times: dict[str, list[float]], size: int, each: int) -> dict[str, Any]:
    return {
        "steps_per_s": round(size * each / statistics.median(times["steps"]), 1),
        "least": round(size * each / max(times["steps"]), 1),
        "most": round(size * each / min(times["steps"]), 1),
        "resets_per_s": round(size / statistics.median(times["reset"]), 1),
    }


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def main() -> int:
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=_positive, default=5, help="timings of each side")
    parser.add_argument("--steps", type=_positive, default=960, help="steps of all games together, a round")
    parser.add_argument("--workers", type=_positive, default=cores, help="processes of our pool at most; cores")
    parser.add_argument("--sizes", type=_positive, nargs="+", default=SIZES, help="environments")
    parser.add_argument("--views", nargs="+", choices=OPTIONS, default=tuple(OPTIONS))
    parser.add_argument("--cache", default=".cache/textworld", help="folder of compiled games")
    given = parser.parse_args()
    sides: dict[str, dict[str, Any]] = {"ours": {}, "peers": {}}
    ratios: dict[str, float] = {}
    try:
        for view in given.views:
            prefix = "" if view == "text" else f"{view}_"
            for size in given.sizes:
                rates = benchmark(
                    size, view, workers=given.workers, steps=given.steps, rounds=given.rounds, cache=given.cache
                )
                print(f"{view}, {size} environments: {rates}", file=sys.stderr, flush=True)
                sides["ours"][f"{view}_{size}"] = rates["ours"]
                sides["peers"][f"textworld_{view}_{size}"] = rates["textworld"]
                ratio = rates["ours"]["steps_per_s"] / rates["textworld"]["steps_per_s"]
                ratios[f"{prefix}vs_textworld_{size}"] = round(ratio, 3)
        most = max(given.sizes)
        sides["ours"]["echo_steps_per_s"] = echo(
            most, workers=given.workers, steps=10 * given.steps, rounds=given.rounds
        )
    except (JaxmtrlError, ModuleNotFoundError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    line = {
        "bench": "pool",
        "n": given.rounds,
        "workers": given.workers,
        **sides,
        "ratios": ratios,
        "machine": f"{platform.machine()}, {cores} cores, Python {platform.python_version()}",
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":  # our workers are spawned and import this file
    sys.exit(main())
