"""`python -m jaxmtrl.plan --config F --topology v5e:4x4 [section.field=value …]`: will it fit, how fast could it be?

Thin on purpose: what it prints is made in `planning`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line, compiles, prints; 0 if the plan fits, 1 if it does not, 2 for a mistake."""
    from jaxmtrl.errors import JaxmtrlError

    parser = argparse.ArgumentParser(
        prog="python -m jaxmtrl.plan",
        description="Compiles a config's real update, prefill and decode for a TPU slice, with no TPU about, and "
        "prints what a chip needs of memory, what chips send each other, and the time of a step if everything ran at "
        "its peak (an estimate). For GPUs and CPUs memory is by formula. Exit code 1 if it does not fit with 5 % "
        "to spare, 2 if the command is wrong.",
        epilog="Fields of a config: python -m jaxmtrl.train --help",
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="YAML file with one mapping a section")
    parser.add_argument(
        "--topology",
        required=True,
        metavar="CHIP:GRID",
        help="v4, v5e, v5p or v6e and the slice's sides (v5e:4x4), or h200:8, h100:8, a100:8, cpu:1 by formula",
    )
    parser.add_argument("--formula", action="store_true", help="count memory instead of compiling, for TPUs too")
    parser.add_argument(
        "--action-share", type=_share, default=0.1, metavar="X", help="share of a row's tokens that were sampled; 0.1"
    )
    parser.add_argument(
        "--search", action="store_true", help="also find the largest batching.micro_batch_rows and row_length that fit"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument(
        "overrides", nargs="*", metavar="section.field=value", help="replaces single fields, read as YAML"
    )
    parsed = parser.parse_intermixed_args(arguments)
    # The devices that are planned for are not here, and those that are need not be woken.
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        return _plan(parsed)
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _plan(parsed: argparse.Namespace) -> int:
    from rich.console import Console

    from jaxmtrl.config.loading import load_config
    from jaxmtrl.config.sections import Config
    from jaxmtrl.planning.plan_of import Plan, largest, make_plan
    from jaxmtrl.planning.programs import TooLarge
    from jaxmtrl.planning.report import as_json, show
    from jaxmtrl.planning.sizes import with_sizes
    from jaxmtrl.planning.topology import parse_topology

    source = " ".join([parsed.config, *parsed.overrides])
    topology = parse_topology(parsed.topology)
    config = with_sizes(load_config(parsed.config, parsed.overrides))

    def plan(config: Config) -> Plan:
        return make_plan(config, topology, source=source, formula=parsed.formula, action_share=parsed.action_share)

    def fits(tried: Config) -> bool:
        try:
            return plan(tried).fits
        except TooLarge:
            return False

    found = largest(config, topology, fits, lambda line: print(line, file=sys.stderr)) if parsed.search else {}
    try:
        made = dataclasses.replace(plan(config), largest=found)
    except TooLarge as err:
        print(f"does not fit: {err}", file=sys.stderr)
        for name, most in found.items():
            print(f"largest {name} that fits: {most or 'none'}", file=sys.stderr)
        return 1
    if parsed.json:
        print(as_json(made))
    else:
        show(made, Console(highlight=False))
    return 0 if made.fits else 1


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"got {text}, wanted a share above 0 and at most 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
