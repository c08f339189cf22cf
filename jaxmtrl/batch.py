"""The border between host and device: padded, packed arrays that rollout writes and learner reads.

Letters: B rows, T tokens a row, E episodes. A row holds one or more whole episodes back to back.
Alignment rule: column t of every [B, T] array speaks of token t: `logprobs[t] = log p(tokens[t] | tokens[<t])`
and `values[t]` is the value of the state before token t is chosen.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct

Array = Any  # numpy on the host, jax on the device; the shapes are the contract


@flax.struct.dataclass
class TokenBatch:
    """Episodes as packed rows, ready for scoring and for the update."""

    tokens: Array  # i32 [B, T]
    segment_ids: Array  # i32 [B, T], index of the episode in 0..E-1; -1 on padding
    positions: (
        Array  # i32 [B, T], restart at 0 with every context: an episode has one, or more where turns were dropped
    )
    action_mask: Array  # bool [B, T], True where the policy sampled the token
    behaviour_logprobs: Array  # f32 [B, T], of the sampler; 0 off-action
    rewards: Array  # f32 [B, T], a turn's reward sits on its last action token
    turn_ids: Array  # i32 [B, T], index of the turn on action tokens; -1 elsewhere
    anchor_ids: Array  # i32 [B, T], which state of which task the turn began in, on action tokens; -1 if unknown
    bootstrap_mask: (
        Array  # bool [B, T], the one column after a truncated episode; its value stands for what was cut off
    )
    group_ids: Array  # i32 [E], which task an episode played; -1 where there is no episode
    # i32 [B, T], the row of `supports` that the token was drawn under, 0 off-action; None without a mask of actions
    support_ids: Array | None = None
    supports: Array | None = None  # bool [N, V], tokens that could be drawn; row 0 is all of them; None as above

    @property
    def valid(self) -> Array:
        """bool [B, T]: not padding."""
        return self.segment_ids >= 0

    @property
    def first(self) -> Array:
        """bool [B, T]: the first token of a context, which nothing predicts."""
        return self.valid & (self.positions == 0)


def as_text(batch: TokenBatch) -> TokenBatch:
    """The same tokens with every one to be learnt, as a language model reads: all but the first of each episode."""
    read = batch.valid & (batch.positions > 0) & ~batch.bootstrap_mask
    return dataclasses.replace(batch, action_mask=read, support_ids=None, supports=None)


def column_fields(batch: TokenBatch) -> list[str]:
    """Names of the arrays that have rows and columns, [B, T] or cut into micro-batches, as far as a batch has them."""
    whole = ("group_ids", "supports")
    names = [field.name for field in dataclasses.fields(TokenBatch) if field.name not in whole]
    return [name for name in names if getattr(batch, name) is not None]


@flax.struct.dataclass
class Targets:
    """What the update learns from; f32 [B, T], 0 off-action."""

    advantages: Array
    returns: Array
    old_logprobs: Array
    old_values: Array
    ref_logprobs: Array | None  # None unless a KL term in the loss wants it
    learn: Array  # bool [B, T], the action tokens that the policy learns from: all, or less what was left out
