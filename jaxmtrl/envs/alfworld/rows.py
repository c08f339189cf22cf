"""A game as the data have it, read with suspicion: a JSON object whose parts are what play will take them for."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any


def read_row(text: str | bytes, texts: Sequence[str]) -> dict[str, Any]:
    """The object of one game, which has a text for each of `texts`.

    Raises:
        ValueError: it is something else; says what, without the place.
    """
    try:
        row = json.loads(text)
    except RecursionError as err:
        raise ValueError("its brackets are nested too deeply") from err
    if not isinstance(row, dict):
        raise ValueError(f"got {reprlib.repr(row)}, wanted an object with {', '.join(texts)}")
    missing = [name for name in texts if name not in row]
    if missing:
        raise ValueError(f"it has no {' and no '.join(sorted(missing))}")
    wrong = [f"{name} {reprlib.repr(row[name])}" for name in texts if not isinstance(row[name], str)]
    if wrong:
        raise ValueError(f"got {', '.join(wrong)}, wanted text")
    return row


def walkthrough_of(row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The commands that win, where the row has them. Raises ValueError if they are no list of texts."""
    commands = row.get("walkthrough")
    if not commands:
        return None
    if not isinstance(commands, list) or not all(isinstance(command, str) for command in commands):
        raise ValueError(f"got walkthrough {reprlib.repr(commands)}, wanted a list of commands")
    return tuple(commands)


def one_line(task: str) -> str:
    """The task's sentence. Raises ValueError if it is empty or several lines, between which nothing could be told."""
    if len(task.splitlines()) != 1 or not task.strip():
        raise ValueError(f"got task {reprlib.repr(task)}, wanted a sentence on one line")
    return task
