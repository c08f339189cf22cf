"""Trains the runs of a study, each in a process of its own, some at a time; what is finished is left alone.

A run that fails does not stop the others. A half-done run goes on from its last checkpoint, as `jaxmtrl.train` does.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jaxmtrl.run_folder import RESULT_FILE
from jaxmtrl.studies.grid import Run

_GRACE_S = 20.0  # what a child that was asked to stop has for it
_LOOK_EVERY_S = 0.2
_LAST_LINES = 12  # of a failed child's log


@dataclasses.dataclass(kw_only=True)
class _Child:
    """A run that is under way: its process, and the commands that are still to follow."""

    run: Run
    rest: list[list[str]]
    log: IO[bytes]
    process: subprocess.Popen[bytes]
    began: float


def log_of(run: Run) -> Path:
    """Where a run's processes write what they say."""
    return run.folder.parent / "logs" / f"{run.name}.log"


def train_commands(run: Run) -> list[list[str]]:
    """What a run takes, one process after the other: the policy that it begins with, if any, and its training."""
    commands = [[sys.executable, "-m", "jaxmtrl.train", "--config", str(run.config), *run.overrides]]
    if run.exported and not run.exported.exists():
        export = ["--export", str(run.before), "--policy", run.policy, "--to", str(run.exported)]
        commands.insert(0, [sys.executable, "-m", "jaxmtrl.study", *export])
    return commands


def run_all(
    runs: Sequence[Run],
    *,
    done: Sequence[Run],
    jobs: int,
    say: Callable[[str], None],
    commands_of: Callable[[Run], list[list[str]]] = train_commands,
) -> dict[Run, str]:
    """Trains every run that is not done, at most `jobs` at a time, in their order.

    Args:
        done: those of `runs` that have ended before.
        say: told of every beginning and end.
        commands_of: what a run takes; the last command leaves a result.json in its folder.

    Returns:
        Why each run that failed did.

    Raises:
        KeyboardInterrupt: this process was asked to stop, by keyboard, SIGTERM or SIGHUP; the children have ended.
    """
    ended = {run.folder for run in done}
    waiting = [run for run in runs if run.folder not in ended]
    failed: dict[Run, str] = {}
    total, children = len(runs), list[_Child]()
    with _ends_like_ctrl_c():
        try:
            while waiting or children:
                while len(children) < jobs and (run := _startable(waiting, ended, children)):
                    waiting.remove(run)
                    children.append(_start(run, commands_of(run)))
                    say(f"[{len(ended)}/{total} done] {run.name} begins; log: {log_of(run)}")
                if not children:  # what waits has lost the run that it would begin with
                    break
                time.sleep(_LOOK_EVERY_S)
                for child in [child for child in children if child.process.poll() is not None]:
                    why = _next(child)
                    if why is None:
                        continue
                    children.remove(child)
                    if why:
                        failed[child.run] = why
                        say(f"{child.run.name} failed: {why}")
                    else:
                        ended.add(child.run.folder)
                        minutes = (time.monotonic() - child.began) / 60
                        say(f"[{len(ended)}/{total} done] {child.run.name} took {minutes:.1f} min")
        finally:
            _end(children)
    for run in waiting:
        failed[run] = f"was not started, since {run.before and run.before.name} did not end"
        say(f"{run.name} {failed[run]}")
    return failed


def _startable(waiting: Sequence[Run], ended: set[Path], children: Sequence[_Child]) -> Run | None:
    """The first run that need not wait: for the run that it begins with, or for a policy that is being exported."""
    exporting = {child.run.exported for child in children if child.rest}
    for run in waiting:
        if run.before is None or (run.before in ended and run.exported not in exporting):
            return run
    return None


def _start(run: Run, commands: list[list[str]]) -> _Child:
    log_of(run).parent.mkdir(parents=True, exist_ok=True)
    log = open(log_of(run), "ab")
    return _Child(run=run, rest=commands[1:], log=log, process=_spawn(commands[0], log), began=time.monotonic())


def _spawn(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C reaches this process alone, which then ends its children one by one.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def _next(child: _Child) -> str | None:
    """Starts the next command of a child whose process has ended; else why it failed, "" if all went well."""
    code = child.process.returncode
    if code == 0 and child.rest:
        child.process = _spawn(child.rest.pop(0), child.log)
        return None
    child.log.close()
    if code == 0:
        return "" if (child.run.folder / RESULT_FILE).exists() else "it ended without a result.json"
    how = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    lines = log_of(child.run).read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    return f"{how}; the same command tries it again. Last lines of {log_of(child.run)}:\n" + "\n".join(
        f"    {line[:300]}" for line in lines
    )


def _end(children: Sequence[_Child]) -> None:
    """Asks every child to stop, waits a while, and kills what is left, the processes that it started as well."""
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGINT)
    until = time.monotonic() + _GRACE_S
    for child in children:
        try:
            child.process.wait(max(0.0, until - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # who asks twice will not wait
            until = 0.0
    for child in children:
        if child.process.poll() is None:
            os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()
        child.log.close()


@contextmanager
def _ends_like_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt meanwhile, unless they are ignored or this is not the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
