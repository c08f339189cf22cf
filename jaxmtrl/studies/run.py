"""Trains the runs of a study, each in a process of its own, some at a time; what is finished is left alone.

A run that fails does not stop the others. A half-done run goes on from its last checkpoint, as `jaxmtrl.train` does.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import Config
from jaxmtrl.errors import JaxmtrlError, ResumeError
from jaxmtrl.run_folder import CONFIG_FILE, RESULT_FILE, RunFolder
from jaxmtrl.studies.grid import Run

_GRACE_S = 20.0  # what a child that was asked to stop has for it
_LOOK_EVERY_S = 0.2
_WANTED = ("splits", "seed", "model_params", "wall_s")  # of a result.json
_LAST_LINES = 12  # of a failed child's log


def result_of(run: Run, config: Config) -> dict[str, Any] | None:
    """What a run's result.json holds; None if it has not ended.

    Raises:
        ResumeError: the folder was trained with another config, is being trained right now, or its weights came from
            a run that has been trained anew.
        JaxmtrlError: result.json cannot be read.
    """
    path = run.folder / RESULT_FILE
    if not path.exists():
        return None
    RunFolder.open(_as_resolved(config, run.folder)).close()  # refuses what is not this run's
    if run.exported and run.before and run.exported.exists():
        begun = run.before / RESULT_FILE
        if begun.exists() and begun.stat().st_mtime > run.exported.stat().st_mtime:
            raise ResumeError(
                f"{run.folder} began with {run.exported}, which is older than {begun}; remove both folders, and the "
                "same command makes them again."
            )
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for name in _WANTED if name not in result]
        if missing:
            raise KeyError(*missing)
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise JaxmtrlError(
            f"{path} cannot be read as a run's result ({err!r}); remove its folder to train anew."
        ) from err
    return result


def results_of(configs: Mapping[Run, Config]) -> dict[Run, dict[str, Any]]:
    """The results of all runs that have ended.

    Raises:
        ResumeError: lists every folder that belongs to something else.
    """
    results, wrong = {}, []
    for run, config in configs.items():
        try:
            result = result_of(run, config)
        except JaxmtrlError as err:
            wrong.append(str(err))
            continue
        if result is not None:
            results[run] = result
    if wrong:
        raise ResumeError("\n".join(wrong))
    return results


def _as_resolved(config: Config, folder: Path) -> Config:
    """The config with what its published model decided of sizes and text, as the run folder has noted it."""
    if not config.model.from_pretrained or not (folder / CONFIG_FILE).exists():
        return config
    noted = load_config(folder / CONFIG_FILE)
    if noted.model.from_pretrained != config.model.from_pretrained:
        return config
    return dataclasses.replace(config, model=noted.model, text=noted.text)


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
        KeyboardInterrupt: this process was asked to stop, by the keyboard or SIGTERM; the children have ended.
    """
    ended = {run.folder for run in done}
    waiting = [run for run in runs if run.folder not in ended]
    failed: dict[Run, str] = {}
    total, children = len(runs), list[_Child]()
    with _terminates_like_ctrl_c():
        try:
            while waiting or children:
                for run in _startable(waiting, ended, failed)[: jobs - len(children)]:
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


def _startable(waiting: Sequence[Run], ended: set[Path], failed: Mapping[Run, str]) -> list[Run]:
    """The runs that need wait for no other."""
    return [run for run in waiting if run.before is None or run.before in ended]


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
        except subprocess.TimeoutExpired:
            os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()
        child.log.close()


@contextmanager
def _terminates_like_ctrl_c() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt meanwhile; elsewhere than in the main thread nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
