"""What runs in a worker process: environments that answer one message at a time.

Knows nothing of tokens, models or the parent's bookkeeping, and never imports jax. The parent names a *seat* with
every message; a seat is one `TextEnv`, made at its first reset and reused by later ones.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import reprlib
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np

from jaxmtrl.envs.base import Environment, TextEnv, load_environment
from jaxmtrl.types import StepResult

_HEADER = struct.Struct("!4sI")  # magic, length of the pickle that follows [bytes]
_MAGIC = b"jxm1"
_MAX_BYTES = 1 << 28
_READ_BYTES = 1 << 20
_LARGEST = 1e6  # of a reward or metric; sums of squares of larger ones leave f32


class ProtocolError(Exception):
    """Bytes that are no message of ours, or a message that cannot be sent."""


@dataclass(frozen=True)
class Request:
    """Parent to worker."""

    serial: int  # counts the requests of one worker from 1
    kind: Literal["reset", "step", "admissible", "close"]
    seat: int = 0
    payload: bytes | str = ""  # reset: a pickled Task, so that one that cannot be read costs one episode; step: action


@dataclass(frozen=True)
class Reply:
    """Worker to parent: exactly one a request, besides the first, which has serial 0 and tells of the start."""

    serial: int
    kind: Literal["ready", "observation", "step", "admissible", "failure"]
    # failure: what happened, as the end of a sentence that begins "reset ..."; admissible: None where unknown
    payload: str | StepResult | tuple[str, ...] | None = ""
    state: str = ""  # of an observation or a step: the state reached, where names of states are wanted and known
    began: float = 0.0  # when the worker began with the request, on its time.monotonic()
    ended: float = 0.0  # and was done with it; both 0 where it was not measured


def frame(message: Request | Reply) -> bytes:
    """A message as bytes that `FrameReader` understands. Raises ProtocolError if it is larger than 256 MiB."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    if len(body) > _MAX_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes is more than the {_MAX_BYTES} that may be sent")
    return _HEADER.pack(_MAGIC, len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into messages.

    Our own framing rather than `Connection.recv`, which waits for ever for the rest of a message whose length was
    garbage or whose sender hangs half way: this one only takes what is there.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Takes bytes as they come; returns the messages they complete. Raises ProtocolError for bytes not ours."""
        self._buffer += data
        messages: list[Any] = []
        while len(self._buffer) >= _HEADER.size:
            magic, length = _HEADER.unpack_from(self._buffer)
            if magic != _MAGIC or length > _MAX_BYTES:
                raise ProtocolError(f"it starts with {bytes(self._buffer[:16])!r}")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            try:
                messages.append(pickle.loads(body))
            except Exception as err:
                raise ProtocolError(f"it cannot be unpickled: {err!r}") from err
        return messages


def run(
    channel: socket.socket,
    factory: str,
    options: Mapping[str, Any],
    start_folder: str,
    folder: str,
    name_states: bool = False,
) -> None:
    """Main of a worker: makes the environment, says ready, then answers until told to close or the parent is gone.

    Args:
        channel: this end of a socket pair.
        factory, options: of `load_environment`.
        start_folder: the parent's working directory when the pool was made; relative paths in options mean this one.
        folder: private and empty; the working directory of all play, because simulators write files where they are.
        name_states: ask environments that can name their state for it after every reset and step.
    """
    os.setsid()  # a process group of its own, so that whatever the environment spawns can be killed with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # simulators print, from C too; stderr stays
    threading.Thread(target=_die_with_parent, args=(folder,), name="watch-parent", daemon=True).start()
    try:
        environment = _load(factory, options, start_folder, folder)
    except BaseException:  # a module may well call sys.exit when imported
        _send(channel, Reply(0, "failure", f"failed:\n{traceback.format_exc()}"))
        return
    _send(channel, Reply(0, "ready"))
    _warm_up(environment)
    _answer(channel, _Seats(environment, name_states))


def _load(factory: str, options: Mapping[str, Any], start_folder: str, folder: str) -> Environment:
    os.chdir(start_folder)
    sys.path[:] = [os.path.abspath(entry) for entry in sys.path]  # imports made later, from `folder`, find the same
    environment = load_environment(factory, options)
    os.chdir(folder)
    return environment


def _warm_up(environment: Environment) -> None:
    """Has an environment with a method `warm_up` do what makes its first reset slow, while the device's programs are
    compiled. What goes wrong here is left to that reset, which has an episode to blame."""
    with contextlib.suppress(Exception, SystemExit):
        getattr(environment, "warm_up", lambda: None)()


def _die_with_parent(folder: str) -> None:
    """Ends the process group when the parent process is gone, even if an environment hangs."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    multiprocessing.connection.wait([parent.sentinel])
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _answer(channel: socket.socket, seats: _Seats) -> None:
    reader = FrameReader()
    while data := _receive(channel):
        for request in reader.feed(data):
            if request.kind == "close":
                seats.close()
                return
            began = time.monotonic()
            reply = seats.handle(request)
            _send(channel, replace(reply, began=began, ended=time.monotonic()))


def _receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(_READ_BYTES)
    except ConnectionError:
        return b""


def _send(channel: socket.socket, reply: Reply) -> None:
    try:
        data = frame(reply)
    except ProtocolError as err:
        data = frame(Reply(reply.serial, "failure", f"answered too much: {err}"))
    channel.sendall(data)


class _WrongAnswer(Exception):
    """An environment broke the protocol; the message says what it answered."""


class _Seats:
    """The environments of one worker, by seat."""

    def __init__(self, environment: Environment, name_states: bool):
        self._environment, self._name_states = environment, name_states
        self._envs: dict[int, TextEnv] = {}
        self._over: set[int] = set()  # seats whose episode has ended: only reset may follow

    def handle(self, request: Request) -> Reply:
        """Does one request. Whatever an environment raises becomes a failure of this seat's episode alone."""
        try:
            if request.kind == "reset":
                return Reply(request.serial, "observation", self._reset(request), self._state(request.seat))
            if request.kind == "admissible":
                return Reply(request.serial, "admissible", self._admissible(request.seat))
            return Reply(request.serial, "step", self._step(request), self._state(request.seat))
        except _WrongAnswer as err:
            what = str(err)
        except BaseException as err:  # SystemExit too: one game that gives up is no reason to lose the others
            what = f"raised {type(err).__name__}: {err}\n{traceback.format_exc()}"
        return Reply(request.serial, "failure", what + self._discard(request.seat))

    def close(self) -> None:
        """Closes every environment; what that raises goes to stderr, since no episode is left to blame."""
        for seat in list(self._envs):
            if complaint := self._discard(seat):
                print(complaint, file=sys.stderr)

    def _reset(self, request: Request) -> str:
        assert isinstance(request.payload, bytes)
        task = pickle.loads(request.payload)
        if request.seat not in self._envs:
            self._envs[request.seat] = self._environment.make_env()
        self._over.discard(request.seat)
        observation: object = self._envs[request.seat].reset(task)
        return _text("", observation)

    def _step(self, request: Request) -> StepResult:
        assert isinstance(request.payload, str)
        if request.seat in self._over:
            raise _WrongAnswer("was asked for after the episode's end; only reset may follow done or truncated")
        result = checked_step(self._envs[request.seat].step(request.payload))
        if result.done or result.truncated:
            self._over.add(request.seat)
        return result

    def _state(self, seat: int) -> str:
        known = getattr(self._envs[seat], "state", None) if self._name_states and seat not in self._over else None
        if known is None:
            return ""
        return _text("state", known())

    def _admissible(self, seat: int) -> tuple[str, ...] | None:
        known = getattr(self._envs[seat], "admissible", None)  # not every environment knows
        if known is None:
            return None
        commands: object = known()
        if isinstance(commands, str) or not isinstance(commands, Sequence):
            raise _WrongAnswer(f"returned {_describe(commands)}, wanted a sequence of str")
        return tuple(_text("command", command) for command in commands)

    def _discard(self, seat: int) -> str:
        """Closes and forgets the environment of a seat; returns what closing it raised, if anything."""
        env = self._envs.pop(seat, None)
        self._over.discard(seat)
        try:
            if env is not None:
                env.close()
        except BaseException:
            return f"\nThen close raised as well:\n{traceback.format_exc()}"
        return ""


def checked_step(result: object) -> StepResult:
    """The answer of a step, in plain Python types that any process can read.

    Raises:
        _WrongAnswer: it is no StepResult, a field has the wrong type, a number is not finite, or it is both done and
            truncated; the message is the end of a sentence that begins "step n ...".
    """
    if not isinstance(result, StepResult):
        raise _WrongAnswer(f"returned {_describe(result)}, wanted a StepResult")
    observation = _text("observation", result.observation)
    flags = {}
    for name in ("done", "truncated", "success"):
        value = getattr(result, name)
        if not isinstance(value, (bool, np.bool_)):
            raise _WrongAnswer(f"returned {name} {_describe(value)}, wanted a bool")
        flags[name] = bool(value)
    if flags["done"] and flags["truncated"]:
        raise _WrongAnswer("returned done and truncated both; an episode ends in one way")
    if not isinstance(result.metrics, Mapping):
        raise _WrongAnswer(f"returned metrics {_describe(result.metrics)}, wanted a mapping of names to numbers")
    return StepResult(
        observation=observation,
        reward=_finite("reward", result.reward),
        metrics={str(name): _finite(f"metric {name!r}", value) for name, value in result.metrics.items()},
        **flags,
    )


def _finite(name: str, value: object) -> float:
    number = float(value) if isinstance(value, Real) else math.nan
    if not abs(number) <= _LARGEST:  # NaN compares as false
        raise _WrongAnswer(f"returned {name} {_describe(value)}, wanted a finite number of at most {_LARGEST:g}")
    return number


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _WrongAnswer(f"returned {f'{name} {_describe(value)}'.lstrip()}, wanted a str")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as err:
        what = f"{name} {_describe(value)}".lstrip()
        raise _WrongAnswer(f"returned {what}, which is no Unicode text ({err.reason} at {err.start})") from err
    return str(value)


def _describe(value: object) -> str:
    return f"{type(value).__name__} {reprlib.repr(value)}"
