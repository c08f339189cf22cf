"""How much of a rollout the device stands idle when environments are slow, as one JSON line.

    python scripts/bench_idle.py [--rounds 3] [--episodes 128]

Real `Player`, pool and engine; a model of random weights (`--layers`, `--embed`) on whatever device jax finds; byte
tokenizer. Environments sleep (`answering_env.py`): 50 ms a step with 16 workers, and in the slow batches 5 % of the
steps take 2 s instead, which steps is drawn from task and turn. Both kinds of batch play the same tasks with the same
seeds, hence the same lengths and tokens; they take turns within one run and medians over the rounds are compared.

    idle_share        share of the time of `Player.play` in which the sampler's `step` is not running. It returns when
                      the device has answered, so the host's part of it counts as busy; what the device does between
                      two calls, if it was given work ahead, counts as idle.
    steady_idle_share the same up to the moment in which the last episode is given a slot: then slots run dry, and with
                      rollout.overlap that end of a batch is hidden behind the update of the one before
    busy_share        what is left of 1, in the batches without slow steps; and slow_busy_share
    tokens_per_s      sampled tokens over the time of `Player.play`, steady_ up to that moment
    slow_vs_fast      tokens_per_s with slow steps over that without; and steady_slow_vs_fast
    vs_lockstep       tokens_per_s over that of the same parts in lock step: environments answer together, when the
                      sampler has nothing left to do and the slowest of them is done; and slow_vs_lockstep
"""

from __future__ import annotations

import argparse
import json
import sys


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=_positive, default=3, help="batches of each side")
    parser.add_argument("--lockstep-rounds", type=int, default=1, help="of those in lock step too; 0: none")
    parser.add_argument("--episodes", type=_positive, default=128, help="of a batch")
    parser.add_argument("--layers", type=_positive, default=4)
    parser.add_argument("--embed", type=_positive, default=384, help="a multiple of 128")
    parser.add_argument("--slots", type=_positive, default=32)
    parser.add_argument("--open-episodes", type=_positive, default=64)
    parser.add_argument("--workers", type=_positive, default=16)
    parser.add_argument("--action-tokens", type=_positive, default=32)
    given = parser.parse_args()
    from idle_batches import Work, benchmark

    sizes = {name: value for name, value in vars(given).items() if not name.endswith("rounds")}
    print(json.dumps(benchmark(Work(**sizes), given.rounds, given.lockstep_rounds)))
    return 0


if __name__ == "__main__":  # our workers are spawned and import this file
    sys.exit(main())
