"""Sandboxes of podman or docker, through their command line: for bases that are container images.

A container an episode, an `exec` a command, a third of a second each. Weaker than bubblewrap's in two ways: files that
are shown to a command are copies, which code under test can write to while it runs; and what is written in the
workspace is bounded by the engine's storage only.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from jaxmtrl.envs.swe.sandbox import archive, engine
from jaxmtrl.envs.swe.sandbox.api import VENV, WORKDIR, Base, ChangeSet, ExecResult, Limits, Probe
from jaxmtrl.envs.swe.sandbox.surroundings import MOST_COMMAND, checked, is_program, variables, venv_place
from jaxmtrl.envs.swe.sandbox.watch import Watch
from jaxmtrl.errors import SandboxFailure

_COMMAND = "/run/jaxmtrl-command"
_GRACE_S = 5.0  # the engine's own time, beyond the command's
# Process 1 of the container: takes in orphans, and stays when a command's leftovers are killed.
_FIRST = "while :; do sleep 3600 & wait; done"
# An image's history has the repair in it; what a policy sees has one commit. Not every image has git.
_ANEW = (
    f"cd {WORKDIR} && rm -rf .git || exit 1; git init -q . && git add -A -f . && "
    "git -c user.name=base -c user.email=base@localhost commit -q --allow-empty --no-verify -m base; exit 0"
)
# Runs the command (its path, seconds), then kills all that it left; `kill -1` spares its caller and process 1.
_CARRY = 'timeout -s KILL "$1" bash "$0"; code=$?; kill -KILL -1; exit $code'


class Containers:
    """The backend; `program` is "podman" or "docker"."""

    def __init__(self, program: str):
        self.name = program
        self.engine = engine.Engine(program)
        self._pristine: dict[str, archive.Listing] = {}
        self._reaped = False

    def probe(self) -> Sequence[Probe]:
        return engine.probe(self.engine)

    def open(self, base: Base, limits: Limits) -> ContainerSandbox:
        if base.rootfs is not None or base.image is None:
            raise SandboxFailure(f"{self.name} opens container images; name one, or use bubblewrap")
        if not self._reaped:
            self._reaped = True
            engine.reap(self.engine)
        return ContainerSandbox(self, base, limits)

    def pristine(self, base: Base) -> archive.Listing:
        """The workspace of an image as it was, looked at once."""
        image = str(base.image)
        if base.tree is not None:
            return archive.listing_of_trees([base.tree, *base.layers])
        if image not in self._pristine:
            name = _new_name()
            self.engine.do("create", "--name", name, f"--label={engine.LABEL}={engine.owner()}", image, "true")
            try:
                with self.engine.stream("cp", f"{name}:{WORKDIR}", "-") as stream:
                    self._pristine[image] = archive.listing(stream)
            finally:
                self.engine.do("rm", "--force", name, check=False)
        return self._pristine[image]


class ContainerSandbox:
    """One container."""

    def __init__(self, backend: Containers, base: Base, limits: Limits):
        self._backend = backend
        self._engine = backend.engine
        self._base = base
        self._limits = limits
        self._name = _new_name()
        self._closed = False
        try:
            self._engine.do(*start_options(self._name, base, limits))
            for tree in [base.tree, *base.layers]:
                if tree is not None:
                    self._engine.do("cp", f"{tree}/.", f"{self._name}:{WORKDIR}")
            if base.tree is None:
                self._engine.do("exec", self._name, "sh", "-c", _ANEW)
        except SandboxFailure:
            self.close()
            raise

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
        if self._closed:
            raise SandboxFailure("the sandbox is closed")
        wall_s = wall_s or self._limits.command_s
        shown = {checked(path): content for path, content in (shown or {}).items()}
        files = {_COMMAND: (script, 0o444)}
        files |= {path: (content, 0o555 if is_program(content) else 0o444) for path, content in shown.items()}
        files |= {checked(path): (b"", 0o666) for path in reports}
        self._engine.do("cp", "-", f"{self._name}:/", given=archive.packed(files))
        try:
            return self._exec(variables(venv=venv_place(self._base.venv is not None), more=environment), wall_s)
        finally:
            if shown:
                self._engine.do("exec", self._name, "rm", "-f", "--", *shown, check=False)

    def report(self, path: str, *, max_bytes: int = 4 << 20) -> bytes:
        with self._engine.stream("cp", f"{self._name}:{checked(path)}", "-") as stream:
            return archive.only_file(stream, max_bytes)

    def changes(self, *, max_files: int = 100, max_bytes: int = 1 << 20) -> ChangeSet:
        pristine = self._pristine
        with self._engine.stream("cp", f"{self._name}:{WORKDIR}", "-") as stream:
            return archive.changes(stream, pristine, max_files=max_files, max_bytes=max_bytes)

    @cached_property
    def _pristine(self) -> archive.Listing:
        return self._backend.pristine(self._base)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._engine.do("kill", self._name, check=False)  # removing alone would ask it first, for ten seconds
            self._engine.do("rm", "--force", "--volumes", self._name, check=False)

    def _exec(self, given: Mapping[str, str], wall_s: float) -> ExecResult:
        settings = [f"--env={name}={value}" for name, value in given.items()]
        where = ["exec", f"--workdir={WORKDIR}", *settings, self._name]
        with _pipe() as (reading, writing):
            process = self._engine.start(
                *where, "sh", "-c", _CARRY, _COMMAND, f"{wall_s:.3f}", output=writing, stdin=subprocess.DEVNULL
            )
            os.close(writing)
            watch = Watch(process, output=reading, status=None, limits=self._limits)
            end = watch.to_the_end(wall_s + _GRACE_S)
        why, code = end.why, end.exit_code
        if why:  # only the client is dead; what it carried is not
            self._engine.do("restart", "--time=0", self._name)
        elif code == 137 and end.wall_s >= wall_s:
            why, code = "timeout", None
        elif code and not self._running():
            raise SandboxFailure(f"{self._engine.program}: the container has ended: {end.output[-300:]!r}")
        return ExecResult(
            exit_code=None if why else code,
            output=end.output,
            elided=end.elided,
            why=why,
            wall_s=end.wall_s,
        )

    def _running(self) -> bool:
        said = self._engine.do("inspect", "--format={{.State.Running}}", self._name, check=False)
        return said.strip() == b"true"


def start_options(name: str, base: Base, limits: Limits) -> list[str]:
    """The command line that starts an episode's container: no network, no capabilities, bounded."""
    venv = [f"--volume={base.venv}:{VENV}:ro"] if base.venv is not None else []
    return [
        "run",
        "--detach",
        f"--name={name}",
        f"--label={engine.LABEL}={engine.owner()}",
        "--network=none",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        f"--pids-limit={limits.processes}",
        f"--memory={limits.resident}",
        f"--shm-size={limits.temporary}",
        f"--tmpfs=/tmp:rw,exec,nosuid,nodev,size={limits.temporary}",
        f"--ulimit=fsize={limits.file_size}:{limits.file_size}",
        "--ulimit=core=0:0",
        "--ulimit=nofile=1024:1024",
        f"--workdir={WORKDIR}",
        "--hostname=sandbox",
        *venv,
        "--entrypoint=sh",
        str(base.image),
        "-c",
        _FIRST,
    ]


def _new_name() -> str:
    return f"jaxmtrl-{os.getpid()}-{uuid.uuid4().hex[:12]}"


@contextmanager
def _pipe():
    """A pipe whose writing end is the caller's to close."""
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
