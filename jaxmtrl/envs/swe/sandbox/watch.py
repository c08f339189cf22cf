"""Sees one command to its end: drains what it writes, looks at its memory, kills it when it is too much or too long.

It waits for the end of the command and never for the end of its output, which a process left behind may hold open.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass

from jaxmtrl.envs.swe.sandbox.api import Limits, Why
from jaxmtrl.envs.swe.sandbox.memory import resident
from jaxmtrl.envs.swe.sandbox.output import Output
from jaxmtrl.errors import SandboxFailure

_LOOK_S = 0.25  # between two looks at its memory
_PIECE = 1 << 16
_DEATH_S = 5.0  # after SIGKILL


@dataclass(frozen=True, kw_only=True)
class End:
    """How a command ended, and what it left to read."""

    why: Why
    exit_code: int | None  # of the command; None: it was killed by us, or never began
    output: bytes
    elided: int
    wall_s: float
    peak_resident: int


class Watch:
    """One command, from its start to the death of all that it started.

    Args:
        process: bwrap, or whatever else carries the command.
        output: descriptor that both streams of the command come from.
        status: descriptor that bwrap's --json-status-fd writes to. None: `process` is the command itself, and its
            process group what it has started.
    """

    def __init__(self, process: subprocess.Popen, *, output: int, status: int | None, limits: Limits):
        self._process = process
        self._output_from = output
        self._status_from = status
        self._limits = limits
        self._output = Output(limits.output_kept)
        self._status = b""
        self._first: int | None = process.pid if status is None else None  # the process that is the tree's root
        self._first_death: int | None = None  # its pidfd
        self._peak = 0

    def to_the_end(self, wall_s: float) -> End:
        """Returns when the command has ended, or `wall_s` after now at the latest."""
        began = time.monotonic()
        for descriptor in (self._output_from, self._status_from):
            if descriptor is not None:
                os.set_blocking(descriptor, False)
        death = os.pidfd_open(self._process.pid)
        try:
            why = self._wait(death, began, began + wall_s)
            self._bury()
        finally:
            os.close(death)
            if self._first_death is not None:
                os.close(self._first_death)
        return End(
            why=why,
            exit_code=None if why else self._exit_code(),
            output=self._output.kept,
            elided=self._output.elided,
            wall_s=time.monotonic() - began,
            peak_resident=self._peak,
        )

    def _wait(self, death: int, now: float, deadline: float) -> Why:
        poll = select.poll()
        for descriptor in (death, self._output_from, self._status_from):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        look = now + _LOOK_S
        while True:
            ready = [found for found, _ in poll.poll(max(0.0, min(look, deadline) - now) * 1000 + 1)]
            if self._output_from in ready and not self._drain():
                poll.unregister(self._output_from)
            if self._status_from is not None and self._status_from in ready and not self._learn():
                poll.unregister(self._status_from)
            if death in ready:
                return ""
            now = time.monotonic()
            if self._output.total > self._limits.output_killed:
                return "output_flood"
            if now >= look:
                look = now + _LOOK_S
                if self._first is not None:
                    self._peak = max(self._peak, resident(self._first))
                if self._peak > self._limits.resident:
                    return "oom"
            if now >= deadline:
                return "timeout"

    def _drain(self) -> bool:
        """Takes in what is there, for a moment; False at the end of the stream."""
        for _ in range(16):
            try:
                data = os.read(self._output_from, _PIECE)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._output.feed(data)
        return True

    def _learn(self) -> bool:
        """Reads what bwrap tells; False when it will tell no more."""
        assert self._status_from is not None
        try:
            data = os.read(self._status_from, _PIECE)
        except BlockingIOError:
            return True
        self._status += data
        if self._first is None and b"\n" in self._status:
            pid = self._told("child-pid")
            if pid is not None and _begins_a_namespace(pid):
                self._first = pid
                self._first_death = _death_of(pid)
        return bool(data)

    def _told(self, name: str) -> int | None:
        for line in self._status.splitlines():
            try:
                value = json.loads(line).get(name)
            except ValueError:  # cut short by a kill
                continue
            if isinstance(value, int):
                return value
        return None

    def _bury(self) -> None:
        """Kills what is left, waits until it is dead, and reads what it had written."""
        try:  # with a child of bwrap that has not begun yet: alone it would wait for its parent's word for ever
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.kill()
        if self._status_from is not None:
            self._learn()
        try:
            self._process.wait(_DEATH_S)
        except subprocess.TimeoutExpired as err:
            raise SandboxFailure("a command could not be killed: the process that carries it does not die") from err
        if self._first_death is not None:
            _end(self._first_death)
        while self._output.total <= 2 * self._limits.output_killed:
            before = self._output.total
            if not self._drain() or self._output.total == before:
                break
        while self._status_from is not None:
            before = len(self._status)
            if not self._learn() or len(self._status) == before:
                break

    def _exit_code(self) -> int | None:
        if self._status_from is not None:
            return self._told("exit-code")
        code = self._process.returncode
        return 128 - code if code < 0 else code


def _begins_a_namespace(pid: int) -> bool:
    """Whether `pid` is process 1 of a namespace of its own: no number that has been used again meanwhile."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            names = next((line for line in file if line.startswith(b"NSpid:")), b"").split()
    except OSError:
        return False
    return len(names) > 2 and names[-1] == b"1"


def _death_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _end(death: int) -> None:
    """Kills process 1 of a namespace; it is dead only when all others in there are."""
    try:
        signal.pidfd_send_signal(death, signal.SIGKILL)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(death, select.POLLIN)
    if not poll.poll(_DEATH_S * 1000):
        raise SandboxFailure("a command could not be killed: some of what it started does not die")
