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
import subprocess
import sys
from pathlib import Path

SIDES = Path(__file__).parent / "rollout_sides"
sys.path.insert(0, str(SIDES))
from work import Shape, Work, as_json  # noqa: E402


class Side:
    """One side in its own process, which waits while others play."""

    def __init__(self, python: str, script: str, shape: Shape, largest: Work, *rest: str):
        command = [python, str(SIDES / script), as_json(shape), as_json(largest), *rest]
        environment = os.environ | {"PYTHONPATH": f"{SIDES.parents[1]}:{SIDES}", "JAX_PLATFORMS": "cpu"}
        self._name = f"{script} {' '.join(rest)}".strip()
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        print(f"{self._name}: ready after {self._answer()['ready_s']:.0f} s", file=sys.stderr, flush=True)

    def seconds(self, work: Work) -> float:
        """Plays once."""
        assert self._process.stdin is not None
        self._process.stdin.write(as_json(work) + "\n")
        self._process.stdin.flush()
        taken = self._answer()["seconds"]
        print(f"  {self._name}: {taken:.1f} s", file=sys.stderr, flush=True)
        return taken

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} ended with code {self._process.wait()}")
        return json.loads(line)


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

    ours = Side(sys.executable, "ours.py", shape, long)
    sides |= {"ours": (ours, work, given.rounds), "ours_shared": (ours, shared, given.rounds)}
    sides["ours_long"] = (ours, long, given.slow_rounds)
    if given.transformers:
        for name, kind in (("transformers_reread", "reread"), ("transformers_cached", "cached")):
            side = Side(given.transformers, "transformers_side.py", shape, work, kind)
            sides[name] = (side, work, given.rounds if kind == "cached" else given.slow_rounds)
    if given.tunix:
        sides["tunix"] = (Side(given.tunix, "tunix_side.py", shape, work), work, given.slow_rounds)

    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for round_number in range(given.rounds):
        for name, (side, what, rounds) in sides.items():
            if round_number < rounds:
                seconds[name].append(side.seconds(dataclasses.replace(what, seed=round_number)))
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


if __name__ == "__main__":
    sys.exit(main())
