"""Sandboxes of bubblewrap: no daemon, no image, nothing on disk, some 30 ms to open one.

An episode has a holder (`holder.py`), which keeps its workspace, an overlay in memory over the read-only base. Every
command is a bwrap of its own inside the holder's namespaces, with processes, network and devices that are its alone.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jaxmtrl.envs.swe.sandbox import changes as overlay
from jaxmtrl.envs.swe.sandbox import holder, seccomp
from jaxmtrl.envs.swe.sandbox.api import Base, ChangeSet, ExecResult, Limits, Probe
from jaxmtrl.envs.swe.sandbox.arguments import COMMAND, Layout, host_files, interpreter_of, options
from jaxmtrl.envs.swe.sandbox.held import FOLDER, Held, workspace_layers
from jaxmtrl.envs.swe.sandbox.leftovers import reap
from jaxmtrl.envs.swe.sandbox.owner import sandbox_user
from jaxmtrl.envs.swe.sandbox.probes import probe
from jaxmtrl.envs.swe.sandbox.surroundings import MOST_COMMAND, checked, variables, venv_place
from jaxmtrl.envs.swe.sandbox.watch import End, Watch
from jaxmtrl.errors import SandboxFailure

_TOOLS = ("bwrap", "nsenter", "prlimit", "setpriv")
NO_ROOM = 126  # exit code where a file was to be shown and the workspace is full
_OPEN_FILES = 1024
_PAUSE_S = 0.5  # before a command that could not be started is tried again


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Where the programs are, and what this bwrap can."""

    paths: Mapping[str, str]
    disable_userns: bool


@cache
def find_tools() -> Tools:
    """Raises SandboxFailure, with the cure, where something is missing or too old."""
    paths = {name: shutil.which(name) or "" for name in _TOOLS}
    if not paths["bwrap"]:
        raise SandboxFailure("bubblewrap is not installed; install it: apt-get install bubblewrap")
    missing = [name for name, path in paths.items() if not path]
    if missing:
        raise SandboxFailure(f"{', '.join(missing)} not found; install it: apt-get install util-linux")
    if not seccomp.supported():
        raise SandboxFailure("sandboxes of bubblewrap are for x86-64 and aarch64; use podman or docker")
    spoken = subprocess.run([paths["bwrap"], "--help"], capture_output=True, text=True, env={}).stdout
    if "--perms" not in spoken or "--json-status-fd" not in spoken:
        raise SandboxFailure("this bubblewrap is too old, it has no --perms; install 0.5 or newer")
    return Tools(paths=paths, disable_userns="--disable-userns" in spoken)


class Bubblewrap:
    """The backend."""

    name = "bwrap"

    def __init__(self) -> None:
        self._reaped = False

    def probe(self) -> Sequence[Probe]:
        return probe(self)

    def open(self, base: Base, limits: Limits) -> BubblewrapSandbox:
        if not self._reaped:
            self._reaped = True
            reap()
        return BubblewrapSandbox(find_tools(), base, limits)


class BubblewrapSandbox:
    """One episode's workspace, and the process that holds it."""

    def __init__(self, tools: Tools, base: Base, limits: Limits):
        self._tools = tools
        self._limits = limits
        self._filter = seccomp.program()
        self._venv = venv_place(base.venv is not None)
        self._reports: dict[str, str] = {}  # by path in the sandbox: where within STAGE
        self._layers = workspace_layers(base)
        interpreter = [Path(path) for path in interpreter_of(base.venv)] if base.venv is not None else []
        seen = [*interpreter, *([base.venv] if base.venv is not None else [])]
        self._held = Held(self._layers, base.rootfs, seen, limits)
        self._layout = Layout(
            rootfs=base.rootfs,
            venv=self._held.number(base.venv) if base.venv is not None else None,
            interpreter=tuple((str(path), self._held.number(path)) for path in interpreter),
            disable_userns=tools.disable_userns,
        )

    def run(
        self,
        command: str,
        *,
        wall_s: float | None = None,
        environment: Mapping[str, str] | None = None,
        shown: Mapping[str, bytes] | None = None,
        reports: Sequence[str] = (),
    ) -> ExecResult:
        script = command.encode("utf-8", "replace")
        if len(script) > MOST_COMMAND:
            return ExecResult(exit_code=None, output=b"", why="too_large")
        self._held.must_live()
        paths = [checked(path) for path in (*(shown or {}), *reports)]
        given = variables(venv=self._venv, more=environment)
        try:
            self._held.open_workspace()
            try:
                left_over = [path for path in paths if not self._held.make_way(path)]
            except OSError as err:  # the policy has filled its workspace, so that nothing can even be removed
                if err.errno != errno.ENOSPC:
                    raise
                return ExecResult(exit_code=NO_ROOM, output=str(err).encode())
            self._held.take_back()
            self._reports = {path: self._held.give(f"report{n}", b"") for n, path in enumerate(reports)}
            places = {
                path: self._held.give(f"shown{n}", content) for n, (path, content) in enumerate((shown or {}).items())
            }
            try:
                return self._spawn(script, given, places, wall_s or self._limits.command_s)
            finally:
                for path in left_over:
                    with suppress(OSError):  # in a workspace that is full: an empty file stays there, at worst
                        self._held.clear_way(path)
        except OSError as err:
            raise SandboxFailure(f"a command could not be run: {err}") from err

    def report(self, path: str, *, max_bytes: int = 4 << 20) -> bytes:
        return self._held.read(self._reports[path], max_bytes)

    def changes(self, *, max_files: int = 100, max_bytes: int = 1 << 20) -> ChangeSet:
        self._held.must_live()
        with ExitStack() as stack:

            def opened(path: str | Path, folder: int | None = None) -> int:
                descriptor = os.open(path, FOLDER, dir_fd=folder)
                stack.callback(os.close, descriptor)
                return descriptor

            try:
                upper = opened(holder.upper(holder.WORKSPACE), self._held.stage)
                lower = [opened(layer) for layer in self._layers]
                return overlay.changes(upper, lower, max_files=max_files, max_bytes=max_bytes)
            except OSError as err:
                raise SandboxFailure(f"what an episode has changed cannot be read: {err}") from err

    def close(self) -> None:
        self._held.close()

    def _spawn(self, script: bytes, given: Mapping[str, str], shown: Mapping[str, str], wall_s: float) -> ExecResult:
        with ExitStack() as stack:

            def memory(content: bytes) -> int:
                descriptor = os.memfd_create("jaxmtrl")
                stack.callback(os.close, descriptor)
                with os.fdopen(os.dup(descriptor), "wb") as file:
                    file.write(content)
                os.lseek(descriptor, 0, os.SEEK_SET)
                return descriptor

            output, output_end = _pipe(stack)
            status, status_end = _pipe(stack)
            etc = {} if self._layout.rootfs is not None else host_files()
            files = {path: memory(content) for path, content in {**etc, COMMAND: script}.items()}
            filter_ = memory(self._filter)
            arguments = options(
                self._layout,
                variables=given,
                data=files,
                shown=shown,
                bound=self._reports,
                seccomp=filter_,
                status=status_end,
            )
            listed = memory(b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
            process = _popen(
                [*self._prefix(), self._tools.paths["bwrap"], "--args", str(listed), "--", "bash", COMMAND],
                output_end,
                (*files.values(), filter_, status_end, listed),
            )
            os.close(output_end)
            os.close(status_end)
            watch = Watch(process, output=output, status=status, limits=self._limits)
            return _result(watch.to_the_end(wall_s))

    def _prefix(self) -> list[str]:
        """Our rights go, limits are set, and the holder's namespaces are entered; bwrap follows."""
        paths, limits, user = self._tools.paths, self._limits, sandbox_user()
        given = []
        if user is not None:
            given += [paths["setpriv"], f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        given += [paths["prlimit"], "--core=0", f"--nofile={_OPEN_FILES}", f"--nproc={limits.processes}"]
        given += [f"--as={limits.address_space}", f"--fsize={limits.file_size}"]
        target = str(self._held.process.pid)
        return [*given, paths["nsenter"], "--target", target, "--user", "--mount", "--preserve-credentials"]


def _popen(command: Sequence[str], output: int, passed: tuple[int, ...]) -> subprocess.Popen:
    """Starts it without an environment, since bwrap's can be read from inside; twice if no process is to be had."""

    def start() -> subprocess.Popen:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={},
            cwd="/",
            pass_fds=passed,
            start_new_session=True,
        )

    try:
        return start()
    except BlockingIOError:
        time.sleep(_PAUSE_S)
        return start()


def _pipe(stack: ExitStack) -> tuple[int, int]:
    """A pipe; its writing end is the caller's to close."""
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    return reading, writing


def _result(end: End) -> ExecResult:
    code = end.exit_code
    if code is None and not end.why:  # bwrap did not come as far as the command
        said = end.output.decode(errors="replace")[:400]
        if said.startswith("bwrap: execvp"):  # the policy has removed the shell from its copy of the image,
            code = 127
        elif "No space left on device" in said:  # or filled the workspace, where a file was to be shown
            code = NO_ROOM
        else:
            raise SandboxFailure(f"bubblewrap did not start a command: {said}")
    return ExecResult(
        exit_code=code,
        output=end.output,
        elided=end.elided,
        why=end.why,
        wall_s=end.wall_s,
        peak_resident=end.peak_resident,
    )
