"""Sections and fields of the config by name, with what each says of itself."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from jaxmtrl.config.sections import Config
from jaxmtrl.fields import SettingInfo, describe, field_infos


@cache
def section_names() -> tuple[str, ...]:
    """Names of the sections in the order of the file."""
    return tuple(field.name for field in fields(Config))


@cache
def section_abouts() -> dict[str, str]:
    """The sentence of every section."""
    return {name: info.description or "" for name, info in field_infos(Config).items()}


@cache
def settings() -> dict[str, SettingInfo]:
    """Every field by its dotted name, in the order of the sections."""
    described = {}
    for section, outer in field_infos(Config).items():
        described |= describe(outer.annotation, section)
    return described


def fields_of(section: str) -> tuple[str, ...]:
    """Names of the fields of one section; empty for an unknown section."""
    return tuple(path.split(".", 1)[1] for path in settings() if path.startswith(f"{section}."))
