"""Reads the `env.options` mapping into an environment's own options dataclass, all mistakes at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from jaxmtrl.errors import ConfigError
from jaxmtrl.fields import SettingInfo, describe, dotted, lookup, nearest, show, siblings

OptionsT = TypeVar("OptionsT")
_PLACE = ("env", "options")


def read_options(kind: type[OptionsT], options: Mapping[str, Any]) -> OptionsT:
    """Validates `options` as the pydantic dataclass `kind`, as strictly as the config: no text for a number.

    Raises:
        ConfigError: every wrong name, type or bound, with its dotted path from `env.options` and the nearest name.
    """
    try:
        return TypeAdapter(kind).validate_json(json.dumps(dict(options)), strict=True)
    except ValidationError as err:
        known = describe(kind, ".".join(_PLACE))
        raise ConfigError("env.options", [_sentence(mistake, known) for mistake in err.errors()]) from err


def describe_options(kind: Any) -> str:
    """The reference page of an options class, for `--help`."""
    return "\n".join(line for info in describe(kind, ".".join(_PLACE)).values() for line in info.paragraph())


def _sentence(mistake: Mapping[str, Any], known: Mapping[str, SettingInfo]) -> str:
    """One line for one mistake that pydantic found."""
    loc = (*_PLACE, *mistake["loc"])
    place = dotted(loc)
    info = lookup(known, loc)
    if mistake["type"] == "unexpected_keyword_argument":
        names = siblings(known, loc)
        near = nearest(str(loc[-1]), names)
        hint = f"did you mean {near}?" if near else "the options are: " + ", ".join(names)
        return f"{place}: unknown option; {hint}"
    if mistake["type"] == "value_error":  # raised by a dataclass's own rules, which name their fields themselves
        return f"{place}: {mistake['ctx']['error']}."
    if info is None:
        return f"{place}: {mistake['msg']}, got {show(mistake['input'])}"
    return info.mistake(place, mistake["input"], missing=mistake["type"] == "missing")
