"""Times multi-turn rollouts against other samplers on the same work, and prints one JSON line.

    bash scripts/test_parity.sh -k nothing || true       # makes .venv-parity with torch and transformers
    python scripts/bench_rollout.py --transformers .venv-parity/bin/python [--tunix .venv-tunix/bin/python]

A model of SmolLM2-135M's shape with random weights in f32 plays 32 episodes of 8 turns: a prompt of 300 tokens, 8
sampled tokens a turn, observations of 60, environments that answer at once. Every side is a process of its own; they
play in turns, one at a time, so that all meet the same machine, and medians over the rounds are compared. A ratio of 2
means that ours takes half the time.

    vs_transformers_reread     the whole history read anew every turn
    vs_transformers_cached     its cache kept across turns
    shared_vs_transformers_cached   the same where 8 episodes each share their prompt (ours copies it)
    vs_tunix                   google-tunix' vanilla sampler, which reads the history anew
    flat_in_turns              our cost a new token at 8 turns over that at 32
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "sides"))
from driver import Side
from rollout_work import Work
from serving import Shape


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", metavar="PYTHON", help="interpreter with torch and transformers")
    parser.add_argument("--tunix", metavar="PYTHON", help="interpreter with google-tunix")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-rounds", type=int, default=1, help="of sides that take many minutes")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--layers", type=int, default=Shape.layers, help="fewer for a quick look")
    parser.add_argument("--vocab", type=int, default=Shape.vocab)
    given = parser.parse_args()
    shape = Shape(layers=given.layers, vocab=given.vocab)
    work = Work(episodes=given.episodes, turns=given.turns)
    shared = dataclasses.replace(work, plays=min(8, given.episodes))
    long = dataclasses.replace(work, turns=4 * given.turns)
    sides: dict[str, tuple[Side, Work, int]] = {}

    def start(python: str, script: str, largest: Work, *rest: str) -> Side:
        return Side(python, script, as_json(shape), as_json(largest), *rest)

    ours = start(sys.executable, "rollout_ours.py", long)
    sides |= {"ours": (ours, work, given.rounds), "ours_shared": (ours, shared, given.rounds)}
    sides["ours_long"] = (ours, long, given.slow_rounds)
    if given.transformers:
        for name, kind in (("transformers_reread", "reread"), ("transformers_cached", "cached")):
            side = start(given.transformers, "rollout_transformers.py", work, kind)
            sides[name] = (side, work, given.rounds if kind == "cached" else given.slow_rounds)
    if given.tunix:
        sides["tunix"] = (start(given.tunix, "rollout_tunix.py", work), work, given.slow_rounds)

    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for round_number in range(given.rounds):
        for name, (side, what, rounds) in sides.items():
            if round_number < rounds:
                seconds[name].append(side.play(as_json(dataclasses.replace(what, seed=round_number)))["seconds"])
    for side in {id(side): side for side, _, _ in sides.values()}.values():
        side.close()

    median = {name: statistics.median(taken) for name, taken in seconds.items()}

    def figures(name: str) -> dict[str, object]:
        what = sides[name][1]
        return {
            "seconds": [round(taken, 2) for taken in seconds[name]],
            "new_tokens_per_s": round(what.new_tokens / median[name], 1),
            "sampled_tokens_per_s": round(what.episodes * what.turns * what.action / median[name], 2),
        }

    peers = [name for name in sides if not name.startswith("ours")]
    ratios = {f"vs_{name}": median[name] / median["ours"] for name in peers}
    if "transformers_cached" in median:
        ratios["shared_vs_transformers_cached"] = median["transformers_cached"] / median["ours_shared"]
    ratios["flat_in_turns"] = (median["ours"] / work.new_tokens) / (median["ours_long"] / long.new_tokens)
    line = {
        "bench": "rollout",
        "work": {**dataclasses.asdict(work), "layers": shape.layers, "vocab": shape.vocab},
        "ours": {name: figures(name) for name in sides if name.startswith("ours")},
        "peers": {name: figures(name) for name in peers},
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    print(json.dumps(line))
    return 0


def as_json(value: Shape | Work) -> str:
    """A side's argument, or what it is asked to do."""
    return json.dumps(dataclasses.asdict(value))


if __name__ == "__main__":
    sys.exit(main())
