"""What a study needs before its first run: the games of all runs, and a note of the machine.

Games are built here, once, so that runs side by side do not build the same ones.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from jaxmtrl.config.sections import Config
from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.run_folder import write_json
from jaxmtrl.tasks import tasks_evaluated, tasks_in_use
from jaxmtrl.types import Task

_MACHINES = "machines.json"
_DEVICES = "import jax; found = jax.local_devices(); print(len(found), found[0].device_kind)"
_SAY_EVERY_S = 30.0


def build_games(configs: Iterable[Config], say: Callable[[str], None]) -> None:
    """Has every environment make what the tasks of its runs need; one that cannot is said, and left to its runs."""
    by_environment: dict[str, tuple[Config, dict[str, Task]]] = {}
    for config in configs:
        key = json.dumps([config.env.factory, config.env.options], sort_keys=True)
        first, tasks = by_environment.setdefault(key, (config, {}))
        environment = load_environment(first.env.factory, first.env.options)
        used = tasks_in_use(config, environment.split(config.env.train_split).tasks)
        tasks |= {task.id: task for task in [*used, *tasks_evaluated(config, environment)]}
    for number, (config, tasks) in enumerate(by_environment.values(), start=1):
        environment = load_environment(config.env.factory, config.env.options)
        place = f"environment {number} of {len(by_environment)}"
        try:
            environment.prepare(list(tasks.values()), _reporter(place, say))
        except JaxmtrlError as err:
            say(f"{place}: {err}")


def _reporter(place: str, say: Callable[[str], None]) -> Callable[[int, int], None]:
    """Says how far the games of one environment are; nothing where all were there."""
    last = [time.monotonic()]

    def report(done: int, total: int) -> None:
        if done < total and time.monotonic() - last[0] >= _SAY_EVERY_S:
            last[0] = time.monotonic()
            say(f"{done} of {total} games of {place}")

    return report


def note_machine(root: Path) -> None:
    """Adds this machine to those that a study's runs were made on."""
    known, line = machines(root), _this_machine()
    if line not in known:
        root.mkdir(parents=True, exist_ok=True)
        write_json(root / _MACHINES, [*known, line])


def machines(root: Path) -> list[str]:
    """The machines that a study's runs were made on, a line each."""
    try:
        return [str(line) for line in json.loads((root / _MACHINES).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):  # a note that is gone is no reason to stop
        return []


def _this_machine() -> str:
    """Devices, Python and jax in one line. Asked of a child, for jax would keep an accelerator for this process."""
    child = subprocess.run([sys.executable, "-c", _DEVICES], capture_output=True, text=True, check=False)
    count, _, kind = child.stdout.strip().partition(" ")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    devices = f"{count} x {kind}, " if kind and kind.lower() != "cpu" else ""
    software = f"Python {platform.python_version()}, jax {importlib.metadata.version('jax')}"
    return f"{devices}{usable} CPU cores ({platform.machine()}), {software}"
