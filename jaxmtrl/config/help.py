"""The config's reference page for `--help`: every field with type, default, bound, unit and sentence."""

from __future__ import annotations

from jaxmtrl.config.catalogue import fields_of, section_abouts, settings


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
            lines += settings()[f"{section}.{field}"].paragraph()
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
