"""Plays scripted software tasks in sandboxes and prints one JSON line: episodes a minute, commands a second, leaks.

    python scripts/bench_swe.py [--episodes 60] [--workers 2] [--rows FILE --cache FOLDER]

An episode opens a sandbox, lists, reads and searches, edits by the known repair, runs Python, runs a test, and submits,
which is graded by the official tests in a sandbox of its own. Without --rows it is of a package of one module that
this script writes; pytest for it comes from the package registry, before the clock starts. With --rows it is of the
rows that `python -m jaxmtrl.envs.swe.inject` has made, each in turn.

Bars, on two cores: 40 episodes a minute; 60 ms to open a sandbox, 60 for a command that does nothing, 50 to close
(medians); nothing left behind. The exit code is 1 where one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from jaxmtrl.envs.swe import make
from jaxmtrl.envs.swe.actions import write_command, write_submit
from jaxmtrl.envs.swe.command_line import ended, positive, threads
from jaxmtrl.envs.swe.env import SweEnv, Workshop
from jaxmtrl.envs.swe.expert import gold_actions
from jaxmtrl.envs.swe.grade import Prepared
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import make_patch
from jaxmtrl.envs.swe.sandbox.api import Backend, Base, FileChange, Limits, Sandbox
from jaxmtrl.envs.swe.sandbox.choice import choose
from jaxmtrl.envs.swe.settings import SweOptions, rules
from jaxmtrl.envs.swe.venvs import build_venv, find_python
from jaxmtrl.errors import ConfigError
from jaxmtrl.types import Task

CODE = (
    "def area(width, height):\n    return width * height\n\n\n"
    "def edge(width, height):\n    return 2 * (width + height)\n"
)
FAULTY = CODE.replace("2 * (width + height)", "2 * width + height")
TESTS = (
    "from flat import area, edge\n\n\ndef test_area():\n    assert area(2, 3) == 6\n\n\n"
    "def test_edge():\n    assert edge(2, 3) == 10\n"
)
LOOKS = ("ls -la", "git status --short | head", "grep -rn def . --include=*.py | head", "cat *.py | head -50")
CHECKS = ("python -c 'import sys; print(sys.version)'", "python -m pytest -q -x -p no:cacheprovider . | tail -5")
EPISODES_PER_MIN = 40.0  # at least
BARS_MS = {"open_ms": 60.0, "command_ms": 60.0, "close_ms": 50.0}  # at most


class OneTask:
    """A workshop of one instance that is there already."""

    def __init__(self, folder: Path):
        (folder / "tree").mkdir(parents=True)
        (folder / "tree" / "flat.py").write_text(FAULTY)
        build_venv(folder / "venv", find_python(""), ["pytest"])
        self.prepared = Prepared(
            base=Base(tree=folder / "tree", venv=folder / "venv"), tests={"test_flat.py": TESTS.encode()}
        )
        self.instance = SweInstance(
            id="flat",
            repo="bench/flat",
            problem_statement="The edge of a rectangle is too short.",
            fail_to_pass=("test_flat.py::test_edge",),
            pass_to_pass=("test_flat.py::test_area",),
            patch=make_patch({"flat.py": FAULTY}, {"flat.py": CODE}),
            test_files=("test_flat.py",),
        )
        gold = [FileChange(path="flat.py", content=CODE.encode())]
        self.repair = gold_actions(self.prepared.base, gold, form="fenced", way="direct") or []
        self.tasks = [Task(id="flat", seed=0, payload={"max_steps": 20})]

    def take(self, task: Task) -> tuple[SweInstance, Prepared]:
        return self.instance, self.prepared

    def hint(self, instance: SweInstance) -> str:
        return ""

    def give_back(self, instance: SweInstance) -> None:
        pass

    def expert_actions(self, task: Task) -> Sequence[str]:
        return self.repair


class Timed:
    """A backend that times what it opens and closes."""

    def __init__(self, inner: Backend):
        self._inner = inner
        self.open_s: list[float] = []
        self.close_s: list[float] = []

    def probe(self):
        return self._inner.probe()

    def open(self, base: Base, limits: Limits) -> Sandbox:
        began = time.monotonic()
        sandbox = self._inner.open(base, limits)
        self.open_s.append(time.monotonic() - began)
        close = sandbox.close

        def timed() -> None:
            closing = time.monotonic()
            close()
            self.close_s.append(time.monotonic() - closing)
            sandbox.close = close  # a second call has nothing to do

        sandbox.close = timed
        return sandbox


class Scripts:
    """Plays whole episodes, one a call, from many threads."""

    def __init__(self, workshop: Workshop, backend: Backend):
        self._workshop = workshop
        self._backend = backend
        self._rules = rules(SweOptions(quarantine=""))
        self._own = threading.local()
        self.envs: list[SweEnv] = []

    def play(self, task: Task, repair: Sequence[str]) -> int:
        """The commands of one episode, which must be won."""
        if not hasattr(self._own, "env"):
            self._own.env = SweEnv(self._workshop, self._backend, self._rules)
            self.envs.append(self._own.env)
        env = self._own.env
        env.reset(task)
        edits = [action for action in repair if action != write_submit("fenced")]
        actions = [*(write_command(command, "fenced") for command in LOOKS), *edits]
        actions += [write_command(command, "fenced") for command in CHECKS]
        for action in actions:
            env.step(action)
        result = env.step(write_submit("fenced"))
        if not result.success:
            raise SystemExit(f"error: the repair of {task.id} was not accepted: {result.observation}")
        return len(actions)


def left_behind() -> dict[str, int]:
    """Living children of this process, and its mounts; a sandbox writes to no disk."""
    children = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children += fields[1] == str(os.getpid()) and fields[0] != "Z"
    return {"processes": children, "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines())}


def command_s(workshop: Workshop, task: Task, times: int = 20) -> float:
    """Seconds that a command takes which does nothing, the median of `times`."""
    instance, prepared = workshop.take(task)
    sandbox = choose("auto").open(prepared.base, Limits())
    taken: list[float] = []
    try:
        for _ in range(times):
            began = time.monotonic()  # seen from outside: what starts and ends a command counts
            sandbox.run("true")
            taken.append(time.monotonic() - began)
        return statistics.median(taken)
    finally:
        sandbox.close()
        workshop.give_back(instance)


def benchmark(workshop, tasks: Sequence[Task], *, episodes: int, workers: int) -> dict:
    """Plays `episodes` and returns the figures."""
    repairs = {task.id: workshop.expert_actions(task) or () for task in tasks}
    unknown = [task.id for task in tasks if not repairs[task.id]]
    if unknown:
        raise ConfigError(
            "the rows", [f"nobody knows a repair of text for {', '.join(unknown[:5])}; leave those rows out"]
        )
    backend = Timed(choose("auto"))
    scripts = Scripts(workshop, backend)
    for task in tasks:  # trees are made and files are read once before the clock starts
        scripts.play(task, repairs[task.id])
    backend.open_s.clear()
    backend.close_s.clear()
    before = left_behind()
    began = time.monotonic()
    with threads(workers) as pool:
        wanted = [tasks[number % len(tasks)] for number in range(episodes)]
        commands = sum(pool.map(lambda task: scripts.play(task, repairs[task.id]), wanted))
    wall_s = time.monotonic() - began
    empty_s = command_s(workshop, tasks[0])
    for env in scripts.envs:
        env.close()
    after = left_behind()
    return {
        "episodes": episodes,
        "workers": workers,
        "episodes_per_min": round(60 * episodes / wall_s, 1),
        "commands_per_s": round(commands / wall_s, 1),
        "open_ms": round(1000 * statistics.median(backend.open_s), 1),
        "command_ms": round(1000 * empty_s, 1),
        "close_ms": round(1000 * statistics.median(backend.close_s), 1),
        "leaks": {name: after[name] - before[name] for name in after},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=positive(int), default=60)
    parser.add_argument("--workers", type=positive(int), default=2)
    parser.add_argument("--rows", help="file of rows; without it a package of one module")
    parser.add_argument("--cache", help="folder of trees and environments for --rows")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-swe-") as folder:
        Path(folder).chmod(0o755)
        if options.rows:
            workshop = make({"rows": [options.rows], "cache": options.cache, "splits": {"bench": {}}, "quarantine": ""})
            tasks = workshop.split("bench").tasks
        else:
            workshop = OneTask(Path(folder))
            tasks = workshop.tasks
        found = benchmark(workshop, tasks, episodes=options.episodes, workers=options.workers)
    found |= {
        "tasks": len(tasks),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    print(json.dumps(found))
    missed = found["episodes_per_min"] < EPISODES_PER_MIN or any(found["leaks"].values())
    return int(missed or any(found[name] > bar for name, bar in BARS_MS.items()))


if __name__ == "__main__":
    sys.exit(ended(main, interrupted="no figures; begin again"))
