"""The work of `bench_rollout.py`, the same for every side: episodes of so many turns.

Knows numpy alone, as every side runs in an environment of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import serving
from serving import Shape


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
    """`serving.serve` for work as JSON.

    Args:
        play: plays the work and returns how many tokens were sampled.
        warm_up: played before the first answer.
    """

    def checked(asked: dict[str, Any]) -> None:
        work = Work(**asked)
        sampled = play(work)
        if sampled != work.episodes * work.turns * work.action:
            raise SystemExit(f"sampled {sampled} tokens of {work.episodes * work.turns * work.action}")

    serving.serve(lambda: play(warm_up), checked)


def arguments() -> tuple[Shape, Work]:
    """The decoder and the largest work, as the driver gives them: two JSON arguments."""
    return Shape(**json.loads(sys.argv[1])), Work(**json.loads(sys.argv[2]))
