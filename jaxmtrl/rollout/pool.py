"""Workers that play environments: episodes in, events out, and whatever breaks costs as little as it can.

Knows tasks, actions and observations as strings; knows nothing of tokens, models or batches. What happens inside
a worker is `worker.py`; the kind of worker that a cluster runs is `ray_pool.py`.
"""

from __future__ import annotations

import atexit
import os
import pickle
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, Self

from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.rollout.hold import LIVENESS_S, Message, OpenEpisode, Wait, Worker, close_all, wait_for_any
from jaxmtrl.rollout.process import WorkerProcess, wait_for_channels
from jaxmtrl.rollout.worker import Reply
from jaxmtrl.types import StepResult, Task

_START_FAILURES = 3  # consecutive ones, after which the environment is taken to be broken


@dataclass(frozen=True)
class Work:
    """A worker's time on one message."""

    worker: int  # its number in the pool, counted from 0; whoever replaces it has another
    began: float  # [s], on time.monotonic()
    ended: float


@dataclass(frozen=True, kw_only=True)
class PoolEvent:
    """What became of one message of one episode."""

    episode: int
    kind: Literal["observation", "step", "admissible", "failure"]
    observation: str = ""  # of a reset
    state: str = ""  # after a reset or step, where names of states are wanted and the environment has them
    step: StepResult | None = None  # of a step
    admissible: tuple[str, ...] | None = None  # what could be done, or None if the environment does not know
    failure: str = ""  # environment, task, turn and what happened; an episode fails once, then nothing follows
    work: Work | None = None  # who was at it when, if a worker was


class EnvPool(Protocol):
    """Plays many episodes at once. Calls queue work and return; `receive` waits for what comes of it."""

    def reset(self, episode: int, task: Task) -> None:
        """Queues the opening of `episode`, any number that no open episode has."""
        ...

    def step(self, episode: int, action: str) -> None:
        """Queues one action of an open episode."""
        ...

    def ask_admissible(self, episode: int) -> None:
        """Queues the question which actions of an open episode would do something now."""
        ...

    def release(self, episode: int) -> None:
        """Says that the caller is done with an episode, ended, failed or given up; twice does no harm."""
        ...

    def receive(self, timeout_s: float | None) -> list[PoolEvent]:
        """Waits for at least one event; [] after `timeout_s` seconds without any, None waits as long as it takes."""
        ...

    def close(self) -> None:
        """Ends every worker; twice does no harm."""
        ...


class WorkerPool:
    """Workers of one kind, each with several environments.

    - A worker does one message at a time, in order; a deadline counts from the moment the worker was free for it.
    - A worker that overruns it, exits, or sends what is no message is killed with all its children and replaced; each
      of its open episodes gets one failure event. What an environment raises costs its own episode only.
    - Episodes go to the worker with the fewest open ones. The pool draws no random number and tasks carry their
      seeds, so an episode is the same however many workers there are.
    - After `recycle_after` finished episodes a successor takes a worker's place, and the old one ends with its last
      open episode. One worker is on its way out at a time, so memory grows by one worker at most.

    For use from one thread. Also a context manager; open pools are closed when the interpreter exits.
    """

    def __init__(
        self,
        factory: str,
        start: Callable[[], Worker],
        wait: Wait,
        *,
        workers: int,
        step_timeout_s: float,
        reset_timeout_s: float,
        recycle_after: int,
    ):
        """Starts `workers` workers and returns without waiting for them.

        Args:
            factory: what they play, for messages.
            start: starts one worker and returns at once.
            wait: waits for the handles of such workers.
            step_timeout_s, reset_timeout_s: deadlines of one step and one reset.
            recycle_after: finished episodes after which a worker is replaced; 0 never.
        """
        self._factory, self._start_worker, self._wait = factory, start, wait
        self._step_timeout_s, self._reset_timeout_s = step_timeout_s, reset_timeout_s
        self._recycle_after = recycle_after
        self._episodes: dict[int, OpenEpisode] = {}
        self._events: list[PoolEvent] = []
        self._started, self._start_failures, self._broken = 0, 0, ""
        self._liveness_at = 0.0
        self._alive: list[Worker] = []  # every worker, those on their way out included
        # Closed by `close`, by garbage collection, or at exit before multiprocessing waits for its children.
        self._finalizer = weakref.finalize(self, close_all, self._alive, wait)
        self._finalizer.atexit = False
        atexit.register(self._finalizer)
        self._slots = [self._start() for _ in range(workers)]  # who takes new episodes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def reset(self, episode: int, task: Task) -> None:
        """See EnvPool. Raises ValueError if `episode` is open, EnvironmentFailure if no worker can be started."""
        self._refuse_if_unusable()
        if episode in self._episodes:
            raise ValueError(f"episode {episode} is open; release it or choose another number")
        worker = min(self._slots, key=lambda worker: len(worker.episodes))  # the first of equals
        opened = OpenEpisode(number=episode, task_id=task.id, worker=worker, seat=worker.take_seat())
        self._episodes[episode] = opened
        worker.episodes[episode] = opened
        try:
            payload = pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as err:
            self._fail(opened, 0, f"the task cannot be pickled: {err!r}")
            return
        worker.send(Message(opened, "reset", payload, turn=0, timeout_s=self._reset_timeout_s))

    def step(self, episode: int, action: str) -> None:
        """See EnvPool. A failure event may be on its way already; then this does nothing.

        Raises:
            ValueError: `episode` is not open, or the caller has been told that it failed.
        """
        opened = self._open(episode)
        if opened is not None:
            opened.turns += 1
            opened.worker.send(Message(opened, "step", action, turn=opened.turns, timeout_s=self._step_timeout_s))

    def ask_admissible(self, episode: int) -> None:
        """See EnvPool; fails and raises as `step` does."""
        opened = self._open(episode)
        if opened is not None:
            opened.worker.send(Message(opened, "admissible", "", turn=opened.turns, timeout_s=self._step_timeout_s))

    def release(self, episode: int) -> None:
        """See EnvPool. Events of the episode that the caller has not received yet are dropped."""
        opened = self._episodes.pop(episode, None)
        if opened is None:
            return
        opened.released = True
        self._events = [event for event in self._events if event.episode != episode]
        worker = opened.worker
        if worker in self._alive:
            worker.give_back(opened)
            self._recycle(worker)

    def receive(self, timeout_s: float | None) -> list[PoolEvent]:
        """See EnvPool.

        Raises:
            EnvironmentFailure: workers failed to start three times in a row; carries the last one's traceback.
            ValueError: nothing is under way and there is no timeout, so it would wait for ever.
        """
        self._refuse_if_unusable()
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if end is None and not self._events and not any(worker.busy for worker in self._alive):
                raise ValueError("receive(None) would wait for ever: no episode has a message under way")
            self._poll(0.0 if self._events else self._wait_s(end))
            self._refuse_if_unusable()
            if self._events or (end is not None and time.monotonic() >= end):
                events, self._events = self._events, []
                return events

    def close(self) -> None:
        """See EnvPool. Environments get a second to close; then workers are killed with their children."""
        self._finalizer()
        atexit.unregister(self._finalizer)
        self._slots, self._episodes, self._events = [], {}, []

    def _open(self, episode: int) -> OpenEpisode | None:
        """The open episode of this number; None if it failed and its event has not been received yet."""
        self._refuse_if_unusable()
        opened = self._episodes.get(episode)
        if opened is None:
            raise ValueError(f"episode {episode} is not open; reset it first")
        if not opened.failed:
            return opened
        if not any(event.episode == episode for event in self._events):
            raise ValueError(f"episode {episode} has failed; release it")
        return None

    def _refuse_if_unusable(self) -> None:
        if not self._finalizer.alive:
            raise ValueError("the pool is closed")
        if self._broken:
            raise EnvironmentFailure(self._broken)

    def _start(self) -> Worker:
        worker = self._start_worker()
        worker.number, self._started = self._started, self._started + 1
        self._alive.append(worker)
        return worker

    def _wait_s(self, end: float | None) -> float:
        """Seconds until the next moment at which something must be looked at."""
        now = time.monotonic()
        moments = [worker.deadline for worker in self._alive if worker.deadline is not None]
        if end is not None:
            moments.append(end)
        return max(0.0, min([now + LIVENESS_S, *moments]) - now)

    def _poll(self, wait_s: float) -> None:
        """Takes in whatever workers have sent, then looks for overrun deadlines and silent deaths."""
        for worker in wait_for_any(self._alive, self._wait, wait_s):
            self._read(worker)
        now = time.monotonic()
        overrun = [worker for worker in self._alive if worker.deadline is not None and now >= worker.deadline]
        for worker in overrun:
            self._lose(worker, worker.overrun_text())
        if now - self._liveness_at >= LIVENESS_S:
            self._liveness_at = now
            for worker, what in [(worker, worker.silent_end()) for worker in self._alive]:
                if what and not wait_for_any([worker], self._wait, 0.0):
                    self._lose(worker, what)

    def _read(self, worker: Worker) -> None:
        replies, what = worker.read()
        for reply in replies:
            if worker in self._alive:
                self._take(worker, reply)
        if what and worker in self._alive:
            self._lose(worker, what)

    def _take(self, worker: Worker, reply: Reply) -> None:
        if not worker.ready:
            if reply.kind != "ready":
                self._lose(worker, str(reply.payload))
                return
            self._start_failures = 0
            worker.set_ready()
            return
        began, ended = worker.time_of(reply)
        message = worker.answer(reply)
        if message is None:
            self._lose(worker, "sent a reply that nobody asked for")
            return
        if not message.episode.released and not message.episode.failed:
            self._tell(message, reply, Work(worker.number, began, ended))
        self._recycle(worker)

    def _tell(self, message: Message, reply: Reply, work: Work) -> None:
        number = message.episode.number
        if reply.kind == "failure":
            self._fail(message.episode, message.turn, f"{message.where} {reply.payload}", work)
        elif reply.kind == "admissible":
            known = reply.payload if isinstance(reply.payload, tuple) else None
            self._events.append(PoolEvent(episode=number, kind="admissible", admissible=known, work=work))
        elif isinstance(reply.payload, StepResult):
            self._events.append(
                PoolEvent(episode=number, kind="step", step=reply.payload, state=reply.state, work=work)
            )
        else:
            observation = str(reply.payload)
            self._events.append(
                PoolEvent(episode=number, kind="observation", observation=observation, state=reply.state, work=work)
            )

    def _fail(self, opened: OpenEpisode, turn: int, what: str, work: Work | None = None) -> None:
        if opened.failed:
            return
        opened.failed = True
        opened.worker.forget(opened)
        text = f"{self._factory}, task {opened.task_id!r}, turn {turn}: {what}"
        self._events.append(PoolEvent(episode=opened.number, kind="failure", failure=text, work=work))

    def _lose(self, worker: Worker, what: str) -> None:
        """Ends a worker that is of no use, fails its open episodes and puts another in its place."""
        worker.kill()
        self._alive.remove(worker)
        guilty = worker.in_flight[0][0] if worker.in_flight else None
        if not worker.ready:
            self._note_start_failure(what)
        for opened in list(worker.episodes.values()):
            if not worker.ready:
                self._fail(opened, 0, f"its worker's start {what}")
            elif guilty is not None and guilty.episode is opened:
                work = Work(worker.number, worker.since, time.monotonic())
                self._fail(opened, guilty.turn, f"{what} in {guilty.where}; the worker was killed and replaced", work)
            else:
                where = f" in {guilty.where} of task {guilty.episode.task_id!r}" if guilty is not None else ""
                self._fail(opened, opened.turns, f"was lost with its worker, which {what}{where}")
        if worker in self._slots and not self._broken:
            self._slots[self._slots.index(worker)] = self._start()

    def _note_start_failure(self, what: str) -> None:
        self._start_failures += 1
        if self._start_failures >= _START_FAILURES:
            self._broken = (
                f"{self._factory} cannot be used: workers failed to start {self._start_failures} times in a row. "
                f"Correct env.factory or env.options, or install what it needs. The last start {what}"
            )

    def _recycle(self, worker: Worker) -> None:
        """Moves a worker that has played its share out of the way, and ends one that is out and has no episode."""
        due = 0 < self._recycle_after <= worker.finished
        if due and worker in self._slots and len(self._alive) == len(self._slots):
            self._slots[self._slots.index(worker)] = self._start()
        if worker not in self._slots and not worker.episodes:
            worker.ask_to_close()


class MultiprocessPool(WorkerPool):
    """Spawned worker processes on this machine."""

    def __init__(
        self,
        factory: str,
        options: Mapping[str, Any],
        *,
        workers: int,
        step_timeout_s: float,
        reset_timeout_s: float,
        recycle_after: int,
        startup_allowance_s: float = 30.0,
        name_states: bool = False,
        called: str = "",
    ):
        """Starts `workers` processes and returns without waiting for them.

        Args:
            factory, options: of `load_environment`, which every worker calls from this process's working directory.
            step_timeout_s, reset_timeout_s, recycle_after: see WorkerPool.
            startup_allowance_s: how much longer than a reset the start of a worker (imports, `make`) may take.
            name_states: have events say in which state the game is, if the environment can tell.
            called: what messages call it; "" as `factory`.
        """
        start = partial(
            WorkerProcess,
            factory,
            dict(options),
            os.getcwd(),
            name_states=name_states,
            startup_s=reset_timeout_s + startup_allowance_s,
        )
        super().__init__(
            called or factory,
            start,
            wait_for_channels,
            workers=workers,
            step_timeout_s=step_timeout_s,
            reset_timeout_s=reset_timeout_s,
            recycle_after=recycle_after,
        )
