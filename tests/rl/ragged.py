"""Random packed rows with everything that may lie between and within episodes, and the same episodes packed anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

ROWS, LENGTH, EPISODES = 6, 64, 9


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Packed rows [ROWS, LENGTH] of EPISODES episodes; NaN in every float that nobody should read."""

    rewards: np.ndarray  # f32; NaN off-action
    values: np.ndarray  # f32; NaN but on action and bootstrap columns
    action_mask: np.ndarray  # bool
    segment_ids: np.ndarray  # i32, -1 on padding
    turn_ids: np.ndarray  # i32, -1 off-action
    bootstrap_mask: np.ndarray  # bool
    anchor_ids: np.ndarray  # i32, the same on a turn's tokens; -1 where unknown

    @property
    def layout(self) -> dict[str, np.ndarray]:
        """What says where turns and episodes are, by name."""
        return {"action_mask": self.action_mask, "turn_ids": self.turn_ids, "segment_ids": self.segment_ids}


@dataclasses.dataclass(frozen=True)
class Played:
    """One episode without its layout: its action tokens, in order, as a slow loop wants them."""

    number: int
    where: tuple[np.ndarray, np.ndarray]  # rows and columns of its action tokens
    rewards: list[float]
    values: list[float]
    turns: list[list[int]]  # for each turn the indices of its tokens
    anchors: list[int]  # of each turn
    final_value: float  # of the bootstrap column; 0 if there is none


def ragged(seed: int, *, dense: bool = True) -> Ragged:
    """Random episodes of 0 to 4 turns of 1 to 4 tokens, with observations before, between and within turns, some with
    a bootstrap column at the end.

    Args:
        dense: rewards on all action tokens; otherwise on the last one of a turn, and 0 on every third turn.
    """
    random = np.random.default_rng(seed)
    return _pack([_episode(random, number, dense) for number in random.permutation(EPISODES)], random)


def repacked(batch: Ragged, seed: int) -> Ragged:
    """The same episodes in other rows, in another order, with more observations and padding around and within."""
    random = np.random.default_rng(seed)
    episodes = []
    for number in random.permutation(EPISODES):
        own = batch.segment_ids == number
        episode = _map(batch, lambda array, own=own: array[own])
        # Nothing goes behind a bootstrap column. Some of what goes in is observation, some padding.
        at = np.sort(random.integers(0, own.sum() + (not episode.bootstrap_mask.any()), 4))
        between = dataclasses.replace(_nothing(4), segment_ids=random.choice([number, -1], 4))
        episodes.append(
            Ragged(**{name: np.insert(array, at, getattr(between, name)) for name, array in vars(episode).items()})
        )
    return _pack(episodes, random)


def plays(batch: Ragged) -> list[Played]:
    """The episodes by number."""
    result = []
    for number in range(EPISODES):
        own = batch.action_mask & (batch.segment_ids == number)
        names = batch.turn_ids[own]
        turns = [list(np.flatnonzero(names == turn)) for turn in np.unique(names)]
        final = batch.values[batch.bootstrap_mask & (batch.segment_ids == number)]
        result.append(
            Played(
                number=number,
                where=np.nonzero(own),
                rewards=[float(x) for x in batch.rewards[own]],
                values=[float(x) for x in batch.values[own]],
                turns=turns,
                anchors=[int(batch.anchor_ids[own][turn[0]]) for turn in turns],
                final_value=float(final[0]) if len(final) else 0.0,
            )
        )
    return result


def check(batch: Ragged, result, slow: Callable[[Played], list[float]], atol: float = 1e-5) -> None:
    """The result is what the slow loop says of each episode, and 0 off-action."""
    expected = np.zeros(batch.action_mask.shape)
    for play in plays(batch):
        expected[play.where] = slow(play)
    np.testing.assert_allclose(np.asarray(result), expected, atol=atol)
    np.testing.assert_array_equal(np.asarray(result)[~batch.action_mask], 0.0)


def check_layout_is_nothing(estimate: Callable[[Ragged], np.ndarray], seed: int = 0, atol: float = 1e-5) -> None:
    """What `estimate` gives each action token does not depend on where its episode lies nor on what lies in between."""
    batch = ragged(seed)
    again = repacked(batch, seed + 1)
    assert not np.array_equal(batch.segment_ids, again.segment_ids)
    before, after = np.asarray(estimate(batch)), np.asarray(estimate(again))
    for old, new in zip(plays(batch), plays(again), strict=True):
        np.testing.assert_allclose(after[new.where], before[old.where], atol=atol)


def _episode(random: np.random.Generator, number: int, dense: bool) -> Ragged:
    """One episode of up to 25 columns."""
    turns = 0 if number == 0 else int(random.integers(1, 5))
    kinds = [-1] * int(random.integers(1, 4))
    for turn in range(turns):
        tokens = [turn] * int(random.integers(1, 5))
        if len(tokens) > 2 and random.random() < 0.3:
            tokens.insert(2, -1)  # something in the midst of a turn that was not sampled
        kinds += tokens + [-1] * int(random.integers(0, 3))
    turn_ids = np.array(kinds, np.int32)
    size = len(turn_ids)
    mask = turn_ids >= 0
    rewards = random.normal(size=size).astype(np.float32)
    if not dense:
        last = np.append(turn_ids[1:] != turn_ids[:-1], True)
        rewards[~last | (turn_ids % 3 == 0)] = 0.0
    episode = Ragged(
        rewards=np.where(mask, rewards, np.nan).astype(np.float32),
        values=np.where(mask, random.normal(size=size), np.nan).astype(np.float32),
        action_mask=mask,
        segment_ids=np.full(size, number, np.int32),
        turn_ids=turn_ids,
        bootstrap_mask=np.zeros(size, bool),
        anchor_ids=np.where(mask, random.integers(-1, 5, 5)[turn_ids], -1).astype(np.int32),
    )
    if random.random() < 0.5:
        end = dataclasses.replace(
            _nothing(1),
            values=random.normal(size=1).astype(np.float32),
            segment_ids=np.array([number], np.int32),
            bootstrap_mask=np.ones(1, bool),
        )
        episode = Ragged(**{name: np.concatenate([array, getattr(end, name)]) for name, array in vars(episode).items()})
    return episode


def _pack(episodes: list[Ragged], random: np.random.Generator) -> Ragged:
    """Into rows in the given order, with up to two columns of padding before each."""
    batch = _map(_nothing(ROWS * LENGTH), lambda array: array.reshape(ROWS, LENGTH))
    free = [0] * ROWS
    for episode in episodes:
        gap, size = int(random.integers(0, 3)), len(episode.rewards)
        row = random.choice([row for row in range(ROWS) if free[row] + gap + size <= LENGTH])
        start = free[row] + gap
        for name, array in vars(episode).items():
            getattr(batch, name)[row, start : start + size] = array
        free[row] = start + size
    return batch


def _nothing(size: int) -> Ragged:
    """Columns that are padding."""
    return Ragged(
        rewards=np.full(size, np.nan, np.float32),
        values=np.full(size, np.nan, np.float32),
        action_mask=np.zeros(size, bool),
        segment_ids=np.full(size, -1, np.int32),
        turn_ids=np.full(size, -1, np.int32),
        bootstrap_mask=np.zeros(size, bool),
        anchor_ids=np.full(size, -1, np.int32),
    )


def _map(batch: Ragged, function: Callable[[np.ndarray], np.ndarray]) -> Ragged:
    return Ragged(**{name: function(array) for name, array in vars(batch).items()})
