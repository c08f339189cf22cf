"""Plays our ALFWorld engine and the official one in lock-step, compares all they say, and prints one JSON line.

    bash scripts/setup_alfworld_official.sh
    python scripts/check_alfworld.py --official .venv-alfworld/bin/python --data FOLDER [--games 12] [--steps 160]

The same commands go to both: errands, the expert's way to win, commands at random and near misses. Compared are the
observation, the list of admissible commands with its order, the reward, and whether the game is over. Games come from
all task types and splits alike. FOLDER is what ALFWORLD_DATA would name, or a file of JSON lines {"id", "type", "task",
"pddl_problem"}. Where the data have a walkthrough, it is first played alone and must win.

With --results FILE every game adds a line to FILE, games that have one are not played again, and the printed line is
about all of them: long comparisons go in pieces of --limit seconds. The official engine runs with what it works out
again and again kept, ten times as fast; --sides N plays N games on it with and without that instead, and
compares those. Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "sides"))

from alfworld_peer import OfficialPeer
from alfworld_player import Player

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import AlfworldData, GameRecord
from jaxmtrl.envs.alfworld.naming import CLASSIC, MODERN, NOTHING_HAPPENS
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.problem import read_problem
from jaxmtrl.errors import JaxmtrlError

WORDINGS = {"modern": MODERN, "classic": CLASSIC}
COMPARED = ("observation", "admissible", "reward", "done")
GAMES_A_PROCESS = 20
MOST_SAMPLES = 3  # of differences, a game; then it is given up


def choose_games(data: str, splits: Sequence[str], count: int, cache: str) -> list[Callable[[], GameRecord]]:
    """`count` games (0: all), task types and splits taking turns; each is read when it is called."""
    if Path(data).is_file():
        records = [read_line(line) for line in Path(data).read_text().splitlines()]
        return [lambda record=record: record for record in records][: count or None]
    source = AlfworldData(data, cache)
    piles: dict[tuple[str, str], list[str]] = {}
    for split in splits or source.split_names():
        for entry in source.games(split):
            piles.setdefault((entry.kind, split), []).append(entry.id)
    for key, pile in sorted(piles.items()):
        random.Random(str(key)).shuffle(pile)
    turns = [
        (split, pile[turn])
        for turn in range(max(map(len, piles.values())))
        for (_, split), pile in sorted(piles.items())
        if turn < len(pile)
    ]
    return [lambda split=split, game=game: source.load(split, game) for split, game in turns][: count or None]


def read_line(line: str) -> GameRecord:
    row = json.loads(line)
    way = row.get("walkthrough")
    return GameRecord(
        id=row["id"],
        kind=row["type"],
        task=row["task"],
        problem=row["pddl_problem"],
        walkthrough=tuple(way) if way else None,
        wording=MODERN,
    )


def compare(record: GameRecord, wording: str, official: OfficialPeer, steps: int, seed: int) -> dict[str, Any]:
    """Plays one game on both sides; the line of it, with what differed."""
    world = World(read_problem(record.problem), record.task, WORDINGS[wording])
    mismatches: Counter[str] = Counter()
    samples: list[dict[str, Any]] = []
    verbs: Counter[str] = Counter()
    said = world.reset()
    theirs = official.reset(record.problem, record.task, wording)
    player, commands, wins = Player(world, seed), [], 0
    to_win: list[str] = []
    for number in range(steps + 1):
        ours = {"observation": said, "admissible": world.admissible(), "reward": int(world.won and number > 0)}
        ours["done"] = bool(ours["reward"])
        for name in COMPARED:
            if ours[name] != theirs[name]:
                mismatches[name] += 1
                samples.append({"what": name, "commands": commands[:], "ours": ours[name], "theirs": theirs[name]})
        if number == steps or len(samples) >= MOST_SAMPLES:
            break
        if number % 80 == 60:  # chance alone hardly ever wins
            to_win = plan(world) or []
        command = to_win.pop(0) if to_win else player.command()
        before = world.won
        said, won = world.step(command)
        theirs = official.step(command)
        commands.append(command)
        verbs["nothing" if said == NOTHING_HAPPENS else command.split()[0]] += 1
        wins += won and not before
    line: dict[str, Any] = {"id": record.id, "kind": record.kind, "wording": wording, "steps": len(commands)}
    line |= {"wins": wins, "verbs": verbs, "mismatches": mismatches, "samples": samples}
    if record.walkthrough is not None:
        line["walkthrough_wins"] = walkthrough_wins(record)
    return line


def walkthrough_wins(record: GameRecord) -> bool:
    """Whether the data's own way to win does so on our side, without a command that does nothing."""
    world = World(read_problem(record.problem), record.task, record.wording)
    answers = [world.step(command) for command in record.walkthrough or ()]
    return world.won and all(said != NOTHING_HAPPENS for said, _ in answers)


def compare_sides(games: Sequence[Callable[[], GameRecord]], python: str, steps: int) -> dict[str, Any]:
    """The official engine with and without what `--quick` keeps."""
    peers = [OfficialPeer(python, quick=True), OfficialPeer(python, quick=False)]
    mismatches, played, seconds = Counter(), 0, [0.0, 0.0]
    for game in games:
        record = game()
        world = World(read_problem(record.problem), record.task)
        player = Player(world, 0)
        answers = [peer.reset(record.problem, record.task, "modern") for peer in peers]
        for number in range(steps + 1):
            for side, answer in enumerate(answers):
                seconds[side] += answer["seconds"]
            mismatches.update(name for name in (*COMPARED, "won") if answers[0][name] != answers[1][name])
            if number < steps:
                command = player.command()
                world.step(command)
                answers = [peer.step(command) for peer in peers]
                played += 1
    for peer in peers:
        peer.close()
    return {
        "check": "alfworld_sides",
        "games": len(games),
        "steps": played,
        "mismatches": dict(mismatches),
        "seconds": [round(each, 1) for each in seconds],
    }


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line about many games."""
    by_type: dict[str, dict[str, int]] = {}
    totals = {name: Counter() for name in ("verbs", "mismatches")}
    for line in lines:
        kind = by_type.setdefault(line["kind"], {"games": 0, "steps": 0, "wins": 0})
        kind["games"] += 1
        kind["steps"] += line["steps"]
        kind["wins"] += line["wins"]
        for name, total in totals.items():
            total.update(line[name])
    ways = [line["walkthrough_wins"] for line in lines if "walkthrough_wins" in line]
    return {
        "check": "alfworld",
        "games": len({line["id"] for line in lines}),
        "steps": sum(line["steps"] for line in lines),
        "wordings": dict(Counter(line["wording"] for line in lines)),
        "by_type": by_type,
        "answers_to": dict(totals["verbs"].most_common()),
        "mismatches": {name: totals["mismatches"][name] for name in COMPARED},
        "walkthroughs": len(ways),
        "walkthroughs_won": sum(ways),
        "samples": [sample for line in lines for sample in line["samples"]][:MOST_SAMPLES],
    }


def check(given: argparse.Namespace) -> dict[str, Any]:
    games = choose_games(given.data, given.splits, given.games, given.cache)
    if given.sides:
        return compare_sides(games[: given.sides], given.official, given.steps)
    results = Path(given.results) if given.results else None
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results and results.exists() else []
    played = {(line["id"], line["wording"]) for line in lines}
    end = time.monotonic() + given.limit
    todo = [(game, wording) for game in games for wording in given.wordings]
    official, left = None, 0
    for game, wording in todo:
        record = game()
        if (record.id, wording) in played:
            continue
        if time.monotonic() > end:
            break
        if official is None or not left:
            official, left = renew(official, given.official), GAMES_A_PROCESS
        left -= 1
        line = compare(record, wording, official, given.steps, given.seed)
        lines.append(line)
        if results:
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
    if official is not None:
        official.close()
    return summary(lines)


def renew(official: OfficialPeer | None, python: str) -> OfficialPeer:
    """A fresh process: every game leaves some megabytes and a loaded library behind."""
    if official is not None:
        official.close()
    return OfficialPeer(python, quick=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", required=True, help="interpreter that has the official engine")
    parser.add_argument("--data", required=True, help="folder of the published games, or a file of JSON lines")
    parser.add_argument("--splits", nargs="*", default=(), help="all that are there, if not given")
    parser.add_argument("--games", type=int, default=12, help="0: all")
    parser.add_argument("--steps", type=int, default=160, help="of each game")
    parser.add_argument("--seed", type=int, default=1, help="of the commands")
    parser.add_argument("--wordings", nargs="+", choices=WORDINGS, default=("modern",))
    parser.add_argument("--results", help="file with a line for every game that was compared")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no game is begun")
    parser.add_argument(
        "--sides", type=int, default=0, help="games on which the official engine is compared with itself"
    )
    parser.add_argument("--cache", default=".cache/alfworld", help="folder of the index of the games")
    try:
        line = check(parser.parse_args())
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    print(json.dumps(line))
    return int(any(line["mismatches"].values()) or line.get("walkthroughs_won") != line.get("walkthroughs"))


if __name__ == "__main__":
    sys.exit(main())
