"""Reads the `env.options` mapping into an environment's own options dataclass, all mistakes at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from jaxmtrl.errors import ConfigError

OptionsT = TypeVar("OptionsT")


def read_options(kind: type[OptionsT], options: Mapping[str, Any]) -> OptionsT:
    """Validates `options` as the pydantic dataclass `kind`.

    Raises:
        ConfigError: every wrong name, type or bound, with its dotted path from `env.options` and the nearest name.
    """
    try:
        return TypeAdapter(kind).validate_python(dict(options))
    except ValidationError as err:
        names = list(getattr(kind, "__dataclass_fields__", {}))
        raise ConfigError("env.options", [_sentence(mistake, names) for mistake in err.errors()]) from err


def _sentence(mistake: Mapping[str, Any], names: list[str]) -> str:
    """One line for one mistake that pydantic found."""
    place = ".".join(["env.options", *map(str, mistake["loc"])])
    if mistake["type"] == "unexpected_keyword_argument":
        if len(mistake["loc"]) > 1:
            return f"{place} is not an option; remove or rename it."
        near = difflib.get_close_matches(str(mistake["loc"][-1]), names, n=1)
        hint = f"the nearest is {near[0]!r}" if near else "the options are: " + ", ".join(names)
        return f"{place} is not an option; {hint}."
    if mistake["type"] == "value_error":  # raised by a dataclass's own rules, which name their fields themselves
        return f"{place}: {mistake['ctx']['error']}."
    return f"{place}: {mistake['msg']}, got {mistake['input']!r}."
