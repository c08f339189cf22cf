"""A sandbox of a few lines, for tests of what stands above it: one bwrap a command over a copy of the tree, no limits."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from jaxmtrl.envs.swe.sandbox.api import VENV, WORKDIR, Base, ChangeSet, ExecResult, FileChange, Limits, Probe


class PlainBackend:
    def __init__(self):
        self.opened: list[PlainSandbox] = []

    def probe(self) -> list[Probe]:
        return []

    def open(self, base: Base, limits: Limits) -> PlainSandbox:
        self.opened.append(PlainSandbox(base, limits))
        return self.opened[-1]


class PlainSandbox:
    def __init__(self, base: Base, limits: Limits):
        self._base, self._limits = base, limits
        self._folder = Path(tempfile.mkdtemp(prefix="plain-"))
        for name in ("clean", "work"):
            for tree in (base.tree, *base.layers):
                shutil.copytree(tree, self._folder / name, symlinks=True, dirs_exist_ok=True)
        self._reports: dict[str, Path] = {}
        self.closed = False

    def run(self, command, *, wall_s=None, environment=None, shown=None, reports=()) -> ExecResult:
        scratch = Path(tempfile.mkdtemp(dir=self._folder))
        arguments = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--ro-bind", "/usr"]
        arguments += ["/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64"]
        arguments += ["/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        arguments += ["--bind", str(self._folder / "work"), WORKDIR, "--chdir", WORKDIR]
        variables = {"HOME": "/tmp", "PATH": "/usr/bin:/bin"}
        if self._base.venv:
            arguments += ["--ro-bind", str(self._base.venv), VENV]
            variables["PATH"] = f"{VENV}/bin:/usr/bin:/bin"
        for number, (path, content) in enumerate((shown or {}).items()):
            (scratch / str(number)).write_bytes(content)
            arguments += ["--ro-bind", str(scratch / str(number)), path]
        self._reports = {path: scratch / f"report{number}" for number, path in enumerate(reports)}
        for path, place in self._reports.items():
            place.write_bytes(b"")
            arguments += ["--bind", str(place), path]
        for name, value in {**variables, **(environment or {})}.items():
            arguments += ["--setenv", name, value]
        began = time.monotonic()
        process = subprocess.Popen(
            [*arguments, "bash", "-c", command],
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        why = ""
        try:
            output, _ = process.communicate(timeout=wall_s or self._limits.command_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, why = process.communicate()[0], "timeout"
        code = None if why else process.returncode if process.returncode >= 0 else 128 - process.returncode
        return ExecResult(exit_code=code, output=output, why=why, wall_s=time.monotonic() - began)

    def report(self, path: str, *, max_bytes: int = 4 << 20) -> bytes:
        return self._reports[path].read_bytes()[:max_bytes]

    def changes(self, *, max_files: int = 100, max_bytes: int = 1 << 20) -> ChangeSet:
        clean, work = ({*_files(self._folder / name)} for name in ("clean", "work"))
        found, dropped = [], []
        for path in sorted(clean | work):
            new, old = self._folder / "work" / path, self._folder / "clean" / path
            if new.is_symlink() or (path in work and not new.is_file()):
                dropped.append(path)
            elif path not in work:
                found.append(FileChange(path=path, content=None))
            elif path not in clean or new.read_bytes() != old.read_bytes():
                found.append(FileChange(path=path, content=new.read_bytes(), executable=os.access(new, os.X_OK)))
        if len(found) > max_files or sum(len(change.content or b"") for change in found) > max_bytes:
            return ChangeSet(files=(), dropped=tuple(dropped), too_large=f"{len(found)} files")
        return ChangeSet(files=tuple(found), dropped=tuple(dropped))

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self.closed = True


def _files(root: Path):
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (str((Path(folder) / name).relative_to(root)) for name in (*names, *links))
