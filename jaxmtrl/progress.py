"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere, tables at the end.

Knows neither stages nor metrics; it is told a title, a total and a few fields.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

_PLAIN_WIDTH = 120


class Progress:
    """Console output of one run; use it as a context manager so that a bar never outlives an error."""

    def __init__(
        self,
        *,
        console_every_s: float = 5.0,
        stream: TextIO | None = None,
        silent: bool = False,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Args:
        console_every_s: least time between two plain lines of one stage; first and last are always printed.
        stream: where to write; standard output when None.
        silent: write nothing.
        terminal: draw a bar; None asks the stream.
        clock: seconds, rising.
        """
        self._stream = stream if stream is not None else sys.stdout
        self._console = Console(
            file=self._stream,
            quiet=silent,
            force_terminal=terminal,
            width=None if terminal is not False else _PLAIN_WIDTH,
        )
        self._terminal = self._console.is_terminal if terminal is None else terminal
        self._every_s, self._silent = console_every_s, silent
        self._clock = clock
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._title, self._total, self._done, self._resumed_at = "", 0, 0, 0
        self._started = self._last_line = clock()
        self._fields: dict[str, float | int | str] = {}

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def stage(self, title: str, *, total: int, done: int = 0) -> None:
        """Begins a stage of `total` steps, of which a resumed run has `done` already."""
        self.close()
        self._title, self._total, self._done, self._resumed_at = title, total, done, done
        self._started, self._last_line = self._clock(), float("-inf")
        self._fields = {}
        if self._terminal:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[tail]}", markup=False),
            )
            self._bar = Bar(*columns, console=self._console)
            self._bar.start()
            self._task = self._bar.add_task(title, total=total, completed=done, tail=self._tail())

    def advance(self, n: int = 1, **fields: float | int | str | None) -> None:
        """Counts `n` steps and shows the fields, for example `advance(1, success=0.41, tokens_per_s=3100.0)`.

        Args:
            n: steps done since the last call; 0 only refreshes the fields.
            fields: shown in this order; underscores become spaces and "_per_s" becomes "/s"; None is not shown.
        """
        self._done += n
        self._fields |= {name: value for name, value in fields.items() if value is not None}
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, tail=self._tail())
            return
        now = self._clock()
        if self._done >= self._total or now - self._last_line >= self._every_s:
            self._last_line = now
            self._print(f"{self._title} {self._tail()}")

    def message(self, text: str) -> None:
        """Prints one line of text at once, above the bar when there is one."""
        self._print(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Prints a table: ruled on a terminal, aligned plain text elsewhere; the first column is left-aligned."""
        if not self._terminal:
            self._print(plain_table(title, columns, rows))
            return
        if self._done >= self._total:
            self.close()  # a finished bar stays above the table
        table = Table(title=title, title_justify="left")
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right")
        for row in rows:
            table.add_row(*[_show(cell) for cell in row])
        self._console.print(table)

    def close(self) -> None:
        """Takes down the bar of the present stage, if there is one."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None

    def _print(self, text: str) -> None:
        if self._terminal:
            self._console.print(text, markup=False, highlight=False)
            return
        with contextlib.suppress(BrokenPipeError):  # whoever read along has gone; the run need not
            if not self._silent:
                print(text, file=self._stream, flush=True)

    def _tail(self) -> str:
        parts = [f"{self._done}/{self._total}"]
        parts += [f"{_label(name)} {_show(value)}" for name, value in self._fields.items()]
        steps = self._done - self._resumed_at
        if 0 < steps and self._done < self._total:
            seconds = (self._clock() - self._started) / steps * (self._total - self._done)
            parts.append(f"ETA {duration(seconds)}")
        return "  ".join(parts)


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as aligned text: title, header, a rule, rows; the first column is left-aligned, the others right."""
    cells = [[str(column) for column in columns], *[[_show(cell) for cell in row] for row in rows]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    lines = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([title, lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def duration(seconds: float) -> str:
    """Seconds in words: "8 s", "3 min 10 s", "2 h 5 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _label(name: str) -> str:
    return name.replace("_per_s", "/s").replace("_", " ")


def _show(value: object) -> str:
    """Numbers short enough to read at a glance."""
    if isinstance(value, float):
        if value != value:
            return "-"
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "-" if value is None else str(value)
