"""What a run writes down: `metrics.jsonl`, TensorBoard curves and `episodes.jsonl`.

The JSON lines are the record; the TensorBoard files are a picture of them and can be drawn again at any time.
Knows neither stages nor what the numbers mean.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from jaxmtrl.errors import RecordError

METRICS_FILE = "metrics.jsonl"
EPISODES_FILE = "episodes.jsonl"
TENSORBOARD_FOLDER = "tensorboard"
_OWN_KEYS = ("stage", "step", "time_s")


class MetricsWriter:
    """Appends to the run folder's records; every line is on disk's way before the call returns.

    One global `step`, given by the caller, rises through all stages, so that curves of SFT, critic warm-up and RL
    stand one after the other.
    """

    def __init__(self, folder: str | os.PathLike[str], *, tensorboard: bool):
        """Opens the records for appending; makes the folder when it is missing."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._metrics = _open_for_append(self.folder / METRICS_FILE)
        self._episodes = _open_for_append(self.folder / EPISODES_FILE)
        self._board = _Board(self.folder / TENSORBOARD_FOLDER) if tensorboard else None

    @classmethod
    def resume(cls, folder: str | os.PathLike[str], step: int, *, tensorboard: bool) -> MetricsWriter:
        """Opens the records of an interrupted run as they were at `step`.

        Lines of later steps are dropped (they will be written again), as is a last line that a killed process left
        half written. The TensorBoard files are made anew from the lines, so that every step is there exactly once.

        Args:
            step: the global step of the checkpoint that the run goes on from; lines with step <= this stay.
        """
        folder = Path(folder)
        for name in (METRICS_FILE, EPISODES_FILE):
            _keep_until(folder / name, step)
        shutil.rmtree(folder / TENSORBOARD_FOLDER, ignore_errors=True)
        writer = cls(folder, tensorboard=tensorboard)
        if writer._board is not None:
            for line in read_records(folder / METRICS_FILE):
                points = {name: value for name, value in line.items() if name not in _OWN_KEYS}
                writer._board.draw(line["step"], points, line.get("time_s", 0.0))
            writer._board.flush()
        return writer

    def write(self, step: int, stage: str, values: Mapping[str, float | None]) -> None:
        """Appends one line of metrics and draws its points.

        Args:
            step: global step, rising over all stages.
            stage: for example "sft", "critic_warmup", "rl".
            values: `group/name_unit` to number. None and NaN mean "there is none this time" and are left out, never
                written as 0; infinities are left out too, since JSON has none.
        """
        present = {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
        clash = sorted(set(present) & set(_OWN_KEYS))
        if clash:
            raise ValueError(f"metrics {clash} would hide the line's own keys; name metrics group/name_unit")
        now = time.time()
        _append(self._metrics, {"stage": stage, "step": int(step), "time_s": round(now, 3), **present})
        if self._board is not None:
            self._board.draw(step, present, now)
            self._board.flush()

    def episodes(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Appends whole episodes, one JSON line each; a record's "step" tells `resume` whether it stays."""
        for record in records:
            _append(self._episodes, record)

    def close(self) -> None:
        """Closes all files; the writer is of no use afterwards."""
        self._metrics.close()
        self._episodes.close()
        if self._board is not None:
            self._board.close()


def read_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All whole JSON lines of a record file, in order; none if there is no file.

    A line without its newline was cut by a crash and is left out.

    Raises:
        RecordError: a whole line is no record, so the file was damaged by something else than a crash.
    """
    path = Path(path)
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as err:
        raise RecordError(f"{path} cannot be read ({err.strerror}); put it back, or remove it") from err
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            wanted = 'a JSON object with a "step"'
            raise RecordError(f"{path}, line {number}: got {line[:60]!r}, wanted {wanted}; mend or remove the line")
        records.append(record)
    return records


def _keep_until(path: Path, step: int) -> None:
    """Rewrites a record file without later steps and torn line; the old one stands until the new is whole."""
    if not path.exists():
        return
    kept = [record for record in read_records(path) if record.get("step", 0) <= step]
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        for record in kept:
            file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _open_for_append(path: Path) -> TextIO:
    """Opens for appending; a last line that a killed writer left half written is cut off first."""
    if path.exists():
        content = path.read_bytes()
        os.truncate(path, content.rfind(b"\n") + 1)
    return open(path, "a", encoding="utf-8", errors="backslashreplace")  # half a surrogate pair becomes \\udc80


def _append(file: TextIO, record: Mapping[str, Any]) -> None:
    file.write(_line(record))
    file.flush()


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(_plain(record), ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as Python's own, and null for what JSON cannot write (NaN, infinities)."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Board:
    """A TensorBoard event file that no other writer of the same second shares.

    Uses the plain writer of events, not `SummaryWriter`: that one has a queue and a thread of its own, and what is
    still in them is lost with a killed process.
    """

    def __init__(self, folder: Path):
        from tensorboardX.event_file_writer import EventsWriter  # here: a fifth of a second, only for those who want it

        folder.mkdir(parents=True, exist_ok=True)
        self._file = EventsWriter(str(folder / "events"), filename_suffix=f".{os.getpid()}.{time.monotonic_ns()}")

    def draw(self, step: int, values: Mapping[str, float], time_s: float) -> None:
        """Adds one point to the curve of each name."""
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._file.write_event(Event(wall_time=time_s, step=step, summary=Summary(value=points)))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
