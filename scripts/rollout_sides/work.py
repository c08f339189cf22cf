"""The work of `bench_rollout.py`, the same for every side: episodes of so many turns, and how a side is driven.

Knows numpy alone, as every side runs in an environment of its own.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A Llama-like decoder; the defaults are SmolLM2-135M's."""

    layers: int = 30
    embed: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    mlp: int = 1536
    vocab: int = 49_152


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is played: tokens a piece, all pieces of one length, so that no side has to pad."""

    episodes: int = 32
    turns: int = 8
    prompt: int = 300
    observation: int = 60
    action: int = 8
    plays: int = 1  # of each task: so many episodes share their prompt
    seed: int = 0

    @property
    def longest(self) -> int:
        """Tokens of a whole episode."""
        return self.prompt + self.turns * self.action + (self.turns - 1) * self.observation

    @property
    def new_tokens(self) -> int:
        """Tokens that are read or sampled once, over all episodes."""
        return self.episodes * self.longest

    def pieces(self, vocab: int) -> tuple[np.ndarray, np.ndarray]:
        """Prompts i32 [E, prompt] and observations i32 [E, turns - 1, observation]."""
        rng = np.random.default_rng(self.seed)
        tasks = rng.integers(0, vocab, (self.episodes // self.plays, self.prompt))
        observations = rng.integers(0, vocab, (self.episodes, self.turns - 1, self.observation))
        return np.repeat(tasks, self.plays, axis=0).astype(np.int32), observations.astype(np.int32)


def serve(play: Callable[[Work], int], warm_up: Work) -> None:
    """Answers every line of standard input, a Work as JSON, with the seconds that `play` took for it.

    Args:
        play: plays the work and returns how many tokens were sampled.
        warm_up: played before the first answer, so that compilation is not timed.
    """
    began = time.perf_counter()
    play(warm_up)
    print(json.dumps({"ready_s": time.perf_counter() - began}), flush=True)
    for line in sys.stdin:
        work = Work(**json.loads(line))
        began = time.perf_counter()
        sampled = play(work)
        seconds = time.perf_counter() - began
        if sampled != work.episodes * work.turns * work.action:
            raise SystemExit(f"sampled {sampled} tokens of {work.episodes * work.turns * work.action}")
        print(json.dumps({"seconds": seconds}), flush=True)


def arguments() -> tuple[Shape, Work]:
    """The decoder and the largest work, as the driver gives them: two JSON arguments."""
    return Shape(**json.loads(sys.argv[1])), Work(**json.loads(sys.argv[2]))


def as_json(value: Shape | Work) -> str:
    """A dataclass of this file for `arguments` or `serve`."""
    return json.dumps(dataclasses.asdict(value))
