"""What a sandbox is: a place where commands of a policy run and cannot do harm, and what they leave behind.

A backend opens sandboxes: bubblewrap (`bwrap.py`), podman or docker (`oci.py`), or, on demand only, plain processes
(`local.py`). What the policy does wrong is a result; only what the machine does wrong raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from jaxmtrl.envs.probe import Probe

WORKDIR = "/testbed"  # where commands begin, and where the workspace is shown
VENV = "/opt/venv"  # where an instance's virtual environment is shown


@dataclass(frozen=True, kw_only=True)
class Base:
    """What is there before the first command; nothing else of the host is seen but /usr.

    None of it is ever written to. Where the trainer is root, tree, layers and rootfs become the sandbox user's (the
    first time that they are opened, see `owner.py`), because no command runs as root.
    """

    tree: Path | None  # the sanitised workspace, shown at WORKDIR, writable by copy; None where an image holds it
    layers: tuple[Path, ...] = ()  # folders laid over `tree`, the last one on top: a file there hides one below
    venv: Path | None = None  # shown read-only at VENV, its bin first in PATH
    rootfs: Path | None = None  # an exported root filesystem in place of the host's /usr; writable by copy
    image: str | None = None  # a container image, for podman and docker only


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one episode may use. Sizes in bytes, times in seconds."""

    command_s: float = 60.0  # wall clock of one command; then everything that it started is killed
    processes: int = 128  # at once
    address_space: int = 4 << 30  # of one process
    resident: int = 3 << 30  # of all processes together
    file_size: int = 256 << 20  # of one file
    workspace: int = 1 << 30  # of all that is written in the workspace
    workspace_files: int = 200_000
    temporary: int = 256 << 20  # of /tmp, and of /dev/shm
    output_kept: int = 64 << 10  # of a command's output: half from its beginning, half from its end
    output_killed: int = 64 << 20  # a command that writes more is killed


Why = Literal["", "timeout", "oom", "output_flood", "too_large"]


@dataclass(frozen=True, kw_only=True)
class ExecResult:
    """How one command ended."""

    exit_code: (
        int | None
    )  # None where it was killed by us; 128 + n where signal n killed it; 127: no shell is left; 126: no room
    output: bytes  # both streams as they came, head and tail of it where `elided` > 0
    elided: int = 0  # bytes left out between head and tail; they are left out after the first half of `output_kept`
    why: Why = ""  # why it was killed, or (too_large, before it began) refused
    wall_s: float = 0.0
    peak_resident: int = 0  # bytes, of all its processes together, as far as it was looked at


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A regular file that was made or changed, or one that is gone."""

    path: str  # within the workspace, with /, never absolute and never with ..
    content: bytes | None  # None: it is gone
    executable: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeSet:
    """What an episode has changed in its workspace. Links and special files are named, never followed."""

    files: tuple[FileChange, ...]  # sorted by path
    dropped: tuple[str, ...] = ()  # paths of links, sockets, devices; of names that are no UTF-8
    too_large: str = ""  # what was too much, in words; `files` is empty then


class Sandbox(Protocol):
    """One episode's workspace. Used by one thread at a time."""

    def run(
        self,
        command: str,
        *,
        wall_s: float | None = None,
        environment: Mapping[str, str] | None = None,
        shown: Mapping[str, bytes] | None = None,
        reports: Sequence[str] = (),
    ) -> ExecResult:
        """Runs `command` by bash in WORKDIR; returns as soon as that bash has ended, whatever it left running.

        What it left running is killed. The next command begins anew, in the files that this one left in WORKDIR and
        in /tmp.

        Args:
            command: at most 512 KiB, without NUL; `why` is "too_large" for a longer one.
            wall_s: in place of the limits' `command_s`.
            environment: variables besides PATH, HOME and the few that keep tools from asking.
            shown: files by absolute path that this command alone sees, read-only, some hundred at most; one that
                begins with #! is a program. What the policy has put there waits below, but for links and folders in
                the way, which are removed.
            reports: absolute paths of files, empty as it begins, that it can write and neither remove nor replace; read
                them with `report`.

        Raises:
            SandboxFailure: the sandbox could not be used. Nobody's fault who plays: the episode has failed.
        """
        ...

    def report(self, path: str, *, max_bytes: int = 4 << 20) -> bytes:
        """What the last command wrote into one of its `reports`, cut at `max_bytes`."""
        ...

    def changes(self, *, max_files: int = 100, max_bytes: int = 1 << 20) -> ChangeSet:
        """What differs from the base, by its files and not by git; of WORKDIR only.

        The books of tools (.git, __pycache__, .pytest_cache and the like) are not looked at, at any depth.

        Raises:
            SandboxFailure: as for `run`.
        """
        ...

    def close(self) -> None:
        """Ends every process and frees every byte; takes less than a second; may be called twice."""
        ...


class Backend(Protocol):
    """Opens sandboxes; safe to use from many threads."""

    def probe(self) -> Sequence[Probe]:
        """Tries what must hold on this machine, for the doctor and before a run; opens and closes its own sandboxes."""
        ...

    def open(self, base: Base, limits: Limits) -> Sandbox:
        """A fresh workspace.

        Raises:
            SandboxFailure: it could not be made.
        """
        ...
