"""The parent's hold on one worker process: its channel, what it has been asked, and how it is ended.

Decides nothing: which worker plays what, and what a loss means for episodes, is `pool.py`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jaxmtrl.rollout.worker import FrameReader, ProtocolError, Reply, Request, frame, run

_AHEAD_MESSAGES, _AHEAD_BYTES = 16, 32 * 1024  # what may lie in a channel unanswered; far below a socket's buffer
_SEND_TIMEOUT_S = 5.0  # only a stopped process leaves a message unread for so long
_CLOSE_S = 1.0  # what environments get to close
_PARTIAL_S = 1.0  # what a worker gets to send the rest of a message, if its deadline passes while we read
_EXIT_S = 0.2  # from the end of a channel to the exit of its process
_READ_BYTES = 1 << 20


@dataclass(eq=False)
class OpenEpisode:
    """An episode between reset and release."""

    number: int  # the caller's
    task_id: str
    worker: WorkerProcess
    seat: int
    turns: int = 0  # actions queued so far
    failed: bool = False
    released: bool = False


@dataclass(frozen=True)
class Message:
    """One thing to ask of a worker."""

    episode: OpenEpisode
    kind: Literal["reset", "step", "admissible"]
    payload: bytes | str
    turn: int  # 0 for the reset
    timeout_s: float

    @property
    def where(self) -> str:
        where = f"step {self.turn}" if self.turn else "reset"
        return where if self.kind != "admissible" else f"the list of admissible actions after {where}"


@dataclass(eq=False)
class WorkerProcess:
    """A spawned worker. Messages are answered one by one in the order of `send`.

    A few messages are handed over ahead of their turn, so that a worker is not idle while this process is busy with
    the device. A deadline belongs to the oldest unanswered message and counts from when the worker was free for it.
    """

    factory: str
    options: Mapping[str, Any]
    start_folder: str
    startup_s: float
    name_states: bool = False
    ready: bool = False
    closing: bool = False
    finished: int = 0  # episodes played and released
    answered: int = 0  # requests, equal to the serial of the last reply
    since: float = 0.0  # when the oldest unanswered message could begin (or the process started)
    deadline: float | None = None  # on time.monotonic(); None while nothing is asked
    episodes: dict[int, OpenEpisode] = field(default_factory=dict)
    queue: deque[Message] = field(default_factory=deque)  # not handed over yet
    in_flight: deque[tuple[Message, int]] = field(default_factory=deque)  # handed over, with their sizes [bytes]

    def __post_init__(self) -> None:
        self._reader, self._serial = FrameReader(), 0
        self._free_seats: list[int] = []
        self._seats = 0
        self.folder = tempfile.mkdtemp(prefix="jaxmtrl-worker-")
        self.channel, other_end = socket.socketpair()
        self.channel.settimeout(_SEND_TIMEOUT_S)
        # spawn: a fork of a process that runs jax deadlocks; daemon: multiprocessing ends what we could not.
        self.process = multiprocessing.get_context("spawn").Process(
            target=run,
            args=(other_end, self.factory, self.options, self.start_folder, self.folder, self.name_states),
            name="environment-worker",
            daemon=True,
        )
        with other_end:
            self.process.start()
        self._begin(self.startup_s)

    @property
    def busy(self) -> bool:
        return bool(self.in_flight or self.queue)

    def take_seat(self) -> int:
        """A seat no open episode sits on; one that has an environment already, if possible."""
        if self._free_seats:
            return self._free_seats.pop()
        self._seats += 1
        return self._seats - 1

    def give_back(self, episode: OpenEpisode) -> None:
        """Frees the seat of an episode. What it was asked comes before a later reset of the seat, so none waits."""
        del self.episodes[episode.number]
        self.forget(episode)
        self._free_seats.append(episode.seat)
        self.finished += 1

    def forget(self, episode: OpenEpisode) -> None:
        """Drops messages of an episode that have not been handed over."""
        if any(message.episode is episode for message in self.queue):
            self.queue = deque(message for message in self.queue if message.episode is not episode)

    def send(self, message: Message) -> None:
        self.queue.append(message)
        self._dispatch()

    def read(self) -> tuple[list[Reply], str]:
        """Takes what the channel has; call it when there is something.

        Returns:
            Complete replies, and "" or what is wrong with the worker, as the end of a sentence about it.
        """
        try:
            data = self.channel.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            return [], self.exit_text()
        if self.deadline is not None:
            self.deadline = max(self.deadline, time.monotonic() + _PARTIAL_S)
        try:
            replies = self._reader.feed(data)
        except ProtocolError as err:
            return [], f"sent something that is no reply ({err})"
        if not all(isinstance(reply, Reply) for reply in replies):
            return [], "sent something that is no reply"
        return replies, ""

    def drain(self) -> bool:
        """Reads without listening, so that a worker that is answering gets on to closing; True at the end."""
        try:
            return not self.channel.recv(_READ_BYTES)
        except OSError:
            return True

    def set_ready(self) -> None:
        """Notes that the process has started; hands over what was queued meanwhile."""
        self.ready, self.deadline = True, None
        self._dispatch()

    def answer(self, reply: Reply) -> Message | None:
        """The message that `reply` answers, which is then done with; None if nobody asked for it."""
        if not self.in_flight or reply.serial != self.answered + 1:
            return None
        self.answered += 1
        message, _ = self.in_flight.popleft()
        self.deadline = None
        if self.in_flight:
            self._begin(self.in_flight[0][0].timeout_s)
        self._dispatch()
        return message

    def ask_to_close(self) -> None:
        """Lets an idle worker close its environments and exit; its channel ends when it has."""
        if self.busy or self.closing:
            return
        self.closing = True
        self._write(frame(Request(self._next_serial(), "close")))
        self._begin(_CLOSE_S)

    def exit_text(self) -> str:
        """How the process ended, for a sentence about it; waits a moment for it to do so."""
        self.process.join(_EXIT_S)
        code = self.process.exitcode
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
        with contextlib.suppress(OSError, ValueError):
            self.process.kill()
            self.process.join(_CLOSE_S)
            self.process.close()
        self.channel.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self, timeout_s: float) -> None:
        self.since = time.monotonic()
        self.deadline = self.since + timeout_s

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _dispatch(self) -> None:
        while self.ready and self.queue and len(self.in_flight) < _AHEAD_MESSAGES:
            message = self.queue[0]
            data = frame(Request(self._serial + 1, message.kind, message.episode.seat, message.payload))
            if self.in_flight and len(data) + sum(size for _, size in self.in_flight) > _AHEAD_BYTES:
                return
            self.queue.popleft()
            self._next_serial()
            if not self.in_flight:
                self._begin(message.timeout_s)
            self.in_flight.append((message, len(data)))
            self._write(data)

    def _write(self, data: bytes) -> None:
        # A dead worker's channel ends and a stopped one overruns its deadline: both are noticed where it is read.
        with contextlib.suppress(OSError):
            self.channel.sendall(data)


def wait_for_any(workers: list[WorkerProcess], wait_s: float) -> list[WorkerProcess]:
    """Those of `workers` that have sent something or whose channel has ended; [] after `wait_s` seconds."""
    heard = multiprocessing.connection.wait([worker.channel for worker in workers], wait_s)
    return [worker for worker in workers if worker.channel in heard]


def close_all(workers: list[WorkerProcess]) -> None:
    """Ends all `workers` within about a second and empties the list: asks those that can hear, then kills."""
    for worker in workers:
        worker.queue.clear()
        worker.in_flight.clear()
        if worker.ready:
            worker.ask_to_close()
    closing = [worker for worker in workers if worker.ready]
    end = time.monotonic() + _CLOSE_S
    while closing and (left_s := end - time.monotonic()) > 0:
        for worker in wait_for_any(closing, left_s):
            if worker.drain():
                closing.remove(worker)
    for worker in workers:
        worker.kill()
    workers.clear()
