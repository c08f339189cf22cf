"""How a diagnosis is told: a line a check as it is made, or one JSON object at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import TextIO

from rich.console import Console
from rich.text import Text

from jaxmtrl.diagnosis.examine import Diagnosis
from jaxmtrl.diagnosis.finding import Finding, json_number
from jaxmtrl.progress import duration

_NAME, _NUMBER, _BOUND = 47, 8, 22
_INDENT = " " * 6


class Report:
    """Prints findings for a person: coloured on a terminal, plain lines elsewhere."""

    def __init__(self, stream: TextIO):
        self._console = Console(file=stream, highlight=False)
        self._width = self._console.width if self._console.is_terminal else 10_000
        self._section = ""

    def begin(self, source: str) -> None:
        """Says what is examined."""
        self._line(Text(f"examining {source}", style="bold"))

    def section(self, title: str, findings: Sequence[Finding]) -> None:
        """Prints findings, under their title if it is a new one."""
        if title != self._section:
            self._section = title
            self._line(Text(f"\n{title}", style="bold"))
        for finding in findings:
            self._finding(finding)

    def end(self, diagnosis: Diagnosis) -> None:
        """Prints what was made smaller, and the verdict."""
        if diagnosis.shrunk:
            self._line(Text("\nmeasured on a small copy of the model and its run:", style="bold"))
            for line in wrap(", ".join(diagnosis.shrunk), 110, break_on_hyphens=False):
                self._line(Text(f"  {line}", style="dim"))
        failures = [finding for _, finding in diagnosis.findings if not finding.passed]
        count, took = len(diagnosis.findings), duration(diagnosis.seconds)
        if not failures:
            self._line(Text(f"\nall {count} checks passed in {took}", style="bold green"))
            return
        names = ", ".join(finding.name for finding in failures)
        self._line(Text(f"\n{len(failures)} of {count} checks FAILED in {took}: {names}", style="bold red"))

    def _finding(self, finding: Finding) -> None:
        mark = Text("ok    ", style="green") if finding.passed else Text("FAIL  ", style="bold red")
        head = f"{finding.name:<{_NAME}}{show(finding.number):>{_NUMBER}}  {finding.bound:<{_BOUND}}"
        if finding.passed:
            line = mark + Text(head) + Text(finding.said, style="dim")
            line.truncate(self._width, overflow="ellipsis")
            self._line(line)
            return
        self._line(mark + Text(head.rstrip()))
        for text in (finding.said, f"→ {finding.cure}"):
            for part in wrap(text, 112):
                self._line(Text(_INDENT + part))

    def _line(self, text: Text) -> None:
        text.rstrip()
        self._console.print(text, soft_wrap=True)


def as_json(source: str, diagnosis: Diagnosis) -> str:
    """The diagnosis as one JSON object; a number that is not finite is null."""
    findings = [
        {"section": section, **asdict(finding), "number": json_number(finding.number)}
        for section, finding in diagnosis.findings
    ]
    whole = {
        "config": source,
        "passed": diagnosis.passed,
        "seconds": round(diagnosis.seconds, 1),
        "shrunk": list(diagnosis.shrunk),
        "findings": findings,
    }
    return json.dumps(whole, ensure_ascii=False, allow_nan=False)


def show(number: float | None) -> str:
    """A number short enough for its column; a dash where nothing was measured."""
    if number is None:
        return "-"
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e6 else f"{number:.2g}"
