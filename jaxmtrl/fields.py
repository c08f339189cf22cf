"""What the fields of a settings class say of themselves: type, default, bound, unit and sentence, for people.

Help pages and error messages are both written from here, so that they agree. A settings class is a pydantic
dataclass; a mapping of names to settings classes is entered as `NAME`.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

ANY_NAME = "NAME"  # stands in a path for the keys that a user chooses
_TYPES = {int: "integer", float: "number", bool: "true or false", str: "text", Any: "anything"}
_WIDTH = 110


@dataclass(frozen=True, kw_only=True)
class SettingInfo:
    """One field, in words."""

    path: str  # dotted, for example "optimizer.learning_rate" or "env.options.splits.NAME.count"
    kind: str  # for example "number" or "ppo | rloo"
    choices: tuple[str, ...]  # of a field that takes one of a few words; else empty
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

    def paragraph(self) -> list[str]:
        """Lines for a help page: path, default and what is wanted; the sentence below."""
        default = "(required)" if self.required else f"= {_one_line(self.default)}"
        head = f"  {self.path} {default}   ({self.wanted})"
        return [head, *wrap(self.about, width=_WIDTH, initial_indent="      ", subsequent_indent="      ")]

    def mistake(self, path: str, got: Any, *, missing: bool = False) -> str:
        """One sentence about a wrong value: place, got, wanted, and the nearest word where only a few are known."""
        near = nearest(got, self.choices)
        cure = f"; did you mean {near}?" if near else ""
        return f"{path}: {'missing' if missing else f'got {show(got)}'}, wanted {self.wanted} ({self.about}){cure}"


def describe(kind: Any, prefix: str) -> dict[str, SettingInfo]:
    """Every field of the settings class `kind` by its dotted path below `prefix`, those of inner classes after it."""
    described = {}
    for name, info in field_infos(kind).items():
        path = f"{prefix}.{name}"
        described[path] = _describe(path, info)
        for inner in _mapped_to(info.annotation):
            described |= describe(inner, f"{path}.{ANY_NAME}")
    return described


def lookup(known: Mapping[str, SettingInfo], path: Sequence[int | str]) -> SettingInfo | None:
    """The field that a user's path leads to or into, if any: the longest beginning of it that is one."""
    for end in range(len(path), 0, -1):
        for candidate, info in known.items():
            if _leads_to(candidate.split("."), path[:end]):
                return info
    return None


def siblings(known: Mapping[str, SettingInfo], path: Sequence[int | str]) -> list[str]:
    """Names of the fields that could stand where the last part of `path` does."""
    candidates = [candidate.split(".") for candidate in known]
    return [names[-1] for names in candidates if _leads_to(names[:-1], path[:-1])]


def _leads_to(names: Sequence[str], path: Sequence[int | str]) -> bool:
    return len(names) == len(path) and all(
        name in (str(part), ANY_NAME) for name, part in zip(names, path, strict=True)
    )


def nearest(got: Any, names: Sequence[str]) -> str:
    """The known name most like `got`, or an empty string."""
    close = difflib.get_close_matches(got.lower(), names, n=1) if isinstance(got, str) else []
    return close[0] if close else ""


def field_infos(kind: Any) -> dict[str, FieldInfo]:
    """Pydantic's description of each field of a settings class."""
    return kind.__pydantic_fields__


def dotted(loc: Sequence[int | str]) -> str:
    """A place in nested settings as a person writes it: `env.options.exclude[1]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def show(value: Any) -> str:
    """A value as one would write it in YAML on one line, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _one_line(value: Any) -> str:
    """A default as one would write it in YAML on one line."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _mapped_to(annotation: Any) -> Iterator[Any]:
    """The settings classes that a mapping's values are."""
    arguments = get_args(annotation)
    if get_origin(annotation) is dict and hasattr(arguments[1], "__pydantic_fields__"):
        yield arguments[1]


def _describe(path: str, info: FieldInfo) -> SettingInfo:
    if info.default_factory is not None:
        default = info.default_factory()  # pyright: ignore[reportCallIssue]  # ours take no argument
    else:
        default = None if info.default is PydanticUndefined else info.default
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    words = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    return SettingInfo(
        path=path,
        kind=_kind(info.annotation),
        choices=tuple(str(word) for word in words),
        default=default,
        required=info.is_required(),
        bounds=str(extra.get("form") or _bounds(info.metadata)),
        unit=str(extra.get("unit", "")),
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
        inner = arguments[1]
        if inner is Any:
            return "mapping"
        return f"mapping of name to {'fields' if hasattr(inner, '__pydantic_fields__') else _kind(inner)}"
    if origin in (Union, types.UnionType):
        return " or ".join("null" if argument is type(None) else _kind(argument) for argument in arguments)
    return "mapping" if hasattr(annotation, "__pydantic_fields__") else _TYPES.get(annotation, str(annotation))


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
