"""Times masked GAE against per-step loops, and prints one JSON line.

python scripts/bench_gae.py [--rows 512] [--columns 4096] [--rounds 11]

Ours is `jaxmtrl.rl.advantages.gae`, compiled, on device arrays [rows, columns] in f32. The peers do the same recursion
with one Python step a column, vectorised over rows, as trainers commonly do: in NumPy, and in torch where it can be
imported (else null). All get the same episodes, one a row: observations of 60 tokens and actions of 8 in turn, rewards
at turn ends, padding behind. The sides are first checked to give the same numbers, then timed in turns within one
process, and medians are compared: a ratio of 10 means that ours takes a tenth of the time.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

OBSERVATION_TOKENS, ACTION_TOKENS = 60, 8
GAMMA, LAM = 0.99, 0.95
Run = Callable[[], tuple[Any, Any]]  # advantages and returns, [B, T], 0 off-action
TOLERANCE = 1e-4  # f32; sums of some hundred terms in another order


@dataclass(frozen=True)
class Episodes:
    """One episode a row; arrays [B, T]."""

    rewards: np.ndarray  # f32, on the last action token of a turn
    values: np.ndarray  # f32, on every column, as a critic gives them
    action_mask: np.ndarray  # bool
    segment_ids: np.ndarray  # i32, the row's number; -1 on padding


def make_episodes(rows: int, columns: int, seed: int = 0) -> Episodes:
    """Episodes of as many turns as fit, cut after a random number of them; rows end in padding."""
    rng = np.random.default_rng(seed)
    turn = OBSERVATION_TOKENS + ACTION_TOKENS
    most = max(1, columns // turn)
    turns = rng.integers(max(1, most // 2), most + 1, size=rows)
    column = np.arange(columns)
    inside = column[None, :] < turns[:, None] * turn  # [B, T]
    action_mask = inside & (column % turn >= OBSERVATION_TOKENS)[None, :]
    ends = action_mask & (column % turn == turn - 1)[None, :]
    return Episodes(
        rewards=np.where(ends, rng.normal(size=(rows, columns)), 0.0).astype(np.float32),
        values=rng.normal(size=(rows, columns)).astype(np.float32),
        action_mask=action_mask,
        segment_ids=np.where(inside, np.arange(rows)[:, None], -1).astype(np.int32),
    )


def ours(episodes: Episodes) -> Run:
    """The package's GAE, compiled for these shapes; inputs are on the device before the clock starts."""
    import jax
    import jax.numpy as jnp

    from jaxmtrl.rl.advantages import gae, token_discounts

    rewards, values, mask, segments = (
        jnp.asarray(x) for x in (episodes.rewards, episodes.values, episodes.action_mask, episodes.segment_ids)
    )

    @jax.jit
    def run(rewards: Any, values: Any, mask: Any, segments: Any) -> Any:
        return gae(
            rewards,
            values,
            action_mask=mask,
            segment_ids=segments,
            bootstrap_mask=jnp.zeros_like(mask),
            discounts=token_discounts(GAMMA, mask),
            lam=LAM,
        )

    return lambda: jax.block_until_ready(run(rewards, values, mask, segments))


def numpy_loop(episodes: Episodes) -> Run:
    """A loop over T with vectors of B."""

    def run() -> tuple[np.ndarray, np.ndarray]:
        rewards, values, mask = episodes.rewards, episodes.values, episodes.action_mask
        advantages = np.zeros_like(rewards)
        next_value = next_advantage = np.zeros(len(rewards), np.float32)
        for t in reversed(range(rewards.shape[1])):
            acts, value = mask[:, t], values[:, t]
            delta = rewards[:, t] + np.float32(GAMMA) * next_value - value
            next_advantage = np.where(acts, delta + np.float32(GAMMA * LAM) * next_advantage, next_advantage)
            next_value = np.where(acts, value, next_value)
            advantages[:, t] = next_advantage
        advantages *= mask
        return advantages, np.where(mask, advantages + values, np.float32(0))

    return run


def torch_loop(episodes: Episodes) -> Run | None:
    """The same loop on torch tensors, with the machine's cores; None where torch cannot be imported."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(os.cpu_count() or 1)
    rewards, values, mask = (
        torch.from_numpy(x) for x in (episodes.rewards, episodes.values, episodes.action_mask.astype(np.float32))
    )

    def run() -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            columns = []
            next_value = next_advantage = torch.zeros(len(rewards))
            for t in reversed(range(rewards.shape[1])):
                acts, value = mask[:, t], values[:, t]
                delta = rewards[:, t] + GAMMA * next_value - value
                advantage = delta + GAMMA * LAM * next_advantage
                next_value = acts * value + (1 - acts) * next_value
                next_advantage = acts * advantage + (1 - acts) * next_advantage
                columns.append(next_advantage)
            advantages = torch.stack(columns[::-1], dim=1) * mask
            return advantages.numpy(), ((advantages + values) * mask).numpy()

    return run


def time_in_turns(sides: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every side in every round; each round starts with another side."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            started = time.perf_counter()
            sides[name]()
            times[name].append(1e3 * (time.perf_counter() - started))
    return times


def benchmark(rows: int, columns: int, rounds: int) -> dict[str, Any]:
    """The record that is printed. Raises SystemExit if two sides disagree."""
    episodes = make_episodes(rows, columns)
    peers = {"numpy_loop": numpy_loop(episodes), "torch_loop": torch_loop(episodes)}
    sides = {"ours": ours(episodes), **{name: run for name, run in peers.items() if run is not None}}
    results = {name: np.asarray(run()) for name, run in sides.items()}  # compiles, and warms caches
    for name, result in results.items():
        gap = float(np.max(np.abs(result - results["ours"])))
        if not gap < TOLERANCE:
            raise SystemExit(
                f"error: {name} and ours differ by up to {gap:g}, allowed {TOLERANCE:g}; nothing was timed."
            )
    times = time_in_turns(sides, rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {f"vs_{name}": round(medians[name] / medians["ours"], 2) if name in medians else None for name in peers}
    return {
        "bench": "gae",
        "shape": [rows, columns],
        "action_tokens": int(episodes.action_mask.sum()),
        "n": rounds,
        "ours": _record(times["ours"]),
        "peers": {name: _record(times[name]) if name in times else None for name in peers},
        "ratios": ratios,
        "machine": _machine(),
    }


def _record(times_ms: list[float]) -> dict[str, float]:
    return {
        "median_ms": round(statistics.median(times_ms), 3),
        "least_ms": round(min(times_ms), 3),
        "most_ms": round(max(times_ms), 3),
    }


def _machine() -> dict[str, Any]:
    import jax

    torch: Any = sys.modules.get("torch")
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "torch": torch.__version__ if torch is not None else None,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=_positive, default=512, help="episodes, one a row")
    parser.add_argument("--columns", type=_positive, default=4096, help="tokens a row")
    parser.add_argument("--rounds", type=_positive, default=11, help="timings of each side")
    arguments = parser.parse_args()
    print(json.dumps(benchmark(arguments.rows, arguments.columns, arguments.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
