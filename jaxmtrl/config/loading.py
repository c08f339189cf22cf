"""From a YAML file and overrides to a valid `Config`, or to one error that lists every mistake.

Knows the file format and how to speak of mistakes; what is valid stands in `sections.py` and `rules.py`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jaxmtrl.config.catalogue import fields_of, section_abouts, section_names, settings
from jaxmtrl.config.rules import broken_rules
from jaxmtrl.config.sections import Config
from jaxmtrl.config.yaml_format import YamlError, read_yaml, write_yaml
from jaxmtrl.errors import ConfigError
from jaxmtrl.fields import dotted, lookup, nearest, show

_CONFIG = TypeAdapter(Config)
_PLACEHOLDERS = {"run.name": "unnamed", "env.factory": "module:function"}  # only to check the rest for mistakes
_OVERRIDE_PATH = re.compile(r"^[^.\s=]+(\.[^.\s=]+)+$")


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Config:
    """Reads, overrides and validates a config.

    Args:
        path: a YAML file with one mapping a section.
        overrides: `section.field=value` each, the value read as YAML; later ones win. `env.options` may be entered
            at any depth, for example `env.options.train.rooms=3`.

    Raises:
        ConfigError: lists all mistakes: of the file, the overrides, each field, and between fields.
    """
    data, mistakes = _read_file(Path(path))
    mistakes += _apply_overrides(data, overrides)
    config, schema_mistakes = _validate(data)
    mistakes += schema_mistakes
    if mistakes or config is None:
        raise ConfigError(f"{path} with {len(overrides)} overrides" if overrides else str(path), mistakes)
    return config


def save_config(config: Config, path: str | os.PathLike[str]) -> None:
    """Writes every field, defaults included, as YAML; the file is either the old one or the whole new one."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(write_yaml(config_to_dict(config)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def config_to_dict(config: Config) -> dict[str, Any]:
    """A config as plain dicts, lists and scalars, as they would stand in YAML."""
    return _plain(dataclasses.asdict(config))  # pyright: ignore[reportArgumentType]  # pydantic's are dataclasses too


def differing_fields(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What a run folder's config `a` and a given config `b` disagree on.

    Returns:
        One line a field, such as "optimizer.learning_rate: 0.001 in the run folder, 0.002 given".
    """
    left, right = _leaves(_plain(a)), _leaves(_plain(b))
    lines = []
    for path in dict.fromkeys([*left, *right]):
        old = show(left[path]) if path in left else "absent"
        new = show(right[path]) if path in right else "nothing"
        if path not in left or path not in right or not _same(left[path], right[path]):
            lines.append(f"{path}: {old} in the run folder, {new} given")
    return lines


def _read_file(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(str(path), [_not_found(path)]) from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(str(path), [f"cannot be read as a text file ({err}); give a YAML file"]) from err
    try:
        data, mistakes = read_yaml(text)
    except YamlError as err:
        raise ConfigError(str(path), [str(err)]) from err
    if not isinstance(data, dict):
        got = "an empty file" if data is None else f"{show(data)}"
        raise ConfigError(
            str(path), [f"got {got}, wanted a mapping of sections ({', '.join(section_names())}), such as 'run:'"]
        )
    # A section whose fields are all commented out reads as null; it means "all defaults".
    return {key: {} if value is None and key in section_names() else value for key, value in data.items()}, mistakes


def _not_found(path: Path) -> str:
    neighbours = [str(other) for pattern in ("*.yaml", "*.yml") for other in path.parent.glob(pattern)]
    near = difflib.get_close_matches(str(path), neighbours, n=1)
    return "file not found; " + (f"did you mean {near[0]}?" if near else "give the path of a YAML file")


def _apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> list[str]:
    """Writes overrides into `data`; returns the mistakes of those that cannot be written."""
    mistakes = []
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not _OVERRIDE_PATH.match(path):
            mistakes.append(f"override {override!r}: wanted section.field=value, for example run.seed=1")
            continue
        try:
            value, doubles = read_yaml(text)
        except YamlError as err:
            mistakes.append(f"override {path}: got {text!r}; {err}")
            continue
        mistakes += [f"override {path}: {double}" for double in doubles]
        blocker = _put(data, path.split("."), value)
        if blocker:
            mistakes.append(f"override {path}: {blocker} is not a mapping, so nothing can be set inside it")
    return mistakes


def _put(data: dict[str, Any], keys: list[str], value: Any) -> str:
    """Sets a nested key; returns the dotted path that stands in the way, or an empty string."""
    inner = data
    for depth, key in enumerate(keys[:-1]):
        if inner.get(key) is None:
            inner[key] = {}
        if not isinstance(inner[key], dict):
            return ".".join(keys[: depth + 1])
        inner = inner[key]
    inner[keys[-1]] = value
    return ""


def _validate(data: dict[str, Any]) -> tuple[Config | None, list[str]]:
    """A config, or every mistake; rules are checked on the valid fields even when others are wrong."""
    try:
        config = _parse(data)
    except ValidationError as err:
        errors = err.errors(include_url=False)
        wrong = {".".join(str(part) for part in error["loc"][:2]) for error in errors}
        mistakes = [_explain(error["type"], error["loc"], error["input"]) for error in errors]
        return None, mistakes + _rules_on_the_rest(data, wrong)
    mistakes = broken_rules(config)
    return (None if mistakes else config), mistakes


def _parse(data: dict[str, Any]) -> Config:
    # JSON is pydantic's strictest door that still takes mappings for dataclasses: no text for numbers, no true for
    # 1, no 2.0 for 2, but whole numbers for floats.
    return _CONFIG.validate_json(json.dumps(data), strict=True)


def _rules_on_the_rest(data: dict[str, Any], wrong: set[str]) -> list[str]:
    """Broken rules among the fields that are valid, the wrong ones replaced by their defaults."""
    sound: dict[str, Any] = {"run": {}, "env": {}}
    for section, body in data.items():
        if section in section_names() and isinstance(body, dict):
            sound[section] = {key: value for key, value in body.items() if f"{section}.{key}" not in wrong}
    for path, value in _PLACEHOLDERS.items():
        section, field = path.split(".")
        sound[section].setdefault(field, value)
    return broken_rules(_parse(sound), without=wrong | {path for path in settings() if path.split(".")[0] in wrong})


def _explain(kind: str, loc: tuple[int | str, ...], got: Any) -> str:
    """One schema mistake in our words: dotted path, got, wanted, cure."""
    path = dotted(loc)
    if kind == "unexpected_keyword_argument":
        return _explain_unknown(loc)
    info = lookup(settings(), loc)
    if info is None:  # a whole section
        if kind == "missing":
            return f"{path}: missing, wanted a section ({section_abouts()[path]}); add '{path}:' with its fields"
        return f"{path}: got {show(got)}, wanted a mapping with fields such as {', '.join(fields_of(path)[:3])}"
    return info.mistake(path, got, missing=kind == "missing")


def _explain_unknown(loc: tuple[int | str, ...]) -> str:
    path = ".".join(str(part) for part in loc)
    name = str(loc[-1])
    if len(loc) == 1:
        what, neighbours, here = "section", section_names(), ""
    else:
        what, neighbours, here = "field", fields_of(str(loc[0])), f"{loc[0]}."
    elsewhere = [known for known in settings() if known.split(".")[1] == name]
    close = nearest(name, neighbours)
    near = elsewhere[0] if elsewhere else here + close if close else ""
    cure = f"did you mean {near}?" if near else f"known are {', '.join(neighbours)}"
    return f"{path}: unknown {what}; {cure}"


def _plain(value: Any) -> Any:
    """Mappings to dicts and tuples to lists, all the way down."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted path to value, for everything that is not a mapping with entries."""
    if not isinstance(value, dict) or not value:
        return {prefix: value} if prefix else {}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(_leaves(inner, f"{prefix}.{key}" if prefix else key))
    return flat


def _same(a: Any, b: Any) -> bool:
    """Equal as settings: 1 is 1.0, but true is not 1, and not-a-number is itself."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True) or (
        a == b and isinstance(a, bool) == isinstance(b, bool)
    )
