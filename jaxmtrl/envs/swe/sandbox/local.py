"""No sandbox at all: plain processes in a copy of the tree, for policies that one trusts with one's own account.

Commands run with our rights, our network and our files in reach; a process that leaves its group outlives its command.
Only `choice.py` makes it, and only where the config says `unsafe: true`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from jaxmtrl.envs.swe.sandbox import changes as overlay
from jaxmtrl.envs.swe.sandbox.api import VENV, WORKDIR, Base, ChangeSet, ExecResult, Limits, Probe
from jaxmtrl.envs.swe.sandbox.held import FOLDER
from jaxmtrl.envs.swe.sandbox.surroundings import MOST_COMMAND, checked, is_program, variables
from jaxmtrl.envs.swe.sandbox.watch import Watch
from jaxmtrl.errors import SandboxFailure


class Local:
    """The backend."""

    name = "local"

    def probe(self) -> Sequence[Probe]:
        found = "commands run unprotected, with all rights of this account"
        return [Probe(name="commands are sandboxed", passed=False, found=found, cure="env backend: bwrap, or podman")]

    def open(self, base: Base, limits: Limits) -> LocalSandbox:
        if base.tree is None or base.rootfs is not None or base.image is not None:
            raise SandboxFailure("without a sandbox a base is a tree; images and root filesystems need bwrap or podman")
        try:
            return LocalSandbox(base, limits)
        except OSError as err:
            raise SandboxFailure(f"a workspace could not be copied: {err}") from err


class LocalSandbox:
    """A copy of the tree in a temporary folder. Commands find WORKDIR, VENV and what is shown by other names."""

    def __init__(self, base: Base, limits: Limits):
        assert base.tree is not None
        self._limits = limits
        self._layers = [base.tree, *base.layers]
        self._venv = base.venv
        self._top = Path(tempfile.mkdtemp(prefix="jaxmtrl-unsafe-"))
        self._workspace = self._top / "testbed"
        for layer in self._layers:
            shutil.copytree(layer, self._workspace, symlinks=True, dirs_exist_ok=True)

    def run(
        self,
        command: str,
        *,
        wall_s: float | None = None,
        environment: Mapping[str, str] | None = None,
        shown: Mapping[str, bytes] | None = None,
        reports: Sequence[str] = (),
    ) -> ExecResult:
        beside = [path for path in (*(shown or {}), *reports) if not path.startswith(WORKDIR + "/")]
        script = self._here(command, beside).encode("utf-8", "replace")
        if len(script) > MOST_COMMAND:
            return ExecResult(exit_code=None, output=b"", why="too_large")
        given = variables(venv=str(self._venv) if self._venv else None, more=environment)
        given = {name: self._here(value, beside) for name, value in given.items()} | {"HOME": str(self._top)}
        placed = [self._file(path, content) for path, content in (shown or {}).items()]
        for path in reports:
            self._file(path, b"")
        (self._top / "command").write_bytes(script)
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                ["bash", str(self._top / "command")],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env=given,
                cwd=self._workspace,
                start_new_session=True,
            )
            os.close(writing)
            end = Watch(process, output=reading, status=None, limits=self._limits).to_the_end(
                wall_s or self._limits.command_s
            )
        except OSError as err:
            raise SandboxFailure(f"a command could not be run: {err}") from err
        finally:
            os.close(reading)
            for file in placed:
                file.unlink(missing_ok=True)
        return ExecResult(
            exit_code=end.exit_code,
            output=end.output,
            elided=end.elided,
            why=end.why,
            wall_s=end.wall_s,
            peak_resident=end.peak_resident,
        )

    def report(self, path: str, *, max_bytes: int = 4 << 20) -> bytes:
        with open(self._place(path), "rb") as file:
            return file.read(max_bytes)

    def changes(self, *, max_files: int = 100, max_bytes: int = 1 << 20) -> ChangeSet:
        with ExitStack() as stack:

            def opened(path: Path) -> int:
                descriptor = os.open(path, FOLDER)
                stack.callback(os.close, descriptor)
                return descriptor

            lower = [opened(layer) for layer in reversed(self._layers)]
            workspace = opened(self._workspace)
            return overlay.changes(workspace, lower, max_files=max_files, max_bytes=max_bytes, whole=True)

    def close(self) -> None:
        shutil.rmtree(self._top, ignore_errors=True)

    def _file(self, path: str, content: bytes) -> Path:
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o755 if is_program(content) else 0o644)
        return place

    def _place(self, path: str) -> Path:
        """Where what commands know as `path` is: within the copy, or beside it."""
        checked(path)
        if path.startswith(WORKDIR + "/"):
            return self._workspace / path[len(WORKDIR) + 1 :]
        return self._top / path.lstrip("/")

    def _here(self, text: str, beside: Sequence[str]) -> str:
        text = text.replace(WORKDIR, str(self._workspace))
        for path in beside:
            text = text.replace(path, str(self._place(path)))
        return text.replace(VENV, str(self._venv)) if self._venv else text
