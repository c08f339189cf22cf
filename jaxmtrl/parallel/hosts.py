"""The processes of a run, one a host: who is who, and how they tell each other what they played.

Every process runs the same program and meets the others in collectives; whatever decides what is computed next must
therefore be the same everywhere. Episodes are exchanged as bytes, so each packs the same batch.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import secrets
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxmtrl.errors import ConfigError, JaxmtrlError


class _Closable(Protocol):
    def close(self) -> None: ...


Made = TypeVar("Made", bound=_Closable)
MEETING_S = 180  # how long processes wait for each other at the start
HEARTBEAT_S = 20  # without one for so long, a process counts as gone


@dataclasses.dataclass(frozen=True)
class Hosts:
    """This process among those of the run."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether it writes what there is one of: records, result, progress."""
        return self.index == 0

    def share(self, content: bytes) -> list[bytes]:
        """What every process gives, in the order of their indices; all must call it at the same place."""
        if self.count == 1:
            return [content]
        sizes = _gathered(np.asarray([len(content)], np.int64))[:, 0]
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: len(content)] = np.frombuffer(content, np.uint8)
        return [row[:size].tobytes() for row, size in zip(_gathered(padded), sizes)]


ALONE = Hosts()


def join(coordinator: str | None, processes: int | None, index: int | None) -> None:
    """Meets the other processes of the run; before anything else touches a device.

    Args:
        coordinator: host:port of process 0, reachable from all; None lets jax find out, as it can on Cloud TPU.
        processes, index: how many there are and which is this one; None together with `coordinator`.

    Raises:
        ConfigError: some are given and some are not, or the others did not come.
    """
    given = (coordinator, processes, index)
    if any(part is not None for part in given) and any(part is None for part in given):
        raise ConfigError(
            "the command line",
            [
                f"--coordinator, --processes and --process-id go together: got {coordinator}, {processes} and {index}; "
                "give all three, or none where jax finds the others itself (Cloud TPU)"
            ],
        )
    whom = f"{processes} processes at {coordinator}" if coordinator else "the other processes"
    print(f"waiting for {whom}, {MEETING_S} s at most", file=sys.stderr, flush=True)
    try:
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=processes,
            process_id=index,
            initialization_timeout=MEETING_S,
            heartbeat_timeout_seconds=HEARTBEAT_S,
        )
    except Exception as err:  # jax's own, and whatever its parsing of an address meets
        raise ConfigError(
            "the command line",
            [
                f"the processes of the run did not meet ({str(err).strip().splitlines()[0][:200]}); start the same "
                f"command on every host within {MEETING_S} s, with host:port of process 0 where it is not found"
            ],
        ) from err


def this_host() -> Hosts:
    """As jax knows it."""
    return Hosts(jax.process_index(), jax.process_count())


def open_in_order(hosts: Hosts, make: Callable[[], Made]) -> Made:
    """What `make` gives in each process; the first makes its own before the others begin.

    Raises:
        JaxmtrlError: of the first process, in all of them; of another, in all that were not done.
    """
    if hosts.count == 1:
        return make()
    made: Any = None
    failure: JaxmtrlError | None = None
    for turn in (True, False):
        if hosts.first == turn:
            try:
                made = make()
            except JaxmtrlError as err:
                failure = err
        for content in hosts.share(pickle.dumps(failure)):
            if (err := pickle.loads(content)) is not None:
                if made is not None:
                    made.close()
                raise err
    return made


def agree(hosts: Hosts, settings: Mapping[str, Any], differing: Callable[[Any, Any], list[str]]) -> None:
    """Raises ConfigError in every process if one was started with other settings than the first.

    Args:
        settings: this process's config, as plain dicts.
        differing: names what two of them disagree on, a line each.
    """
    all_ = [json.loads(content) for content in hosts.share(json.dumps(settings).encode())]
    for index, other in enumerate(all_):
        if differences := differing(all_[0], other):
            raise ConfigError(
                f"the run: process {index} was started with another config than process 0",
                [f"{line} in process {index}".replace(" in the run folder", " in process 0") for line in differences],
            )


def share_a_place(hosts: Hosts, place: Any) -> None:
    """Raises ConfigError in every process unless all see the same folder at `place`, which the first can write."""
    if hosts.count == 1:
        return
    token = place / ".hosts"
    written = secrets.token_hex(8)
    if hosts.first:
        place.mkdir(parents=True, exist_ok=True)
        token.write_text(written)
    (written, *_) = (content.decode() for content in hosts.share(written.encode()))
    seen = token.exists() and token.read_text() == written
    blind = [index for index, content in enumerate(hosts.share(str(seen).encode())) if content != b"True"]
    if hosts.first:
        token.unlink(missing_ok=True)
    if blind:
        raise ConfigError(
            "checkpoint.folder",
            [
                f"{place} is not the same place on process {blind[0]} as on process 0; name one that all can write (gs://…)"
            ],
        )


def _gathered(array: np.ndarray) -> np.ndarray:
    return np.asarray(multihost_utils.process_allgather(array))


def is_lost_peer(error: BaseException) -> bool:
    """Whether an error of jax's says that another process is gone."""
    said = str(error)
    signs = ("closed by peer", "reset by peer", "heartbeat", "UNAVAILABLE", "DEADLINE_EXCEEDED", "Gloo")
    return any(sign in said for sign in signs)


def moved(tree: Any, shardings: Any) -> Any:
    """Arrays placed as `shardings` says, which may name another mesh of the same devices, or this host's part of them.

    Args:
        tree: arrays over all devices of the run.
        shardings: the tree of `NamedSharding`s, all of one mesh: of all devices, or of this process's own; in that
            case every process must call, each with its own, and all alike.
    """
    leaves, structure = jax.tree.flatten(tree)
    places = structure.flatten_up_to(shardings)
    if not leaves:
        return tree
    mesh = places[0].mesh
    if jax.process_count() == 1 or mesh.size == jax.device_count():
        return jax.device_put(tree, shardings)
    return structure.unflatten([_local(leaf, place) for leaf, place in zip(leaves, places)])


def _local(array: jax.Array, place: jax.sharding.NamedSharding) -> jax.Array:
    """This host's copy of a global array: spread so that every host has all of it, then its parts taken as one."""
    by_host: dict[int, list[Any]] = {}
    for device in jax.devices():
        by_host.setdefault(device.process_index, []).append(device)
    wanted: Any = place.mesh.devices
    own = {device.id: at for at, device in enumerate(by_host[jax.process_index()])}
    order = np.vectorize(lambda device: own[device.id])(wanted)  # where in a host's list each place's device is
    grid = np.stack([np.asarray(by_host[host], object)[order] for host in sorted(by_host)])
    view = jax.sharding.Mesh(grid, ("host", *place.mesh.axis_names))
    spread = jax.device_put(array, jax.sharding.NamedSharding(view, place.spec))
    parts = {shard.device: shard.data for shard in spread.addressable_shards}
    pieces = [parts[device] for device in wanted.flat]
    return jax.make_array_from_single_device_arrays(array.shape, place, pieces)
