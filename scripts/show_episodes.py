"""Prints episodes of a run for people: what was read, what was answered, what it earned.

python scripts/show_episodes.py runs/quickstart --last 3 --lost
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.rollout.record import read_episodes

Line = tuple[str, str]  # (rich style, text)

OUTCOMES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "won": lambda record: record["success"],
    "lost": lambda record: not record["success"] and record["stop"] != "failed",
    "failed": lambda record: record["stop"] == "failed",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the chosen episodes; returns 0, or 2 if there is no file to read."""
    args = _arguments(argv)

    def report(number: int, mistake: str) -> None:
        print(f"line {number} skipped: {mistake}", file=sys.stderr)

    seen = 0

    def counted(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        nonlocal seen
        for record in records:
            seen += 1
            if (args.stage is None or record["stage"] == args.stage) and (
                args.outcome is None or OUTCOMES[args.outcome](record)
            ):
                yield record

    try:
        chosen = deque(counted(read_episodes(args.path, report)), maxlen=args.last)
    except JaxmtrlError as err:
        print(err, file=sys.stderr)
        return 2
    if not chosen:
        print(f"none of {seen} episodes is asked for.", file=sys.stderr)
        return 0 if seen else 1
    try:
        write = _writer()
        for record in chosen:
            for style, text in episode_lines(record):
                write(style, text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def episode_lines(record: dict[str, Any]) -> Iterator[Line]:
    """One episode as styled lines; text from the game is shown with its control characters made visible."""
    outcome = next(name for name, holds in OUTCOMES.items() if holds(record))
    color = {"won": "bold green", "lost": "bold yellow", "failed": "bold red"}[outcome]
    if outcome == "lost" and record["stop"] == "truncated":
        outcome = "cut off"
    head = (
        f"{outcome} | return {_shown(record['return'])} | {len(record['turns'])} turns | {record['task_id']} "
        f"play {record['index']} | {record['stage']} step {record['step']} {record['split']} "
        f"| policy {record['policy_version']}"
    )
    yield color, f"=== {visible(head)}"
    for number, turn in enumerate(record["turns"], start=1):
        yield "", f"[{number}] {visible(turn['observation'].strip())}"
        yield "bold cyan", f"  > {visible(turn['action']) or '(no text)'}"
        yield "dim", f"    {_turn_facts(turn)}"
    if record["error"]:
        yield "red", f"    error: {visible(record['error'])}"
    yield "", ""


def visible(text: str) -> str:
    """`text` with terminal control characters as escapes, so that no game can paint over the screen."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _turn_facts(turn: dict[str, Any]) -> str:
    logprobs = [value for value in turn["action_logprobs"] if value is not None]
    facts = [f"reward {_shown(turn['reward'])}", f"{len(turn['action_ids'])} tokens", f"log-prob {sum(logprobs):.2f}"]
    if turn["stop"] == "length":
        facts.append("cut at the token cap")
    facts += [f"{name} {_shown(value)}" for name, value in turn["metrics"].items()]
    return visible(", ".join(facts))


def _shown(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _writer() -> Callable[[str, str], None]:
    """Prints with color on a terminal, plainly otherwise."""
    if not sys.stdout.isatty():
        return lambda style, text: print(text)
    console = Console()
    # Text, not a string: games write [brackets], which rich would read as markup.
    return lambda style, text: console.print(Text(text, style=style))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prints episodes of a run for people.")
    parser.add_argument("path", metavar="RUN_OR_FILE", help="a run folder, or an episodes.jsonl")
    parser.add_argument("--last", type=_positive, metavar="N", help="only the last N of those that fit")
    parser.add_argument("--stage", help="only this stage, for example rl")
    outcome = parser.add_mutually_exclusive_group()
    for name, about in (
        ("won", "only solved tasks"),
        ("lost", "only tasks played to an end or a limit and not solved"),
        ("failed", "only episodes whose environment broke"),
    ):
        outcome.add_argument(f"--{name}", dest="outcome", action="store_const", const=name, help=about)
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
