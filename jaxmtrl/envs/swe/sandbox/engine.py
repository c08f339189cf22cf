"""podman or docker, asked through its command line; and what becomes of containers whose trainer died."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jaxmtrl.envs.swe.sandbox.api import Probe
from jaxmtrl.errors import SandboxFailure

LABEL = "jaxmtrl.owner"
_KEPT = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG", "CONTAINER_HOST", "TMPDIR")
_CALL_S = 300.0


class Engine:
    """One of the two programs."""

    def __init__(self, program: str):
        self.program = program

    def do(self, *arguments: str, given: bytes | None = None, check: bool = True) -> bytes:
        """Runs it to its end and returns what it wrote. Raises SandboxFailure where it failed and `check`."""
        try:
            done = subprocess.run(
                [self._path(), *arguments],
                input=given,
                stdin=subprocess.DEVNULL if given is None else None,
                capture_output=True,
                env=_environment(),
                timeout=_CALL_S,
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            raise SandboxFailure(f"{self.program} {arguments[0]}: {err}") from err
        if check and done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-400:]
            raise SandboxFailure(f"{self.program} {arguments[0]} ended with {done.returncode}: {said}")
        return done.stdout

    def start(self, *arguments: str, output: int, stdin: int) -> subprocess.Popen:
        """Starts it in a process group of its own, both its streams going to `output`."""
        return subprocess.Popen(
            [self._path(), *arguments],
            stdin=stdin,
            stdout=output,
            stderr=output,
            env=_environment(),
            start_new_session=True,
        )

    @contextmanager
    def stream(self, *arguments: str) -> Iterator[IO[bytes]]:
        """What it writes, while it writes it; it is killed where nobody reads to the end."""
        process = subprocess.Popen(
            [self._path(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                yield process.stdout
        finally:
            process.kill()
            process.wait()

    def _path(self) -> str:
        path = shutil.which(self.program)
        if path is None:
            raise SandboxFailure(f"{self.program} is not installed")
        return path


def probe(engine: Engine) -> Sequence[Probe]:
    """Whether the engine is there and answers; which of its storage drivers it has."""
    name = f"{engine.program} answers"
    try:
        drivers = {"podman": "{{.Store.GraphDriverName}}", "docker": "{{.Driver}}"}
        driver = engine.do("info", f"--format={drivers[engine.program]}").decode().strip()
    except SandboxFailure as err:
        cure = f"install {engine.program} and start its service, or use bubblewrap"
        return [Probe(name=name, passed=False, found=str(err), cure=cure)]
    quick = Probe(
        name="containers start quickly",
        passed=driver != "vfs",
        found=f"storage driver {driver}",
        cure="set the storage driver to overlay: with vfs every container copies its image, some 20 s each",
    )
    return [Probe(name=name, passed=True, found=f"storage driver {driver}"), quick]


def owner() -> str:
    """This process, so that nobody else is ever taken for it: host, boot, process, and when that began."""
    return f"{socket.gethostname()}|{_boot()}|{os.getpid()}|{_began(os.getpid())}"


def reap(engine: Engine) -> int:
    """Removes containers of trainers of this host that are dead; returns how many."""
    names = engine.do("ps", "--all", "--quiet", f"--filter=label={LABEL}").split()
    dead = 0
    for name in names:
        label = engine.do("inspect", f'--format={{{{index .Config.Labels "{LABEL}"}}}}', name.decode(), check=False)
        if _is_dead(label.decode().strip()):
            engine.do("rm", "--force", "--volumes", name.decode(), check=False)
            dead += 1
    return dead


def _is_dead(label: str) -> bool:
    host, _, rest = label.partition("|")
    boot, _, rest = rest.partition("|")
    pid, _, began = rest.partition("|")
    if host != socket.gethostname() or not pid.isdigit():
        return False  # another machine's, or not ours
    return boot != _boot() or _began(int(pid)) != began


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _began(pid: int) -> str:
    """When a process was started, in ticks after boot; "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}
