"""Plays one task of an environment in the terminal, by hand, by piped lines or by its expert: what the policy sees.

ALFWorld answers "help" with the commands that it knows. A line that begins with ``` or <function= goes on over more
lines until the block or the call is closed, as answers of software tasks do.

python scripts/play_env.py --config configs/quickstart.yaml [--split heldout] [--task 0] [--expert]
python scripts/play_env.py --factory jaxmtrl.envs.toy:make --expert
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from jaxmtrl.config.loading import load_config
from jaxmtrl.envs.base import Environment, load_environment
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.rewards.source import load_source
from jaxmtrl.types import Task


def play(environment: Environment, task: Task, actions: Iterator[str]) -> bool:
    """Plays `task` with `actions` and prints everything. Returns whether it was solved."""
    environment.prepare([task], lambda done, total: None)
    env = environment.make_env()
    try:
        print(f"--- {task.id}\n{env.reset(task)}", flush=True)
        total, solved = 0.0, False
        for turn, action in enumerate(actions, start=1):
            result = env.step(action)
            total += result.reward
            solved = solved or result.success
            end = "done" if result.done else "truncated" if result.truncated else ""
            notes = [
                f"reward {result.reward:g}",
                *(f"{k} {v:g}" for k, v in result.metrics.items() if v),
                *filter(None, [end]),
            ]
            print(f"{turn}> {action}\n{result.observation}\n    ({', '.join(notes)})", flush=True)
            if end:
                break
        print(f"--- {'solved' if solved else 'not solved'}, return {total:g}")
        return solved
    finally:
        env.close()


def _typed() -> Iterator[str]:
    """Answers from the keyboard until it is closed (ctrl-d, or none was ever open)."""
    if sys.stdin is None:
        return
    sys.stdin.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]  # it is a text file
    lines: list[str] = []
    while True:
        try:
            lines.append(input(". " if lines else "? "))
        except EOFError:
            if lines:
                yield "\n".join(lines)
            return
        if not _goes_on(lines):
            yield "\n".join(lines)
            lines = []


def _goes_on(lines: Sequence[str]) -> bool:
    """Whether a block between fences, or a call in tags, has begun with the first line and not ended with the last."""
    first = lines[0].strip()
    fence = first[: len(first) - len(first.lstrip("`"))]
    if len(fence) >= 3 and "`" not in first[len(fence) :]:
        last = lines[-1].strip()
        return len(lines) == 1 or last.strip("`") != "" or len(last) < len(fence)
    return first.startswith("<function=") and "</function>" not in lines[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", help="YAML file of a run")
    source.add_argument("--factory", help="environment with its default options, package.module:function")
    parser.add_argument("--split", help="default: the training split")
    parser.add_argument("--task", type=int, default=0, help="which task of the split, from 0")
    parser.add_argument("--expert", action="store_true", help="let the expert play")
    parser.add_argument("overrides", nargs="*", help="section.field=value, with --config")
    arguments = parser.parse_intermixed_args()
    if arguments.factory and arguments.overrides:
        parser.error(f"{arguments.overrides[0]} wants --config; --factory has the environment's default options")
    try:
        factory, split = arguments.factory, arguments.split or "train"
        if arguments.config:
            config = load_config(arguments.config, arguments.overrides)
            factory, split = config.env.factory, arguments.split or config.env.train_split
            environment = load_source(config)  # with the rewards that training would pay
        else:
            environment = load_environment(factory, {})
        tasks = environment.split(split).tasks
        if not 0 <= arguments.task < len(tasks):
            parser.error(f"--task must be 0 to {len(tasks) - 1} in split {split!r}, got {arguments.task}")
        task = tasks[arguments.task]
        if arguments.expert:
            environment.prepare([task], lambda done, total: None)
            actions = environment.expert_actions(task)
            if actions is None:
                parser.error(f"{factory} has no expert for {task.id}")
            return 0 if play(environment, task, iter(actions)) else 1
        play(environment, task, _typed())
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except OSError as err:  # a reader that has gone, a full disk
        print(f"error: {err.filename or 'the output'}: {err.strerror}; mend that and play again", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again when it ends
        return 2
    return 0


if __name__ == "__main__":  # preparing may spawn processes that import this file
    sys.exit(main())
