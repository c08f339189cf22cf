"""A spawned process that plays environments: how it is started, spoken to and ended.

What the parent has asked of it, and what its loss means, is `hold.py` and `pool.py`; what runs in it, `worker.py`.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import multiprocessing.connection
import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmtrl.rollout.hold import CLOSE_S, LIVENESS_S, Worker
from jaxmtrl.rollout.worker import FrameReader, ProtocolError, Reply, run

_SEND_TIMEOUT_S = 5.0  # only a stopped process leaves a message unread for so long
_PARTIAL_S = 1.0  # what a worker gets to send the rest of a message, if its deadline passes while we read
_EXIT_S = 0.2  # from the end of a channel to the exit of its process
_READ_BYTES = 1 << 20


class ChildProcess:
    """One spawned process, its channel and its private folder; it dies with the process that made it.

    One thread writes and reads; any thread may ask how it is, wait for its end, or kill it.
    """

    def __init__(self, factory: str, options: Mapping[str, Any], start_folder: str, name_states: bool):
        """Starts it and returns at once; the arguments are those of `worker.run`."""
        self._reader = FrameReader()
        self._lock = threading.Lock()  # two threads that ask the kernel for an exit code take it from each other
        self.folder = tempfile.mkdtemp(prefix="jaxmtrl-worker-")
        self.channel, other_end = socket.socketpair()
        self.channel.settimeout(_SEND_TIMEOUT_S)
        # spawn: a fork of a process that runs jax deadlocks; daemon: multiprocessing ends what we could not.
        self.process = multiprocessing.get_context("spawn").Process(
            target=run,
            args=(other_end, factory, options, start_folder, self.folder, name_states),
            name="environment-worker",
            daemon=True,
        )
        with other_end:
            self.process.start()

    def write(self, data: bytes) -> None:
        """Sends bytes. A dead process's channel ends and a stopped one overruns its deadline, so nothing is raised."""
        with contextlib.suppress(OSError):
            self.channel.sendall(data)

    def read(self) -> tuple[list[Reply], str]:
        """As `Worker.read`; waits if the channel has nothing."""
        try:
            data = self.channel.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            return [], self.exit_text()
        try:
            replies = self._reader.feed(data)
        except ProtocolError as err:
            return [], f"sent something that is no reply ({err})"
        if not all(isinstance(reply, Reply) for reply in replies):
            return [], "sent something that is no reply"
        return replies, ""

    def is_alive(self) -> bool:
        """Asks the kernel, which knows it even where a process that the environment forked holds the channel open."""
        try:
            with self._lock:
                return self.process.is_alive()
        except ValueError:  # killed, and freed
            return False

    def wait(self) -> None:
        """Returns when the process has ended."""
        while self.is_alive():
            with contextlib.suppress(ValueError):
                multiprocessing.connection.wait([self.process.sentinel], LIVENESS_S)

    def exit_text(self) -> str:
        """How the process ended, for a sentence about it; waits a moment for it to do so."""
        try:
            with self._lock:
                self.process.join(_EXIT_S)
                code = self.process.exitcode
        except ValueError:
            return "was ended"
        if code is None:
            return "closed its channel"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def kill(self) -> None:
        """Ends the process with all its children, frees what it held here and removes its folder; never raises."""
        pid = self.process.pid
        if pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)  # no such group if it died before it made its own
        with contextlib.suppress(OSError, ValueError), self._lock:
            self.process.kill()
            self.process.join(CLOSE_S)
            self.process.close()
        self.channel.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class WorkerProcess(Worker):
    """A worker that is a child of this process."""

    shares_clock = True

    def __init__(
        self, factory: str, options: Mapping[str, Any], start_folder: str, *, name_states: bool, startup_s: float
    ):
        self.child = ChildProcess(factory, options, start_folder, name_states)
        super().__init__(startup_s)

    @property
    def handles(self) -> Sequence[Any]:
        return (self.child.channel,)

    def read(self) -> tuple[list[Reply], str]:
        replies, what = self.child.read()
        if self.deadline is not None and not what:
            self.deadline = max(self.deadline, time.monotonic() + _PARTIAL_S)
        return replies, what

    def silent_end(self) -> str:
        return "" if self.child.is_alive() else self.child.exit_text()

    def kill(self) -> None:
        self.child.kill()

    def _hand_over(self, data: bytes) -> None:
        self.child.write(data)


def wait_for_channels(channels: Sequence[Any], wait_s: float) -> Sequence[Any]:
    """The `Wait` of WorkerProcess. Bare `poll`: it is asked once a step, and a selector costs as much as the rest."""
    poll = select.poll()
    by_number = {channel.fileno(): channel for channel in channels}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(math.ceil(1e3 * wait_s))]
