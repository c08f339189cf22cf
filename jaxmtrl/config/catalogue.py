"""What the config's fields say of themselves: type, default, bound, unit and sentence, as text for people.

Reads the section classes only; help and error messages are both written from here, so that they agree.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from jaxmtrl.config.sections import Config

_TYPES = {int: "integer", float: "number", bool: "true or false", str: "text", Any: "anything"}


@dataclass(frozen=True, kw_only=True)
class SettingInfo:
    """One field of one section, in words."""

    path: str  # dotted, for example "optimizer.learning_rate"
    kind: str  # for example "number" or "ppo | rloo"
    default: Any  # the value; None when required
    required: bool
    bounds: str  # for example ">= 0"; empty when there is none
    unit: str  # empty when the sentence says it
    about: str

    @property
    def wanted(self) -> str:
        """Type, bound and unit in one phrase, for error messages."""
        unit = f", in {self.unit}" if self.unit else ""
        return " ".join(part for part in (self.kind, self.bounds) if part) + unit


@cache
def section_names() -> tuple[str, ...]:
    """Names of the sections in the order of the file."""
    return tuple(field.name for field in fields(Config))


@cache
def section_abouts() -> dict[str, str]:
    """The sentence of every section."""
    return {name: info.description or "" for name, info in _field_infos(Config).items()}


@cache
def settings() -> dict[str, SettingInfo]:
    """Every field by its dotted name, in the order of the sections."""
    return {
        f"{section}.{name}": _describe(f"{section}.{name}", info)
        for section, outer in _field_infos(Config).items()
        for name, info in _field_infos(outer.annotation).items()
    }


def fields_of(section: str) -> tuple[str, ...]:
    """Names of the fields of one section; empty for an unknown section."""
    return tuple(path.split(".", 1)[1] for path in settings() if path.startswith(f"{section}."))


def _field_infos(section: Any) -> dict[str, FieldInfo]:
    return section.__pydantic_fields__


def _describe(path: str, info: FieldInfo) -> SettingInfo:
    if info.default_factory is not None:
        default = info.default_factory()  # pyright: ignore[reportCallIssue]  # ours take no argument
    else:
        default = None if info.default is PydanticUndefined else info.default
    extra = info.json_schema_extra
    return SettingInfo(
        path=path,
        kind=_kind(info.annotation),
        default=default,
        required=info.is_required(),
        bounds=_bounds(info.metadata),
        unit=str(extra.get("unit", "")) if isinstance(extra, dict) else "",
        about=info.description or "",
    )


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [_bounds(item.metadata if isinstance(item, FieldInfo) else [item]) for item in arguments[1:]]
        return " ".join(part for part in (_kind(arguments[0]), *bounds) if part)
    if origin is Literal:
        return " | ".join(str(argument) for argument in arguments)
    if origin in (tuple, list):
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return "mapping" if arguments[1] is Any else f"mapping of name to {_kind(arguments[1])}"
    if origin in (Union, types.UnionType):
        return " or ".join("null" if argument is type(None) else _kind(argument) for argument in arguments)
    return _TYPES.get(annotation, str(annotation))


def _bounds(metadata: Iterable[Any]) -> str:
    """Bounds in words, from whichever attributes the constraint objects carry."""
    words = []
    for item in metadata:
        for attribute, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
            bound = getattr(item, attribute, None)
            if bound is not None:
                words.append(f"{sign} {bound:g}" if isinstance(bound, float) else f"{sign} {bound}")
        if getattr(item, "min_length", None):
            words.append("not empty")
        if getattr(item, "pattern", None):
            words.append(f"matching {item.pattern}")
    return " and ".join(words)
