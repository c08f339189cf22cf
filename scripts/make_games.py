"""Builds the games a config will play, ahead of the run.

python scripts/make_games.py --config configs/quickstart.yaml [--splits train=200] [section.field=value ...]

Without --splits (which may be repeated): the training tasks that the stages will play, and what evaluation plays.
Games that are there already cost nothing; a run builds what is missing anyway.
"""

from __future__ import annotations

import argparse
import sys
import time

from jaxmtrl.config.loading import load_config
from jaxmtrl.curriculum.opening import open_course
from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.tasks import tasks_evaluated, tasks_in_use, tasks_of


def _count(text: str) -> tuple[str, int]:
    name, _, digits = text.partition("=")
    if not name or not digits.isdigit() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"must look like train=200, got {text!r}")
    return name, int(digits)


def _reporter(every_s: float):
    """Prints how far the work is, at most every `every_s` seconds, and always at the end."""
    started, last = time.monotonic(), [-every_s]

    def report(done: int, total: int) -> None:
        elapsed = time.monotonic() - started
        if done == total or elapsed - last[0] >= every_s:
            last[0] = elapsed
            print(f"{done} of {total} games after {elapsed:.0f} s", flush=True)

    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="YAML file of a run")
    parser.add_argument("--splits", action="append", type=_count, metavar="NAME=COUNT", help="build this; repeatable")
    parser.add_argument("overrides", nargs="*", help="section.field=value")
    arguments = parser.parse_intermixed_args()
    try:
        config = load_config(arguments.config, arguments.overrides)
        environment = load_environment(config.env.factory, config.env.options)
        if arguments.splits:
            tasks = [
                task for name, count in arguments.splits for task in tasks_of(environment, name, count, "--splits")
            ]
        else:
            train_tasks = environment.split(config.env.train_split).tasks
            course = open_course(config.curriculum, config.env.train_split, environment)
            tasks = [*tasks_in_use(config, train_tasks, course), *tasks_evaluated(config, environment, course)]
        environment.prepare(tasks, _reporter(every_s=5.0))
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":  # building spawns processes that import this file
    sys.exit(main())
