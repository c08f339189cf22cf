"""Batches whose environments sleep, played by the real player, pool and engine; `bench_idle.py` says what for.

Not in that file, because every worker imports it, and has no use for jax.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from jaxmtrl.config.sections import ModelSection, SamplingSection
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.rollout.collect import Player
from jaxmtrl.rollout.plays import seeded_plays
from jaxmtrl.rollout.pool import EnvPool, MultiprocessPool, PoolEvent
from jaxmtrl.rollout.timeline import SAMPLER, Timeline
from jaxmtrl.sampling.engine import Engine
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import byte_tokenizer
from jaxmtrl.types import Episode, Task

FACTORY = "answering_env:make"
STEP_SPAN = "prefill and decode"
TURNS = (4, 8)  # least and most of an episode
SLOW_SHARE = 0.05
_APART = 1 << 12  # seeds between two rounds


@dataclass(frozen=True, kw_only=True)
class Work:
    """Sizes of the model and of the batches."""

    layers: int
    embed: int
    episodes: int
    slots: int
    open_episodes: int
    workers: int
    action_tokens: int
    step_s: float = 0.05
    slow_s: float = 2.0


class NotingEngine(Engine):
    """Notes when the last episode was given a slot, and what had been sampled by then."""

    last_open, sampled = 0.0, 0

    def open(self, seed: Sequence[int], temperature: float) -> int:
        self.last_open, self.sampled = time.monotonic(), self.tokens_sampled
        return super().open(seed, temperature)


class LockstepPool:
    """A pool that answers only when the sampler has nothing left to do and all environments have answered."""

    def __init__(self, pool: EnvPool):
        self._pool, self._asked = pool, 0
        self.release, self.ask_admissible, self.close = pool.release, pool.ask_admissible, pool.close

    def reset(self, episode: int, task: Task) -> None:
        self._asked += 1
        self._pool.reset(episode, task)

    def step(self, episode: int, action: str) -> None:
        self._asked += 1
        self._pool.step(episode, action)

    def receive(self, timeout_s: float | None) -> list[PoolEvent]:
        events: list[PoolEvent] = []
        while timeout_s is None and len(events) < self._asked:
            events += self._pool.receive(None)
        self._asked -= len(events)
        return events


@dataclass(frozen=True)
class Figures:
    """Of one batch."""

    seconds: float
    steady_s: float  # until the last episode was given a slot
    busy_s: float  # of the sampler
    steady_busy_s: float
    tokens: int  # sampled
    steady_tokens: int
    turns: int
    environment_s: float  # that all workers together were in a step or reset

    def record(self, workers: int) -> dict[str, float]:
        return {
            "idle_share": round(1 - self.busy_s / self.seconds, 4),
            "steady_idle_share": round(1 - self.steady_busy_s / self.steady_s, 4),
            "tokens_per_s": round(self.tokens / self.seconds, 1),
            "steady_tokens_per_s": round(self.steady_tokens / self.steady_s, 1),
            "turns_per_s": round(self.turns / self.seconds, 2),
            "workers_busy_share": round(self.environment_s / self.seconds / workers, 4),
            "seconds": round(self.seconds, 2),
            "tail_s": round(self.seconds - self.steady_s, 2),
        }


class Side:
    """A pool and the way it is played with."""

    def __init__(self, pool: EnvPool, engine: NotingEngine, work: Work):
        self._pool, self._engine, self._work = pool, engine, work

    def play(self, round_number: int, episodes: int) -> tuple[Figures, list[Episode]]:
        """One batch; the same of a round for every side."""
        engine, work, tokenizer = self._engine, self._work, byte_tokenizer()
        timeline = Timeline(Path(os.devnull))  # never closed, so nothing is written
        player = Player(
            engine,
            self._pool,
            tokenizer=tokenizer,
            template=chatml(tokenizer),
            system_prompt="",
            open_episodes=work.open_episodes,
            max_action_tokens=work.action_tokens,
            max_failed_share=0.0,
            timeline=timeline,
        )
        tasks = [Task(id=f"{round_number}/{n}", seed=round_number * _APART + n) for n in range(episodes)]
        before, began = engine.tokens_sampled, time.monotonic()
        played = player.play(seeded_plays(tasks, group_size=1, seed=(round_number,)), temperature=1.0)
        ended = time.monotonic()
        busy = [span for span in timeline.spans if span.track == SAMPLER and span.name == STEP_SPAN]
        until = engine.last_open
        figures = Figures(
            seconds=ended - began,
            steady_s=until - began,
            busy_s=sum(span.ended - span.began for span in busy),
            steady_busy_s=sum(max(0.0, min(span.ended, until) - span.began) for span in busy),
            tokens=engine.tokens_sampled - before,
            steady_tokens=engine.sampled - before,
            turns=sum(len(episode.turns) for episode in played),
            environment_s=sum(span.ended - span.began for span in timeline.spans if span.track != SAMPLER),
        )
        return figures, played


def make_pool(work: Work, slow_share: float) -> EnvPool:
    """Environments that sleep."""
    options = {"step_s": work.step_s, "slow_s": work.slow_s, "slow_share": slow_share, "turns": TURNS}
    return MultiprocessPool(
        FACTORY, options, workers=work.workers, step_timeout_s=60.0, reset_timeout_s=60.0, recycle_after=0
    )


def make_engine(work: Work) -> NotingEngine:
    """A model of random weights whose cache holds the longest episode."""
    tokenizer = byte_tokenizer()
    model = ModelSection(
        layers=work.layers,
        embed=work.embed,
        heads=work.embed // 64,
        kv_heads=max(1, work.embed // 128),
        mlp=3 * work.embed,
    )
    turn = 160 + work.action_tokens  # an observation of about a hundred bytes, with the template's around it
    length = -(-TURNS[1] * turn // 256) * 256
    section = SamplingSection(
        slots=work.slots,
        cache_length=length,
        attention_buckets=(length // 2, length),
        prefill_rows=8,
        prefill_buckets=(128, 192),
        decode_chunk=8,
        max_action_tokens=work.action_tokens,
    )
    network = Network.from_section(model, tokenizer.vocab_size, "float32")
    engine = NotingEngine(network, section, sorted(chatml(tokenizer).stop_ids), make_mesh(1, 1, 1, jax.devices()[:1]))
    engine.load(jax.jit(network.init)(jax.random.key(0)), 0)
    return engine


def same(one: Sequence[Episode], other: Sequence[Episode]) -> bool:
    """Whether two batches have the same turns, all but the odd token that a batch's other rows decide."""
    return [len(episode.turns) for episode in one] == [len(episode.turns) for episode in other]


def benchmark(work: Work, rounds: int, lockstep_rounds: int) -> dict[str, Any]:
    """The record that is printed. Raises SystemExit if two sides played other lengths."""
    engine = make_engine(work)
    pools = {name: make_pool(work, share) for name, share in (("fast", 0.0), ("slow", SLOW_SHARE))}
    sides = {name: Side(pool, engine, work) for name, pool in pools.items()}
    sides |= {f"lockstep_{name}": Side(LockstepPool(pool), engine, work) for name, pool in pools.items()}
    figures: dict[str, list[Figures]] = {name: [] for name in sides}
    try:
        for side in sides.values():
            side.play(rounds, min(work.workers, work.episodes))  # every worker has started, every program is warm
        names = list(sides)
        for number in range(rounds):
            lengths: list[Episode] | None = None
            for name in names[number % len(names) :] + names[: number % len(names)]:
                if name.startswith("lockstep") and number >= lockstep_rounds:
                    continue
                figure, episodes = sides[name].play(number, work.episodes)
                print(f"{number} {name}: {figure.record(work.workers)}", file=sys.stderr, flush=True)
                figures[name].append(figure)
                if lengths is not None and not same(lengths, episodes):
                    raise SystemExit(f"error: {name} played episodes of other lengths; nothing can be compared.")
                lengths = episodes
    finally:
        for pool in pools.values():
            pool.close()
    records = {
        name: _median([one.record(work.workers) for one in of_side]) for name, of_side in figures.items() if of_side
    }

    def ratio(one: str, other: str, figure: str = "tokens_per_s") -> float:
        return round(records[one][figure] / records[other][figure], 3)

    return {
        "bench": "idle",
        "n": rounds,
        "work": dataclasses.asdict(work) | {"turns": TURNS, "slow_share": SLOW_SHARE},
        "ours": {name: records[name] for name in ("fast", "slow")},
        "peers": {name: records[name] for name in ("lockstep_fast", "lockstep_slow") if name in records},
        "ratios": {
            "busy_share": round(1 - records["fast"]["idle_share"], 4),
            "slow_busy_share": round(1 - records["slow"]["idle_share"], 4),
            "slow_vs_fast": ratio("slow", "fast"),
            "steady_slow_vs_fast": ratio("slow", "fast", "steady_tokens_per_s"),
            "vs_lockstep": ratio("fast", "lockstep_fast") if lockstep_rounds else None,
            "slow_vs_lockstep": ratio("slow", "lockstep_slow") if lockstep_rounds else None,
        },
        "machine": f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, jax {jax.__version__}",
    }


def _median(records: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(record[name] for record in records) for name in records[0]}
