"""The trainer's end of a holder: starts it, reaches into what it holds, and ends it."""

from __future__ import annotations

import marshal
import os
import select
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from jaxmtrl.envs.swe.sandbox import holder
from jaxmtrl.envs.swe.sandbox.api import WORKDIR, Base, Limits
from jaxmtrl.envs.swe.sandbox.owner import hand_over, sandbox_user
from jaxmtrl.envs.swe.sandbox.surroundings import is_program
from jaxmtrl.envs.swe.sandbox.way import clear_way, make_way
from jaxmtrl.errors import SandboxFailure

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_START_S = 20.0


class Held:
    """What a holder holds; `stage` is a descriptor of its STAGE, relative to which everything is named.

    Args:
        layers: the workspace's, the topmost first.
        seen: folders that are shown to commands read-only.
    """

    def __init__(self, layers: Sequence[Path], rootfs: Path | None, seen: Sequence[Path], limits: Limits):
        self.stage = -1
        self._closed = False
        lower = [str(path) for path in dict.fromkeys([*layers, *([rootfs] if rootfs else []), *seen])]
        overlays = {holder.WORKSPACE: [str(layer) for layer in layers]}
        if rootfs is not None:
            overlays[holder.ROOT] = [str(rootfs)]
        user = sandbox_user()
        self._writable = [(WORKDIR, holder.WORKSPACE), ("/tmp", holder.TEMPORARY)]
        self._writable += [("", holder.ROOT)] if rootfs is not None else []
        self._numbers = {path: number for number, path in enumerate(lower)}
        self.process = _start(
            {
                "user": user,
                "size": limits.workspace,
                "files": limits.workspace_files,
                "temporary": limits.temporary,
                "lower": lower,
                "overlays": overlays,
            }
        )
        try:
            self.stage = os.open(f"/proc/{self.process.pid}/root{holder.STAGE}", FOLDER)
        except OSError as err:
            self.close()
            raise SandboxFailure(f"the mounts of a sandbox cannot be looked at: {err}") from err

    def number(self, path: Path) -> int:
        """Of a folder in `layers`, `rootfs` or `seen`: its name within LOWER."""
        return self._numbers[str(path)]

    def must_live(self) -> None:
        if self._closed:
            raise SandboxFailure("the sandbox is closed")
        if self.process.poll() is not None:
            raise SandboxFailure("the process that holds the sandbox has died")

    def open_workspace(self) -> None:
        """Lets commands begin in the workspace, should one before have closed it."""
        mode = os.stat(holder.WORKSPACE, dir_fd=self.stage).st_mode
        if mode & 0o700 != 0o700:
            os.chmod(holder.WORKSPACE, 0o755, dir_fd=self.stage)

    def make_way(self, path: str) -> bool:
        """Makes way for a mount at `path` as commands see it; whether it leaves nothing behind."""
        place = self._place(path)
        return place is None or make_way(self.stage, place)

    def clear_way(self, path: str) -> None:
        place = self._place(path)
        if place is not None:
            clear_way(self.stage, place)

    def _place(self, path: str) -> str | None:
        """Where within STAGE what is written at `path` goes; None: nowhere, that mount is made in a fresh folder."""
        for prefix, folder in self._writable:
            if path.startswith(prefix + "/"):
                return folder + path[len(prefix) :]
        return None

    def take_back(self) -> None:
        """Removes the files that the last command was given."""
        folder = os.open(holder.GIVEN, FOLDER, dir_fd=self.stage)
        try:
            for name in os.listdir(folder):
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)

    def give(self, name: str, content: bytes) -> str:
        """A file for the next command, out of its sight until it is mounted; returns where it is within STAGE."""
        place = f"{holder.GIVEN}/{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(place, flags, 0o700 if is_program(content) else 0o600, dir_fd=self.stage)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            user = sandbox_user()
            if user is not None:
                os.fchown(descriptor, user, user)
        return place

    def read(self, place: str, max_bytes: int) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(place, flags, dir_fd=self.stage), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SandboxFailure(f"{place} is no plain file")
            return file.read(max_bytes)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self.stage >= 0:
            os.close(self.stage)
        _end(self.process)


def workspace_layers(base: Base) -> list[Path]:
    """The folders that a workspace is laid over, the topmost first; they become the sandbox user's."""
    if base.image is not None:
        raise SandboxFailure(f"bubblewrap runs no container images: export {base.image} to a rootfs, or use podman")
    if base.venv is not None and base.rootfs is not None:
        raise SandboxFailure("a base has a venv or a rootfs, not both: an image brings its own interpreter")
    bottom = base.tree
    if bottom is None and base.rootfs is not None:
        bottom = base.rootfs / WORKDIR.strip("/")
    if bottom is None:
        raise SandboxFailure("a base needs a tree or a rootfs, got neither")
    layers = [*reversed(base.layers), bottom]
    for folder in (*layers, *([base.rootfs] if base.rootfs is not None else [])):
        if not folder.is_dir():
            raise SandboxFailure(f"no folder {folder} to begin from")
        hand_over(folder)
    return layers


def _start(order: dict) -> subprocess.Popen:
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", holder.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as err:  # such as EAGAIN: no process is to be had just now
        raise SandboxFailure(f"a sandbox could not be made: {err}") from err
    assert process.stdin is not None and process.stdout is not None
    try:
        data = marshal.dumps(order)
        process.stdin.write(b"%08d" % len(data) + data)
        process.stdin.flush()
        said = _line(process.stdout, time.monotonic() + _START_S)
    except OSError as err:
        said = str(err).encode()
    if said != b"ready\n":
        _end(process)
        raise SandboxFailure(f"a sandbox could not be made: {said.decode(errors='replace').strip() or 'it hung'}")
    process.stdout.close()
    return process


def _end(process: subprocess.Popen) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                pass
    process.wait()


def _line(stream: IO[bytes], deadline: float) -> bytes:
    """What was said up to its first end of a line, or to the end."""
    said = b""
    while b"\n" not in said:
        if not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return b""
        part = os.read(stream.fileno(), 4096)
        if not part:
            break
        said += part
    return said
