"""Episodes as JSON lines, for people and for the report: one line of `episodes.jsonl` is one whole episode.

The only place that knows the keys of such a line. Training never reads them back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.types import Episode, Turn

FILE_NAME = "episodes.jsonl"
_NUMBER = (int, float, type(None))  # None: it was not finite
_EPISODE_KEYS: dict[str, type | tuple[type, ...]] = {
    "stage": str,
    "step": int,
    "split": str,
    "task_id": str,
    "group": int,
    "index": int,
    "stop": str,
    "success": bool,
    "return": _NUMBER,
    "policy_version": int,
    "error": str,
    "turns": list,
}
_TURN_KEYS: dict[str, type | tuple[type, ...]] = {
    "observation": str,
    "action": str,
    "prompt_ids": list,
    "action_ids": list,
    "action_logprobs": list,
    "reward": _NUMBER,
    "stop": str,
    "metrics": dict,
}


def episode_record(episode: Episode, *, step: int, stage: str, split: str) -> dict[str, Any]:
    """`episode` as plain JSON values; log-probs rounded to 4 places, numbers that are not finite become None.

    Args:
        step: iteration (or epoch) in which it was played.
        stage: which part of the run, for example "rl" or "evaluate_rl".
        split: which of the environment's task lists it comes from.
    """
    return {
        "stage": stage,
        "step": int(step),
        "split": split,
        "task_id": episode.task_id,
        "group": int(episode.group),
        "index": int(episode.index),
        "stop": episode.stop.value,
        "success": bool(episode.success),
        "return": _number(episode.episode_return),
        "policy_version": int(episode.policy_version),
        "error": episode.error,
        "turns": [_turn_record(turn) for turn in episode.turns],
    }


def read_episodes(path: str | Path, report: Callable[[int, str], None]) -> Iterator[dict[str, Any]]:
    """The episode records of a file, in order; a line that holds none is reported and left out.

    Args:
        path: an `episodes.jsonl`, or the run folder that holds one.
        report: called with (line number from 1, what is wrong with it).

    Raises:
        JaxmtrlError: there is no such file, or it cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        path = path / FILE_NAME
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                record, mistake = _parse(line)
                if record is None:
                    report(number, mistake)
                else:
                    yield record
    except OSError as err:
        raise JaxmtrlError(
            f"cannot read episodes from {path}: {err.strerror}. Give a run folder or an {FILE_NAME}; "
            "log.episodes must be above 0 for a run to write one."
        ) from err


def _parse(line: str) -> tuple[dict[str, Any] | None, str]:
    """The record of a line, or None and what is wrong with the line."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as err:
        return None, f"not JSON ({err.msg} at column {err.colno}); cut off while it was written?"
    if mistake := _mismatch(record, _EPISODE_KEYS):
        return None, f"not an episode: {mistake}"
    for number, turn in enumerate(record["turns"], start=1):
        if mistake := _mismatch(turn, _TURN_KEYS):
            return None, f"not an episode: in turn {number}, {mistake}"
    return record, ""


def _mismatch(value: Any, keys: Mapping[str, type | tuple[type, ...]]) -> str:
    """What keeps `value` from being an object with these keys and types of values, or nothing."""
    if not isinstance(value, dict):
        return f"{type(value).__name__} instead of an object"
    wrong = [key for key, types in keys.items() if not isinstance(value.get(key, _MISSING), types)]
    return f"{', '.join(wrong)} missing or of the wrong type" if wrong else ""


_MISSING = object()


def _turn_record(turn: Turn) -> dict[str, Any]:
    return {
        "observation": turn.observation,
        "action": turn.action,
        "prompt_ids": [int(id_) for id_ in turn.prompt_ids],
        "action_ids": [int(id_) for id_ in turn.action_ids],
        "action_logprobs": [_number(logprob, places=4) for logprob in turn.action_logprobs],
        "reward": _number(turn.reward),
        "stop": turn.stop.value,
        "metrics": _numbers(turn.metrics),
    }


def _numbers(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in metrics.items()}


def _number(value: float, places: int | None = None) -> float | None:
    value = float(value)  # numpy scalars are not JSON
    if not math.isfinite(value):
        return None  # neither is NaN
    return value if places is None else round(value, places)
