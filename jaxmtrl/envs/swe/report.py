"""Reads what `report_plugin` wrote. The file comes from a place where a policy's code ran: nothing in it is believed
beyond its form, and whatever is odd is named in `oddities`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLUGIN = Path(__file__).with_name("report_plugin.py")
PLUGIN_NAME = "jaxmtrl_report"  # what `pytest -p` calls it where it is shown as <PLUGIN_NAME>.py
REPORT_VARIABLE = "JAXMTRL_REPORT"
TEXT_VARIABLE = "JAXMTRL_REPORT_TEXT"
PASSING = frozenset({"passed", "xfailed", "xpassed"})
OUTCOMES = PASSING | {"failed", "error", "skipped"}
MAX_BYTES = 16 << 20
_MAX_LINE = 256 << 10
_MAX_ID = 8 << 10


@dataclass(frozen=True, kw_only=True)
class SuiteReport:
    """What became of the tests of one run of pytest."""

    outcomes: Mapping[str, str]  # by exact test id; the worse one where an id was reported twice
    exit_status: int | None  # what pytest said; None where it never came to say it
    collected: int | None = None  # how many tests it had found
    collect_errors: tuple[str, ...] = ()  # files that could not be collected
    oddities: tuple[str, ...] = ()  # sorted: junk, cut, duplicate, count, after_finish, no_start, twice
    texts: Mapping[str, str] = field(default_factory=dict)  # what pytest prints of those that fail, where asked for
    messages: Mapping[str, str] = field(default_factory=dict)  # their exceptions alone, where asked for
    seconds: Mapping[str, float] = field(default_factory=dict)  # by the clock
    cpu_s: float = 0.0  # of all of them together, and of pytest

    @property
    def finished(self) -> bool:
        """True where pytest came to its end and said so in the form that the plugin has."""
        return self.exit_status is not None and not self.oddities

    def passed(self, test: str) -> bool:
        """A test that is not there has not passed, nor has one that was skipped."""
        return self.outcomes.get(test) in PASSING

    def with_outcome(self, *outcomes: str) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome in outcomes]


def parse_report(data: bytes, *, max_bytes: int = MAX_BYTES) -> SuiteReport:
    """Reads a report. Lines that are none are left out and make it odd; bytes beyond `max_bytes` are not looked at."""
    reading = _Reading()
    if len(data) > max_bytes:
        data = data[:max_bytes]
        reading.oddities.add("cut")
    lines = data.split(b"\n")
    if lines.pop():  # a last line without its end: the process died in it
        reading.oddities.add("cut")
    for number, line in enumerate(lines):
        reading.take(number, line)
    return reading.report()


class _Reading:
    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.errors: list[str] = []
        self.oddities: set[str] = set()
        self.collected: int | None = None
        self.exit: int | None = None
        self.tests = 0
        self.cpu_s = 0.0

    def take(self, number: int, data: bytes) -> None:
        line = _parse_line(data)
        event = line.get("event")
        if (number == 0) != (event == "start"):
            self.oddities.add("no_start" if number == 0 else "twice" if event == "start" else "junk")
        if self.exit is not None:
            self.oddities.add("after_finish")
        if event == "test" and _is_id(line.get("id")) and _is_outcome(line.get("outcome")):
            self._take_test(line)
        elif event == "collect_error" and isinstance(line.get("id"), str):
            self.errors.append(line["id"][:_MAX_ID])
            self.texts.setdefault(line["id"], str(line.get("text", "")))
        elif event == "collected" and _is_count(line.get("count")):
            self.oddities.update({"twice"} if self.collected is not None else ())
            self.collected = line["count"]
        elif event == "finish" and _is_count(line.get("exit")) and _is_count(line.get("count")):
            self.oddities.update({"twice"} if self.exit is not None else ())
            self.oddities.update({"count"} if line["count"] != self.tests else ())
            self.exit = line["exit"]
            self.cpu_s = _number(line.get("cpu_s"))
        elif event != "start" or line.get("format") != 1:
            self.oddities.add("junk")

    def _take_test(self, line: Mapping[str, Any]) -> None:
        test, outcome = line["id"], line["outcome"]
        self.tests += 1
        if test in self.outcomes:
            self.oddities.add("duplicate")
            outcome = max(outcome, self.outcomes[test], key=lambda word: word not in PASSING)
        self.outcomes[test] = outcome
        for field_name, texts in (("text", self.texts), ("message", self.messages)):
            if isinstance(line.get(field_name), str):
                texts[test] = line[field_name]
        self.seconds[test] = _number(line.get("seconds"))

    def report(self) -> SuiteReport:
        return SuiteReport(
            outcomes=self.outcomes,
            exit_status=self.exit,
            collected=self.collected,
            collect_errors=tuple(self.errors),
            oddities=tuple(sorted(self.oddities)),
            texts=self.texts,
            messages=self.messages,
            seconds=self.seconds,
            cpu_s=self.cpu_s,
        )


def _parse_line(data: bytes) -> Mapping[str, Any]:
    """The line's object; an empty one where it is none."""
    if len(data) > _MAX_LINE:
        return {}
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) else {}


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID


def _is_outcome(value: object) -> bool:
    return isinstance(value, str) and value in OUTCOMES  # a list cannot even be looked for in a set


def _number(value: object) -> float:
    """Seconds; 0 where they are none."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e6 else 0.0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def same_outcomes(reports: Sequence[SuiteReport]) -> dict[str, str]:
    """Tests that every one of `reports` has with the same outcome: those that can be relied on."""
    first = reports[0].outcomes
    return {
        test: outcome
        for test, outcome in first.items()
        if all(report.outcomes.get(test) == outcome for report in reports[1:])
    }
