"""A network without context and batches to train it on: small enough that a whole update compiles in a second."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxmtrl.batch import TokenBatch
from jaxmtrl.config.sections import ModelSection
from jaxmtrl.models.decoder import Network

VOCAB = 16
EMBED = 8


@dataclasses.dataclass(frozen=True)
class BagNetwork:
    """As `models.decoder.Network`, but a hidden state knows only its own token and position."""

    def init(self, key: jax.Array) -> Any:
        table, places, head, critic = jax.random.split(key, 4)
        return {
            "policy": {
                "table": jax.random.normal(table, (VOCAB, EMBED)),
                "places": jax.random.normal(places, (64, EMBED)),
                "head": jax.random.normal(head, (VOCAB, EMBED)),
            },
            "critic": {"weight": jax.random.normal(critic, (EMBED,))},
        }

    def axes(self) -> Any:
        matrix = ("vocab", "embed")
        return {
            "policy": {"table": matrix, "places": (None, "embed"), "head": matrix},
            "critic": {"weight": ("embed",)},
        }

    def hidden(self, params: Any, tokens: Any, positions: Any, segment_ids: Any, noise: Any = None) -> Any:
        return params["policy"]["table"][tokens] + params["policy"]["places"][positions]

    def critic_hidden(self, params: Any, hidden: Any, *read: Any) -> Any:
        return hidden

    def logits(self, params: Any, hidden: Any) -> Any:
        return hidden @ params["policy"]["head"].T

    def values(self, params: Any, hidden: Any) -> Any:
        return hidden @ params["critic"]["weight"]


def make_batch(lengths: list[list[int]], *, length: int = 24, seed: int = 0) -> TokenBatch:
    """Random packed rows.

    Args:
        lengths: for each row the lengths of its episodes; each has 2 prompt tokens, then turns of 3 action and 2
            observation tokens, a reward of 0 or 1 at its last action token, and a task it shares with a neighbour.
    """
    rng = np.random.default_rng(seed)
    shape = (len(lengths), length)
    tokens = rng.integers(0, VOCAB, shape).astype(np.int32)
    segment_ids, positions = np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
    action_mask, rewards = np.zeros(shape, bool), np.zeros(shape, np.float32)
    episode = 0
    for row, parts in enumerate(lengths):
        start = 0
        for part in parts:
            places = np.arange(part)
            span = slice(start, start + part)
            segment_ids[row, span], positions[row, span] = episode, places
            action_mask[row, span] = (places >= 2) & ((places - 2) % 5 < 3)
            rewards[row, start + np.flatnonzero(action_mask[row, span])[-1]] = rng.integers(0, 2)
            start, episode = start + part, episode + 1
    return TokenBatch(
        tokens=tokens,
        segment_ids=segment_ids,
        positions=positions,
        action_mask=action_mask,
        behaviour_logprobs=np.zeros(shape, np.float32),
        rewards=rewards,
        turn_ids=np.where(action_mask, (positions - 2) // 5, -1).astype(np.int32),
        anchor_ids=np.full(shape, -1, np.int32),
        bootstrap_mask=np.zeros(shape, bool),
        group_ids=(np.arange(16) // 2).astype(np.int32),
    )


def small_decoder() -> tuple[Network, Any]:
    """The real decoder, two layers and a vocabulary of 64, with numpy parameters that need no compiled init."""
    section = ModelSection(layers=2, embed=32, heads=4, kv_heads=2, head_dim=8, mlp=64, remat="none")
    network = Network.from_section(section, 64, "float32")
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    return network, jax.tree.map(lambda leaf: rng.normal(0, 0.2, leaf.shape).astype(np.float32), shapes)
