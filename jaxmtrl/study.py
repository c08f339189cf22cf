"""`python -m jaxmtrl.study --config studies/complexity.yaml`: trains a grid of runs and says what it found.

Thin on purpose: processes that build games import this module again, so nothing heavy is imported at its top.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from jaxmtrl.errors import ConfigError, JaxmtrlError


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line, trains what is left, writes the pages.

    Returns:
        0 if every run has ended, 1 if some failed (the pages say which), 2 for a mistake, 130 when interrupted.
    """
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.export:
            from jaxmtrl.replay import export_run

            # float32: what begins with it begins with the very weights
            export_run(parsed.export, parsed.to, policy=parsed.policy, dtype="float32")
            return 0
        return _study(parsed)
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except OSError as err:
        print(
            f"error: {err.filename or 'a file'}: {err.strerror}; mend that, then the same command goes on",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with what is left", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jaxmtrl.study",
        description="Trains every cell of a study with every seed, one ordinary run each, and writes Markdown, CSV, "
        "JSON and a picture: our numbers with intervals, the published ones beside them, and whether the direction "
        "agrees. Finished runs are left alone and half-done ones go on, so the same command resumes a study.",
        epilog="Studies: studies/*.yaml. A run's folder: RUNS/<study>/<cell>_s<seed>, its log: RUNS/<study>/logs.",
    )
    parser.add_argument("--config", metavar="FILE", help="study file, for example studies/complexity.yaml")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="runs side by side; 1 if absent")
    parser.add_argument("--dry-run", action="store_true", help="print the cells and what they cost, train nothing")
    parser.add_argument("--pages-only", action="store_true", help="write the pages of the runs that have ended")
    parser.add_argument("--smoke", action="store_true", help="the study's smoke grid: does it run? it shows no more")
    parser.add_argument("--runs", default="runs/studies", metavar="DIR", help="folder of run folders; runs/studies")
    parser.add_argument("--out", metavar="DIR", help="folder of the pages; that of the study's runs if absent")
    for hidden in ("--export", "--to", "--policy"):  # a run's policy for another to begin with, in a child process
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser


def _study(parsed: argparse.Namespace) -> int:
    from jaxmtrl.studies.cost import as_lines, cost_of
    from jaxmtrl.studies.prepare import build_games, note_machine
    from jaxmtrl.studies.reading import read_configs, read_study
    from jaxmtrl.studies.results import results_of
    from jaxmtrl.studies.run import run_all

    if not parsed.config:
        raise ConfigError(
            "the command", ["--config: missing, wanted a study file, for example studies/complexity.yaml"]
        )
    _require_folders({"--runs": parsed.runs, "--out": parsed.out})
    study, base = read_study(parsed.config)
    root = Path(parsed.runs) / (f"{study.name}_smoke" if parsed.smoke else study.name)
    configs = read_configs(study, base, root, smoke=parsed.smoke)
    runs, results = list(configs), results_of(configs)
    for line in as_lines(study, cost_of(study, runs, results), parsed.jobs):
        _say(line)
    if parsed.dry_run:
        return 0
    left = [configs[run] for run in runs if run not in results]
    failed = {}
    if left and not parsed.pages_only:
        build_games(left, _say)
        note_machine(root)
        failed = run_all(runs, done=list(results), jobs=parsed.jobs, say=_say)
    from jaxmtrl.studies.findings import findings_of  # here: they start jax, which would sit beside the children
    from jaxmtrl.studies.pages import write_pages

    findings = findings_of(study, configs, root, _command(parsed), smoke=parsed.smoke)
    if findings.figures:
        files, no_picture = write_pages(findings, Path(parsed.out) if parsed.out else root)
        for verdict in findings.verdicts:
            _say(f"{verdict.word}: {verdict.claim.says}")
        _say(f"written: {', '.join(map(str, files))}{f' ({no_picture})' if no_picture else ''}")
    else:
        _say("no run has ended, so there is nothing to write")
    return 1 if failed else 0


def _require_folders(named: Mapping[str, str | None]) -> None:
    """Finds out before hours of training that what comes of them could not be written.

    Raises:
        ConfigError: an option names what is no folder, or one in which nothing can be made.
    """
    mistakes = []
    for option, path in named.items():
        if path is None:
            continue
        there = Path(path).absolute()
        while not os.path.lexists(there):
            there = there.parent
        if not there.is_dir():
            mistakes.append(f"{option}: got {path}, and {there} is no folder; name another")
        elif not os.access(there, os.W_OK | os.X_OK):
            mistakes.append(
                f"{option}: got {path}, and nothing can be made in {there}; name another, or mend its rights"
            )
    if mistakes:
        raise ConfigError("the command", mistakes)


def _command(parsed: argparse.Namespace) -> str:
    return f"python -m jaxmtrl.study --config {parsed.config}{' --smoke' if parsed.smoke else ''}"


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text[:40]}, wanted a whole number of at least 1")
    return int(text)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
