"""The config's reference page for `--help`: every field with type, default, bound, unit and sentence."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import Any

from jaxmtrl.config.catalogue import SettingInfo, fields_of, section_abouts, settings

_WIDTH = 110


def describe_config() -> str:
    """The whole reference as plain text, one paragraph a section.

    Returns:
        Lines such as `rollout.step_timeout_s = 20.0   (number > 0, in s)`, each with its sentence below; made for
        the epilog of an argparse parser with `RawDescriptionHelpFormatter`.
    """
    lines = [
        "Every setting of a run. One YAML mapping a section; on the command line section.field=value, read as YAML.",
        "",
    ]
    for section, about in section_abouts().items():
        lines.append(f"{section}: {about}")
        for field in fields_of(section):
            lines += _paragraph(settings()[f"{section}.{field}"])
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _paragraph(info: SettingInfo) -> list[str]:
    default = "(required)" if info.required else f"= {_yaml_like(info.default)}"
    head = f"  {info.path} {default}   ({info.wanted})"
    return [head, *wrap(info.about, width=_WIDTH, initial_indent="      ", subsequent_indent="      ")]


def _yaml_like(value: Any) -> str:
    """A default as one would write it in YAML on one line."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)
