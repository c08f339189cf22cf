"""Measures what share of this machine's limits the sampler's prefill and decode reach, and prints one JSON line.

    python scripts/bench_limits.py [--rounds 5] [--layers 30] [--vocab 49152]

The limits: the best rate of a large f32 matrix product (NumPy's and XLA's, whichever is better) and the best rate at
which all cores together read memory. Floor of a call: its useful FLOPs at the first rate, or its bytes (weights once
a step, cached columns that are seen) at the second, whichever takes longer; `share` is that floor over the time taken
(1 would be a machine that does nothing else), `share_of_sum` that of both one after the other. Useful means what the
tokens need: columns that nobody sees are not counted, though they are computed. A model of SmolLM2-135M's shape, 32
slots, f32; limits and calls are measured in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "sides"))
from serving import Shape

from jaxmtrl.config.model_section import ModelSection
from jaxmtrl.config.sections import SamplingSection
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.sampling.engine import Engine

SLOTS, COLUMNS, PROMPT, OBSERVATION, CHUNK = 32, 640, 300, 61, 8
BYTES = 4  # f32


class Call(NamedTuple):
    """What was done in so many seconds."""

    seconds: float
    flops: float
    bytes: float


def gemm_rate() -> float:
    """FLOP/s of the better of two large matrix products."""
    size = 1536
    one, other = (np.random.default_rng(seed).normal(size=(size, size)).astype(np.float32) for seed in (0, 1))
    best = 0.0
    compiled = jax.jit(jnp.matmul)
    on_device = jax.device_put((one, other))
    for product in (lambda: one @ other, lambda: jax.block_until_ready(compiled(*on_device))):
        product()
        for _ in range(5):
            began = time.perf_counter()
            product()
            best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def read_rate() -> float:
    """Bytes/s of all cores reading different memory."""
    parts = [np.ones(2**26, np.float32) for _ in range(os.cpu_count() or 1)]  # 256 MiB each, far beyond any cache
    best = 0.0
    with ThreadPoolExecutor(len(parts)) as pool:
        for _ in range(4):
            began = time.perf_counter()
            list(pool.map(np.max, parts))
            best = max(best, sum(part.nbytes for part in parts) / (time.perf_counter() - began))
    return best


class Sampler:
    """An engine whose calls are pure prefill or pure decode."""

    def __init__(self, shape: Shape, action: int):
        sizes = {name: getattr(shape, name) for name in ("layers", "embed", "heads", "kv_heads", "head_dim", "mlp")}
        network = Network.from_section(ModelSection(**sizes), shape.vocab, "float32")
        section = SamplingSection(
            slots=SLOTS,
            cache_length=COLUMNS,
            attention_buckets=(COLUMNS,),
            prefill_rows=8,
            prefill_buckets=(OBSERVATION, PROMPT),
            decode_chunk=CHUNK,
            max_action_tokens=action,
        )
        self._engine = Engine(network, section, (), make_mesh(1, 1, 1, jax.devices()[:1]))
        self._engine.load(jax.jit(network.init)(jax.random.key(0)), 0)
        self._shape, self._action = shape, action
        self._linear = shape.layers * (
            shape.embed * (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim + 3 * shape.embed * shape.mlp
        )  # weights of the blocks; each is one multiplication and one addition a token
        # A prompt's last block computes no more of all but its last token than keys and values.
        self._read = (shape.layers - 1) * self._linear // shape.layers
        self._read += 2 * shape.embed * shape.kv_heads * shape.head_dim
        self._head = shape.embed * shape.vocab

    def _attention(self, columns: float) -> float:
        """FLOPs of one token that sees so many columns."""
        return 4 * self._shape.layers * self._shape.heads * self._shape.head_dim * columns

    def _cached(self, columns: float) -> float:
        """Bytes of so many columns of one slot."""
        return 2 * BYTES * self._shape.layers * self._shape.kv_heads * self._shape.head_dim * columns

    def _fill(self) -> list[int]:
        rng = np.random.default_rng(0)
        slots = [self._engine.open((0, number), 1.0) for number in range(SLOTS)]
        for slot in slots:
            self._engine.submit(slot, rng.integers(0, self._shape.vocab, PROMPT).astype(np.int32))
        return slots

    def prefills(self) -> list[Call]:
        """Reads observations after a prompt: an engine whose actions are one token never decodes."""
        slots, calls = self._fill(), []
        while self._engine.busy:
            self._engine.step()
        new = OBSERVATION  # the last action token, and 60 of the observation
        for turn in range((COLUMNS - PROMPT - 1) // OBSERVATION):
            for slot in slots:
                self._engine.submit(slot, np.full(OBSERVATION - 1, turn, np.int32))
            began = time.perf_counter()
            while self._engine.busy:
                self._engine.step()
            seconds = time.perf_counter() - began
            before, blocks = PROMPT + turn * new, (self._shape.layers - 1) / self._shape.layers
            flops = (
                SLOTS * new * (2 * self._read + self._attention(before + (new + 1) / 2) * blocks)
                + SLOTS * 2 * self._head
            )
            batches = SLOTS // 8  # each reads the weights once
            calls.append(
                Call(
                    seconds,
                    flops,
                    batches * BYTES * (self._linear + self._head) + SLOTS * self._cached(before + new),
                )
            )
        self._close(slots)
        return calls

    def decodes(self) -> list[Call]:
        """Chunks of eight tokens in every slot, the prompt's prefill left out."""
        slots, calls = self._fill(), []
        self._engine.step()
        done = CHUNK
        while done + CHUNK < self._action:
            began = time.perf_counter()
            self._engine.step()
            seconds = time.perf_counter() - began
            columns = PROMPT + done + (CHUNK + 1) / 2
            flops = SLOTS * CHUNK * (2 * (self._linear + self._head) + self._attention(columns))
            calls.append(
                Call(seconds, flops, CHUNK * (BYTES * (self._linear + self._head) + SLOTS * self._cached(columns)))
            )
            done += CHUNK
        self._close(slots)
        return calls

    def _close(self, slots: list[int]) -> None:
        while self._engine.busy:
            self._engine.step()
        for slot in slots:
            self._engine.close(slot)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=Shape.layers, help="fewer for a quick look")
    parser.add_argument("--vocab", type=int, default=Shape.vocab)
    given = parser.parse_args()
    shape = Shape(layers=given.layers, vocab=given.vocab)
    samplers = {"prefill": Sampler(shape, 1), "decode": Sampler(shape, 6 * CHUNK)}
    gemm, read = [], []
    calls: dict[str, list[Call]] = {name: [] for name in samplers}
    for number in range(given.rounds):
        gemm.append(gemm_rate())
        read.append(read_rate())
        for name, sampler in samplers.items():
            calls[name] += sampler.prefills() if name == "prefill" else sampler.decodes()
        print(f"round {number}: {gemm[-1] / 1e9:.0f} GFLOP/s, {read[-1] / 1e9:.1f} GB/s", file=sys.stderr, flush=True)
    flop_rate, byte_rate = max(gemm), max(read)

    def figures(done: list[Call]) -> dict[str, object]:
        floors = [(call.flops / flop_rate, call.bytes / byte_rate, call.seconds) for call in done]
        return {
            "gflop_s": [round(call.flops / call.seconds / 1e9, 1) for call in done],
            "ms": [round(1000 * call.seconds) for call in done],
            "share": round(statistics.median(max(one, other) / taken for one, other, taken in floors), 3),
            "share_of_sum": round(statistics.median((one + other) / taken for one, other, taken in floors), 3),
        }

    line = {
        "bench": "limits",
        "ours": {name: figures(done) for name, done in calls.items()},
        "peers": {
            "gemm_gflop_s": [round(rate / 1e9, 1) for rate in gemm],
            "read_gb_s": [round(rate / 1e9, 1) for rate in read],
        },
        "ratios": {f"{name}_share": figures(done)["share"] for name, done in calls.items()},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
