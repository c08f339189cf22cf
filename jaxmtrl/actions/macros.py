"""Macro-actions: one command that stands for several, with the words that they share as parameters.

Written with parameters in capital letters: `fetch X from Y` stands for `go to Y`, `try open Y`, `take X from Y`. A
step that begins with `try` is optional: it is left out where it could not be done.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jaxmtrl.actions.verbs import verb_of

_OPTIONAL = "try "
_PARAMETER = re.compile(r"[A-Z][A-Z0-9]*")


@dataclass(frozen=True)
class Step:
    """One command that a macro stands for."""

    template: str  # parameters in capitals
    optional: bool = False

    @classmethod
    def of(cls, written: str) -> Step:
        """As a config has it, an optional one behind "try"."""
        words = " ".join(written.split())
        return cls(words.removeprefix(_OPTIONAL), words.startswith(_OPTIONAL))


@dataclass(frozen=True)
class Macro:
    """A command with parameters, and what it stands for."""

    template: str  # "fetch X from Y"
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, template: str, steps: Sequence[str]) -> Macro:
        """As a config has it."""
        return cls(" ".join(template.split()), tuple(Step.of(step) for step in steps))

    @property
    def verb(self) -> str:
        """The words before the first parameter; "" where it begins with one."""
        words = self.template.split(" ")
        first = next((at for at, word in enumerate(words) if is_parameter(word)), len(words))
        return " ".join(words[:first])

    @property
    def parameters(self) -> frozenset[str]:
        return parameters_of(self.template)

    def says(self) -> str:
        """What it stands for, in one line for people and policies."""
        return f"{self.template} ({', '.join(step.template for step in self.steps)})"


def is_parameter(word: str) -> bool:
    return _PARAMETER.fullmatch(word) is not None


def parameters_of(template: str) -> frozenset[str]:
    return frozenset(word for word in template.split(" ") if is_parameter(word))


def bound(template: str, command: str, known: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """The values of a template's parameters in a command, those of `known` with them; None where it does not fit.

    "take X from Y" in "take mug 1 from desk 2": X mug 1, Y desk 2. Where several ways fit, earlier values are shorter.
    """
    known = dict(known or {})
    found = _pattern(template).fullmatch(command)
    if found is None:
        return None
    values = found.groupdict()
    if any(known.get(name, value) != value for name, value in values.items()):
        return None
    return {**known, **values}


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with its parameters replaced."""
    return " ".join(values.get(word, word) if is_parameter(word) else word for word in template.split(" "))


def expand(macro: Macro, command: str) -> list[Step] | None:
    """What a command stands for; None where it is not of this macro."""
    values = bound(macro.template, command)
    if values is None:
        return None
    return [Step(filled(step.template, values), step.optional) for step in macro.steps]


def contract(
    commands: Sequence[str], macros: Sequence[Macro], allowed: Collection[str], known: Collection[str]
) -> list[str] | None:
    """The same way in as few commands as possible, each allowed; None where there is no such way.

    Args:
        commands: of the game, as `plain` writes them.
        macros: that may be used.
        allowed: verbs that may be used, those of the macros not counted.
        known: all verbs that there are, by which a command's is told.
    """
    best: list[tuple[int, int, list[str]] | None] = [(0, 0, [])]  # of the first n commands: turns, macros, what is said
    for end in range(1, len(commands) + 1):
        ways = _ways(commands, end, macros, allowed, known, best)
        best.append(min(ways, key=lambda way: way[:2], default=None))
    last = best[-1]
    return None if last is None else last[2]


def _ways(
    commands: Sequence[str],
    end: int,
    macros: Sequence[Macro],
    allowed: Collection[str],
    known: Collection[str],
    best: Sequence[tuple[int, int, list[str]] | None],
) -> Iterator[tuple[int, int, list[str]]]:
    """The ways to have done the first `end` commands whose last turn is a command alone or a macro."""
    before, last = best[end - 1], commands[end - 1]
    if before is not None and verb_of(last, known) in allowed:
        yield before[0] + 1, before[1], [*before[2], last]
    for macro in macros:
        for start in range(max(0, end - len(macro.steps)), end):
            before, said = best[start], _said(macro, commands[start:end])
            if before is not None and said is not None:
                yield before[0] + 1, before[1] + 1, [*before[2], said]


def _said(macro: Macro, commands: Sequence[str]) -> str | None:
    """The macro's command that stands for exactly these; None if it can stand for something else only."""
    values: dict[str, str] = {}
    left = list(commands)
    for step in macro.steps:
        fits = bound(step.template, left[0], values) if left else None
        if fits is not None:
            values = fits
            left.pop(0)
        elif not step.optional:
            return None
    return filled(macro.template, values) if not left and macro.parameters <= values.keys() else None


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    seen: set[str] = set()
    parts = []
    for word in template.split(" "):
        if not is_parameter(word):
            parts.append(re.escape(word))
        elif word in seen:
            parts.append(f"(?P={word})")
        else:
            seen.add(word)
            parts.append(f"(?P<{word}>.+?)")
    return re.compile(" ".join(parts))
