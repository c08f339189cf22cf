"""The parent's hold on one worker of whatever kind: what it has been asked, and until when it must have answered.

Decides nothing: which worker plays what, and what a loss means for episodes, is `pool.py`. Knows no process and no
channel either: how a worker is started, spoken to and ended is its kind's, `process.py` or `ray_pool.py`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxmtrl.rollout.worker import Reply, Request, frame

CLOSE_S = 1.0  # what environments get to close
LIVENESS_S = 0.5  # how often the end of a process is looked at, besides its channel, which may not tell
_AHEAD_MESSAGES, _AHEAD_BYTES = 16, 32 * 1024  # what may lie with a worker unanswered; far below a socket's buffer

# Given handles and seconds, those that have something to tell; [] when the seconds are over.
Wait = Callable[[Sequence[Any], float], Sequence[Any]]


@dataclass(eq=False)
class OpenEpisode:
    """An episode between reset and release."""

    number: int  # the caller's
    task_id: str
    worker: Worker
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


class Worker(ABC):
    """Whoever answers messages one by one in the order of `send`, after a first reply that tells of the start.

    A few messages are handed over ahead of their turn, so that a worker is not idle while this process is busy with
    the device. A deadline belongs to the oldest unanswered message and counts from when the worker was free for it.
    """

    shares_clock = False  # whether its time.monotonic() is this process's
    number = -1  # of this worker in its pool

    def __init__(self, startup_s: float):
        """`startup_s`: seconds until it must be ready, counted from here."""
        self.ready, self.closing = False, False
        self.finished = 0  # episodes played and released
        self.answered = 0  # requests, equal to the serial of the last reply
        self.since = 0.0  # when the oldest unanswered message could begin (or the worker was started)
        self.deadline: float | None = None  # on time.monotonic(); None while nothing is asked
        self.episodes: dict[int, OpenEpisode] = {}
        self.queue: deque[Message] = deque()  # not handed over yet
        self.in_flight: deque[tuple[Message, int]] = deque()  # handed over, with their sizes [bytes]
        self._serial = 0
        self._free_seats: list[int] = []
        self._seats = 0
        self._begin(startup_s)

    @property
    @abstractmethod
    def handles(self) -> Sequence[Any]:
        """What the kind's `Wait` takes: at least one of them speaks up when `read` has something to return."""

    @abstractmethod
    def read(self) -> tuple[list[Reply], str]:
        """Takes what the worker has sent; call it when a handle has spoken up.

        Returns:
            Complete replies, and "" or what is wrong with the worker, as the end of a sentence about it.
        """

    @abstractmethod
    def kill(self) -> None:
        """Ends the worker with all that it started and frees what it held; never raises."""

    @abstractmethod
    def _hand_over(self, data: bytes) -> None:
        """Sends a framed request. Never raises: a worker that cannot hear is noticed where it is read."""

    @property
    def busy(self) -> bool:
        return bool(self.in_flight or self.queue)

    def silent_end(self) -> str:
        """How it ended, as the end of a sentence about it; "" while it has not, or where a handle is sure to tell."""
        return ""

    def overrun_text(self) -> str:
        """What it did when its deadline was over, as the end of a sentence about it."""
        return f"hung for {time.monotonic() - self.since:.1f} s"

    def time_of(self, reply: Reply) -> tuple[float, float]:
        """When work on the oldest unanswered message began and ended; as seen from here, if the clock is another's."""
        if self.shares_clock and reply.ended:
            return reply.began, reply.ended
        return self.since, time.monotonic()

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

    def set_ready(self) -> None:
        """Notes that the worker has started; hands over what was queued meanwhile."""
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
        """Lets an idle worker close its environments and exit; `read` tells when it has."""
        if self.busy or self.closing:
            return
        self.closing = True
        self._hand_over(frame(Request(self._next_serial(), "close")))
        self._begin(CLOSE_S)

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
            self._hand_over(data)


def wait_for_any(workers: Sequence[Worker], wait: Wait, wait_s: float) -> list[Worker]:
    """Those of `workers` that have sent something or have ended; [] after `wait_s` seconds."""
    owners = {handle: worker for worker in workers for handle in worker.handles}
    heard = {id(owners[handle]) for handle in wait(list(owners), wait_s)}
    return [worker for worker in workers if id(worker) in heard]


def close_all(workers: list[Worker], wait: Wait) -> None:
    """Ends all `workers` within about a second and empties the list: asks those that can hear, then kills."""
    for worker in workers:
        worker.queue.clear()
        worker.in_flight.clear()
        if worker.ready:
            worker.ask_to_close()
    closing = [worker for worker in workers if worker.ready]
    end = time.monotonic() + CLOSE_S
    while closing and (left_s := end - time.monotonic()) > 0:
        for worker in wait_for_any(closing, wait, left_s):
            _, what = worker.read()  # whoever is still answering is read, so that it gets on to closing
            if what:
                closing.remove(worker)
    for worker in workers:
        worker.kill()
    workers.clear()
