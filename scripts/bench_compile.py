"""Counts what the sampler compiles while prompts of any length come in, and prints one JSON line.

    python scripts/bench_compile.py [--prompts 200] [--layers 2]

The engine prints its plan and compiles it ahead; then the prompts are played twice, the second time of other lengths
and in another order. Every program that jax builds is counted, ours or one behind an array operation. Wanted: no more
at the start than the plan, none afterwards. `reread_would_compile` is how many shapes an engine without buckets would
meet in one pass: the different lengths.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys

import jax
import numpy as np

from jaxmtrl.config.model_section import ModelSection
from jaxmtrl.config.sections import SamplingSection
from jaxmtrl.diagnosis.bench import compilations
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.sampling.engine import Engine

VOCAB, LONGEST = 2000, 900
SECTION = SamplingSection(
    slots=16,
    cache_length=1024,
    attention_buckets=(256, 512, 1024),
    prefill_buckets=(64, 256),
    max_action_tokens=12,
)


def prompts(count: int, seed: int) -> list[np.ndarray]:
    """Token ids of random lengths; every fourth begins as the one before, as plays of one task do."""
    rng = np.random.default_rng(seed)
    made: list[np.ndarray] = []
    for number in range(count):
        ids = rng.integers(0, VOCAB, rng.integers(1, LONGEST + 1)).astype(np.int32)
        if number % 4 == 3:
            shared = min(len(ids), len(made[-1])) // 2
            ids[:shared] = made[-1][:shared]
        made.append(ids)
    return made


def play(engine: Engine, waiting: list[np.ndarray]) -> int:
    """One action for each; returns the tokens that were sampled."""
    waiting, sampled, opened = list(waiting), 0, 0
    while waiting or engine.busy:
        while waiting and engine.free_slots:
            slot = engine.open((0, opened), 1.0)
            engine.submit(slot, waiting.pop())
            opened += 1
        for action in engine.step():
            sampled += len(action.ids)
            engine.close(action.slot)
    return sampled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=200, metavar="COUNT")
    parser.add_argument("--layers", type=int, default=2)
    given = parser.parse_args()
    network = Network.from_section(ModelSection(layers=given.layers, embed=64, mlp=128), VOCAB, "float32")
    mesh = make_mesh(1, 1, 1, jax.devices()[:1])
    params = jax.jit(network.init)(jax.random.key(0))
    with compilations() as at_start:
        engine = Engine(network, SECTION, (1,), mesh)
    engine.load(params, 0)
    print(engine.plan, file=sys.stderr)
    passes = []
    for seed in (0, 1):
        with compilations() as meanwhile:
            play(engine, prompts(given.prompts, seed))
        passes.append(meanwhile[0])
    line = {
        "bench": "compile",
        "ours": {
            "plan": engine.programs,
            "at_start": at_start[0],
            "first_pass": passes[0],
            "second_pass": passes[1],
            "prompts": given.prompts,
        },
        "peers": {"reread_would_compile": len({len(ids) for ids in prompts(given.prompts, 0)})},
        "ratios": {},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    print(json.dumps(line))
    return 0 if at_start[0] <= engine.programs and passes == [0, 0] else 1


if __name__ == "__main__":
    sys.exit(main())
