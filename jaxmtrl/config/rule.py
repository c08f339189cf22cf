"""What a rule between fields is, and how a function becomes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxmtrl.config.sections import Config

Check = Callable[[Config], str | Sequence[str] | None]  # a message when broken, or one for every place that breaks it


@dataclass(frozen=True)
class Rule:
    """One fact that must hold between fields."""

    fields: tuple[str, ...]  # dotted names of all fields that `check` reads
    check: Check


def rule_of(rules: list[Rule], *fields: str) -> Callable[[Check], Check]:
    """A decorator that adds a check to `rules`, with the dotted names of the fields it reads."""

    def register(check: Check) -> Check:
        rules.append(Rule(fields, check))
        return check

    return register
