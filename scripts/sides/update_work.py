"""The work of `bench_update.py`, the same for every side: episodes to learn from, as padded or as packed rows.

Knows numpy alone, as every side runs in an environment of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

LEARNING_RATE, CLIP, VALUE_COEF = 1e-6, 0.2, 0.5


@dataclass(frozen=True, kw_only=True)
class UpdateWork:
    """What one update learns from."""

    kind: str = "dense"  # rows of one length, or "ragged": the episodes of `file`
    rows: int = 16
    columns: int = 768
    action_share: float = 0.1
    file: str = ""  # .npz of `lengths` i64 [E] and `action` bool [E, longest]
    micro_rows: int = 4  # of the peer, the usual size
    seed: int = 0


@dataclass(frozen=True)
class Episodes:
    """Whole episodes, one a row; arrays [E, longest]."""

    lengths: np.ndarray  # i64 [E]
    tokens: np.ndarray  # i32
    action: np.ndarray  # bool, sampled tokens
    advantages: np.ndarray  # f32
    returns: np.ndarray
    old_logprobs: np.ndarray


def episodes(work: UpdateWork, vocab: int) -> Episodes:
    """Random tokens and credit; lengths and places of actions as the work says."""
    rng = np.random.default_rng(work.seed)
    if work.kind == "dense":
        lengths = np.full(work.rows, work.columns)
        turn = 64  # tokens, of which the last are the action
        action = np.tile(np.arange(work.columns) % turn >= int(turn * (1 - work.action_share)), (work.rows, 1))
    else:
        stored = np.load(Path(work.file))
        lengths, action = stored["lengths"], stored["action"]
    shape = action.shape
    return Episodes(
        lengths=lengths,
        tokens=rng.integers(0, vocab, shape).astype(np.int32),
        action=action & (np.arange(shape[1]) < lengths[:, None]),
        advantages=rng.normal(size=shape).astype(np.float32),
        returns=rng.normal(size=shape).astype(np.float32),
        old_logprobs=np.full(shape, -np.log(vocab), np.float32),
    )
