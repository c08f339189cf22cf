"""The brackets of a PDDL problem: its sections, its facts and its goal, without knowing what any of them means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from jaxmtrl.errors import EnvironmentFailure

Fact: TypeAlias = tuple[str, ...]  # predicate, then its arguments
_FACT = re.compile(r"\(\s*([^()\s][^()]*)\)")
_TOKEN = re.compile(r"[()]|[^\s()]+")
_DEEPEST = 50  # brackets of a goal within one another; the published ones have 7


@dataclass(frozen=True, slots=True)
class Atom:
    """A fact about variables ("?o") and names; the predicate "=" says that two are the same."""

    predicate: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Goal


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Goal, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    variables: tuple[tuple[str, str], ...]  # (variable, type)
    part: Goal


Goal: TypeAlias = Atom | Not | And | Exists


def section(text: str, name: str) -> str:
    """What stands between the brackets of section `name`, for example ":init".

    Raises:
        EnvironmentFailure: there is no such section, or it does not end.
    """
    begin = re.search(rf"\(\s*{name}(?=[\s()])", text)
    if begin is None:
        raise EnvironmentFailure(f"The PDDL problem has no section ({name} ...); the text is damaged.")
    depth = 0
    for match in re.compile(r"[()]").finditer(text, begin.start()):
        depth += 1 if match.group() == "(" else -1
        if depth == 0:
            return text[begin.end() : match.start()]
    raise EnvironmentFailure(f"The PDDL problem's section ({name} ...) does not end; the text is damaged.")


def read_facts(init: str) -> Iterator[Fact]:
    """The facts of a section :init; numeric assignments, (= (distance ..) 3), are left out.

    Raises:
        EnvironmentFailure: something stands between the facts.
    """
    init = re.sub(r"\(\s*=\s*\([^()]*\)[^()]*\)", " ", init)
    end = 0
    for match in _FACT.finditer(init):
        between = init[end : match.start()]
        if between and not between.isspace():
            raise EnvironmentFailure(f"The problem's :init has {between.strip()[:60]!r} between its facts.")
        end = match.end()
        yield tuple(match.group(1).split())
    if init[end:].strip():
        raise EnvironmentFailure(f"The problem's :init has {init[end:].strip()[:60]!r} after its facts.")


def read_goal(text: str) -> Goal:
    """The tree of a section :goal.

    Raises:
        EnvironmentFailure: it is no single formula of and, exists, not and atoms.
    """
    tokens = _TOKEN.findall(text)
    goal, end = _formula(tokens, 0)
    if end != len(tokens):
        raise EnvironmentFailure(f"The problem's :goal goes on after its formula with {tokens[end]!r}.")
    return goal


def _formula(tokens: list[str], at: int) -> tuple[Goal, int]:
    """The formula that begins at token `at`, and the place behind it."""
    tree, end = _tree(tokens, at)
    return _meaning(tree), end


def _tree(tokens: list[str], at: int, depth: int = 1) -> tuple[list, int]:
    """Nested lists of the brackets that open at `at`, within `depth` - 1 others."""
    if depth > _DEEPEST:
        raise EnvironmentFailure(f"The problem's :goal has more than {_DEEPEST} brackets within one another.")
    if at >= len(tokens) or tokens[at] != "(":
        got = repr(tokens[at]) if at < len(tokens) else "its end"
        raise EnvironmentFailure(f"The problem's :goal should open a bracket, got {got}.")
    parts: list = []
    at += 1
    while at < len(tokens):
        if tokens[at] == ")":
            return parts, at + 1
        if tokens[at] == "(":
            part, at = _tree(tokens, at, depth + 1)
        else:
            part, at = tokens[at], at + 1
        parts.append(part)
    raise EnvironmentFailure("The problem's :goal ends within a bracket; the text is damaged.")


def _meaning(tree: list) -> Goal:
    match tree:
        case ["and", *parts] if all(isinstance(part, list) for part in parts):
            return And(tuple(_meaning(part) for part in parts))
        case ["not", list(part)]:
            return Not(_meaning(part))
        case ["exists", list(declared), list(part)] if len(declared) % 3 == 0 and all(
            isinstance(word, str) for word in declared
        ):
            return Exists(tuple(zip(declared[::3], declared[2::3])), _meaning(part))
        case [str(predicate), *arguments] if all(isinstance(word, str) for word in arguments):
            return Atom(predicate, tuple(arguments))
    raise EnvironmentFailure(
        f"The problem's :goal has a part {str(tree)[:80]} that is no and, not, (exists (?x - type) ..) or atom."
    )
