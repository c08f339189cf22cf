"""Where the time of a run goes: spans of sampler, environments and learner, as a file that Perfetto draws.

The file is a Chrome trace (open it at ui.perfetto.dev or chrome://tracing): one line a track, times in microseconds
since the run began. Knows nothing of what happens within a span.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

LIMIT = 200_000  # spans that are kept, the latest; about 25 MB of file
SAMPLER, LEARNER, WEIGHTS = "sampler", "learner", "weights"  # tracks; each environment worker has one of its own
_NOTHING = nullcontext()


class Span(NamedTuple):
    """Something that took time."""

    track: str
    name: str
    began: float  # [s], on time.monotonic()
    ended: float


class Timeline:
    """Collects spans, from any thread, and writes them when it is closed; one without a path does neither."""

    def __init__(self, path: Path | None, limit: int = LIMIT):
        """
        Args:
            path: the file to be; None keeps and writes nothing.
            limit: spans kept, the latest.
        """
        self._path = path
        self._spans: deque[Span] = deque(maxlen=limit)
        self._began = time.monotonic()

    @property
    def on(self) -> bool:
        """Whether it keeps anything."""
        return self._path is not None

    @property
    def spans(self) -> list[Span]:
        """What is kept so far, in the order in which it ended (or was heard of)."""
        return list(self._spans)

    def add(self, track: str, name: str, began: float, ended: float) -> None:
        """A span that is over; one that ended before it began, by another clock, has no length."""
        if self._path is not None:
            self._spans.append(Span(track, name, began, max(began, ended)))

    def span(self, track: str, name: str) -> AbstractContextManager[None]:
        """What happens within it is a span, also if it raises."""
        return _NOTHING if self._path is None else self._timed(track, name)

    def close(self) -> None:
        """Writes the file, whole or not at all, over one of an earlier session; twice does no harm."""
        if self._path is None:
            return
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            file.write(",\n".join(json.dumps(event) for event in self._events()))
            file.write("\n]}\n")
        os.replace(temporary, self._path)

    @contextlib.contextmanager
    def _timed(self, track: str, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(track, name, began, time.monotonic())

    def _events(self) -> Iterator[dict[str, Any]]:
        spans = self.spans
        fixed = (SAMPLER, LEARNER, WEIGHTS)
        workers = sorted({span.track for span in spans} - {*fixed}, key=lambda track: (len(track), track))
        numbers = {track: number for number, track in enumerate((*fixed, *workers), start=1)}
        for track, number in numbers.items():
            where = {"ph": "M", "pid": 1, "tid": number}
            yield {**where, "name": "thread_name", "args": {"name": track}}
            yield {**where, "name": "thread_sort_index", "args": {"sort_index": number}}
        for span in spans:
            yield {
                "name": span.name,
                "ph": "X",
                "pid": 1,
                "tid": numbers[span.track],
                "ts": round(1e6 * (span.began - self._began), 1),
                "dur": round(1e6 * (span.ended - span.began), 1),
            }


NO_TIMELINE = Timeline(None)
