"""`python -m jaxmtrl.doctor --config F [section.field=value …] [--json]`: is the trainer right, on this config?

Thin on purpose: every environment process imports this module again, so nothing heavy is imported at its top.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import sys

_LEVEL = "--xla_backend_optimization_level"


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line, examines, prints; 0 if all passed, 1 if a check failed, 2 for a config error."""
    from jaxmtrl.config.loading import load_config
    from jaxmtrl.errors import JaxmtrlError

    parser = argparse.ArgumentParser(
        prog="python -m jaxmtrl.doctor",
        description="Proves on a config's own environment, text, algorithm and a small copy of its model that what "
        "is sampled is what is trained, in about a minute: a line a check with the measured number, its bound, and "
        "the cure where it failed. Exit code 1 if a check failed, 2 if the config is wrong.",
        epilog="Fields of a config: python -m jaxmtrl.train --help",
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="YAML file with one mapping a section")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument(
        "overrides", nargs="*", metavar="section.field=value", help="replaces single fields, read as YAML"
    )
    parsed = parser.parse_intermixed_args(arguments)
    _compile_quickly()
    try:
        config = load_config(parsed.config, parsed.overrides)
        from jaxmtrl.diagnosis.examine import examine
        from jaxmtrl.diagnosis.report import Report, as_json

        source = " ".join([parsed.config, *parsed.overrides])
        if parsed.json:
            diagnosis = examine(config, lambda section, findings: None)
            print(as_json(source, diagnosis))
        else:
            report = Report(sys.stdout)
            report.begin(source)
            diagnosis = examine(config, report.section)
            report.end(diagnosis)
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0 if diagnosis.passed else 1


def _compile_quickly() -> None:
    """On a CPU nearly all of the time is compiling programs that then run once; half of that is optimising them."""
    accelerated = any(importlib.metadata.entry_points(group="jax_plugins")) or importlib.util.find_spec("libtpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if not accelerated and _LEVEL not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_LEVEL}=0".strip()


if __name__ == "__main__":
    sys.exit(main())
