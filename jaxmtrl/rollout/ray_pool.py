"""The pool for environments that outgrow one host: workers are Ray actors, on whichever node Ray finds room.

An actor plays nothing itself. It holds one spawned process like those of `MultiprocessPool` and passes requests on, so
a simulator that hangs, dies or writes where it should not never reaches Ray's own connections, and whatever it spawned
ends with it. The only module that imports ray, which is an optional dependency.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing.connection
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
import ray.exceptions  # pyright: ignore[reportMissingImports]

from jaxmtrl.errors import ConfigError, EnvironmentFailure
from jaxmtrl.rollout.hold import LIVENESS_S, Worker
from jaxmtrl.rollout.pool import WorkerPool
from jaxmtrl.rollout.process import ChildProcess
from jaxmtrl.rollout.worker import Reply

_KNOCK_S = 10.0  # what a cluster gets to open a connection
_LONGEST_TEXT = 600  # characters of what Ray says of a death


class Host:
    """The actor: one process that plays, and the requests to it, passed on in order.

    Requests are done one at a time; `watch` runs beside them, on the thread of the group "control".
    """

    def __init__(
        self, factory: str, options: Mapping[str, Any], start_folder: str, search_path: list[str], name_states: bool
    ):
        """Starts the process.

        Args:
            factory, options, start_folder, name_states: of `worker.run`.
            search_path: where the pool's own process finds modules; what this node's Python lacks is added behind.
        """
        sys.path += [entry for entry in search_path if entry not in sys.path]
        # A spawned process runs its parent's main script again, without the main part: here Ray's, which it has no
        # use for.
        sys.modules["__main__"].__dict__.pop("__file__", None)
        self._replies: deque[Reply] = deque()
        self._child = ChildProcess(factory, options, start_folder, name_states)
        self._guard = _start_guard(self._child.process.pid or 0, self._child.folder)

    def hear(self) -> Reply | str:
        """Waits for the process's next reply; a str says what became of it instead, to end a sentence about it."""
        while not self._replies:
            heard = multiprocessing.connection.wait([self._child.channel], LIVENESS_S)
            if not heard and not self._child.is_alive():
                return self._child.exit_text()
            if heard:
                replies, what = self._child.read()
                self._replies += replies
                if what:
                    return what
        return self._replies.popleft()

    def ask(self, data: bytes) -> Reply | str:
        """Passes a framed request on; returns as `hear` does."""
        self._child.write(data)
        return self.hear()

    def close(self, data: bytes) -> None:
        """Passes on the request to close, which has no reply."""
        self._child.write(data)

    @ray.method(concurrency_group="control")
    def watch(self) -> str:
        """Waits for the process to end, and tells how."""
        self._child.wait()
        return self._child.exit_text()


def _start_guard(group: int, folder: str) -> int:
    """Starts a shell that kills a process group and removes a folder when this process is gone, however it ended.

    Ray ends an actor without running our code, and its direct children with it, but not theirs. So the shell that waits
    is the child of one that has exited.

    Returns:
        The descriptor whose end the shell waits for; nobody else has it.
    """
    waiting, held = os.pipe()
    act = 'read -r _; kill -s KILL -- "-$1"; rm -rf -- "$2"'
    subprocess.run(
        ["sh", "-c", f"exec 3<&0; ( {act} ) <&3 >/dev/null 2>&1 &", "worker-guard", str(group), folder],
        stdin=waiting,
        start_new_session=True,
        check=True,
    )
    os.close(waiting)
    return held


# Never restarted by Ray: the pool replaces what is lost, with new episodes.
_ACTOR: Any = ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={"control": 1})(Host)  # pyright: ignore


class RayWorker(Worker):
    """A worker whose process is held by an actor."""

    def __init__(
        self,
        factory: str,
        options: Mapping[str, Any],
        start_folder: str,
        *,
        name_states: bool,
        startup_s: float,
        cpus: float,
    ):
        """Asks Ray for the actor and returns at once; the arguments are those of Host and RayPool.

        Raises:
            EnvironmentFailure: somebody has shut Ray down.
        """
        if not ray.is_initialized():  # left to itself, Ray would start another cluster here
            raise EnvironmentFailure(f"{factory}: Ray was shut down while the pool was open; make another pool")
        search_path = [os.path.abspath(entry) for entry in sys.path]
        actor = _ACTOR.options(num_cpus=cpus)
        self._cpus = cpus
        self._host = actor.remote(factory, options, start_folder, search_path, name_states)
        self._watch = self._host.watch.remote()
        self._coming = deque([self._host.hear.remote()])  # replies, in order; the first tells of the start
        self._exists = False  # the actor, for certain
        super().__init__(startup_s)

    @property
    def handles(self) -> Sequence[Any]:
        return [*list(self._coming)[:1], self._watch]

    def read(self) -> tuple[list[Reply], str]:
        replies: list[Reply] = []
        if not ray.is_initialized():
            return replies, "was lost when Ray was shut down"
        while self._coming and _is_done(self._coming[0]):
            answer = self._result(self._coming.popleft())
            if isinstance(answer, str):
                return replies, answer
            replies.append(answer)
        # The end of the process is told last; what it said before may still be on its way.
        what = self._result(self._watch) if not self._coming and _is_done(self._watch) else ""
        return replies, what

    def overrun_text(self) -> str:
        text = super().overrun_text()
        if self._exists:
            return text
        try:
            free = ray.available_resources().get("CPU", 0.0)
        except Exception as err:
            return f"{text}, and Ray cannot say what is free ({err})"
        if free >= self._cpus:
            return text
        return (
            f"{text}: Ray has {free:g} CPUs free and a worker reserves {self._cpus:g}. Add nodes, or lower "
            "rollout.workers or rollout.ray_cpus"
        )

    def kill(self) -> None:
        if not ray.is_initialized():
            return
        with contextlib.suppress(Exception):
            ray.kill(self._host)  # what the actor held is ended by its guard

    def _hand_over(self, data: bytes) -> None:
        if not ray.is_initialized():
            return
        with contextlib.suppress(ray.exceptions.RayError):
            if self.closing:
                self._host.close.remote(data)
            else:
                self._coming.append(self._host.ask.remote(data))

    def _result(self, ref: Any) -> Any:
        """What the actor returned, or what Ray says of its end."""
        try:
            result = ray.get(ref)
        except ray.exceptions.RayError as err:
            text = " ".join(str(err).split())[:_LONGEST_TEXT]
            return f"was lost by Ray ({type(err).__name__}: {text})"
        self._exists = True
        return result


def _is_done(ref: Any) -> bool:
    return bool(ray.wait([ref], timeout=0)[0])


def wait_for_refs(refs: Sequence[Any], wait_s: float) -> Sequence[Any]:
    """The `Wait` of RayWorker."""
    if not ray.is_initialized():
        return refs  # none will ever be done
    if not refs:
        time.sleep(wait_s)
        return []
    ready, _ = ray.wait(list(refs), num_returns=1, timeout=wait_s)
    if ready:
        ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=0)
    return ready


def connect(address: str) -> None:
    """Connects this process to a Ray cluster, unless it is connected already.

    Args:
        address: "auto" (one that runs on this machine), "host:port", or "ray://host:port"; empty is the one that the
            variable RAY_ADDRESS names, as in a job that Ray runs, else one that is started and ends with this process.

    Raises:
        ConfigError: there is no cluster at `address`, or none can be started.
    """
    if ray.is_initialized():
        return
    wanted = address or os.environ.get("RAY_ADDRESS") or "local"
    try:
        _knock(wanted)
        ray.init(address=wanted, include_dashboard=False, logging_level=logging.WARNING)
    except (OSError, ValueError, RuntimeError) as err:
        raise ConfigError("rollout.ray_address", [f"got {wanted!r}, and no Ray cluster is there: {err}"]) from err


def _knock(address: str) -> None:
    """Raises OSError if nobody listens at a host:port; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()


class RayPool(WorkerPool):
    """Workers on a Ray cluster.

    Every node that Ray may choose needs this package and the environment's, of the same versions, and must see the
    same files under the same paths, the working directory included: games are made where the training runs. Each
    worker reserves `cpus` of the cluster's CPUs, and costs an actor besides its own process.
    """

    def __init__(
        self,
        factory: str,
        options: Mapping[str, Any],
        *,
        workers: int,
        step_timeout_s: float,
        reset_timeout_s: float,
        recycle_after: int,
        startup_allowance_s: float = 60.0,
        name_states: bool = False,
        called: str = "",
        address: str = "",
        cpus: float = 0.25,
    ):
        """Connects to the cluster if this process is not connected, starts `workers` actors and returns.

        Args:
            factory, options: of `load_environment`, which every worker calls from this process's working directory.
            step_timeout_s, reset_timeout_s, recycle_after: see WorkerPool.
            startup_allowance_s: how much longer than a reset the start of a worker (placing, imports, `make`) may take.
            name_states: have events say in which state the game is, if the environment can tell.
            called: what messages call it; "" as `factory`.
            address: see `connect`.
            cpus: CPUs of the cluster that a worker reserves; Ray counts them and enforces nothing.

        Raises:
            ConfigError: there is no cluster at `address`.
        """
        connect(address)
        start = partial(
            RayWorker,
            factory,
            dict(options),
            os.getcwd(),
            name_states=name_states,
            startup_s=reset_timeout_s + startup_allowance_s,
            cpus=cpus,
        )
        super().__init__(
            called or factory,
            start,
            wait_for_refs,
            workers=workers,
            step_timeout_s=step_timeout_s,
            reset_timeout_s=reset_timeout_s,
            recycle_after=recycle_after,
        )
