"""From episodes to arrays: lays whole episodes back to back into rows of one length.

Numpy only. Knows token ids and masks; what a token means, and which one stops a turn, it does not know: the mask
comes from how many tokens were sampled, never from comparing ids with the padding id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxmtrl.batch import TokenBatch
from jaxmtrl.errors import CapacityError
from jaxmtrl.types import Episode, EpisodeStop


def pack(
    episodes: Sequence[Episode],
    *,
    row_length: int,
    rows: int | None = None,
    num_episodes: int | None = None,
    pad_id: int = 0,
    masked: bool = False,
) -> TokenBatch:
    """Packs episodes into rows, longest first, each into the first row that has room.

    An episode's columns are, turn by turn, the prompt and then the action tokens, with the turn's reward on its last
    action token. Where turns were dropped on the way, its next context follows the one before, positions from 0: credit
    flows on, attention does not. A truncated episode goes on with what was read last and one bootstrap column, whose
    value stands for what was cut off; a finished one ends with its last action token. Episodes that failed, and
    episodes in which nothing was sampled, are left out.

    Args:
        episodes: in the order that gives them their index, which becomes their segment id. Sort them by (group,
            index) for a batch that does not depend on which game finished first.
        row_length: T, tokens a row.
        rows: B; rows without episodes come last. None takes as many as are filled, and at least one.
        num_episodes: E, at least `len(episodes)`, which is what None takes.
        pad_id: token on padding and on bootstrap columns; may be an id that also occurs in episodes.
        masked: the run samples under a mask of actions, whose rows the batch is to have.

    Returns:
        A batch of numpy arrays. `group_ids` [E] is -1 for indices of no episode and of episodes left out.

    Raises:
        CapacityError: an episode is longer than a row, or there are more episodes or filled rows than allowed.
    """
    if num_episodes is None:
        num_episodes = len(episodes)
    if len(episodes) > num_episodes:
        raise CapacityError(f"{len(episodes)} episodes do not fit a batch of {num_episodes}: raise num_episodes.")
    lengths = {index: episode_length(episode) for index, episode in enumerate(episodes)}
    lengths = {index: length for index, length in lengths.items() if length > 0}
    places = first_fit(lengths, row_length)
    filled = 1 + max((row for row, _ in places.values()), default=0)
    if rows is None:
        rows = filled
    if filled > rows:
        raise CapacityError(
            f"{len(lengths)} episodes of {sum(lengths.values())} tokens in all fill {filled} rows of {row_length}, "
            f"but the batch has {rows}: give it more or longer rows, or play fewer episodes."
        )

    batch = _empty(rows, row_length, num_episodes, pad_id, masked)
    anchors: dict[tuple[int, str], int] = {}
    for index, (row, start) in places.items():
        columns = _columns(episodes[index], pad_id)
        span = slice(start, start + lengths[index])
        batch.tokens[row, span] = columns.tokens
        batch.segment_ids[row, span] = index
        batch.positions[row, span] = columns.positions
        batch.action_mask[row, span] = columns.turn_ids >= 0
        batch.behaviour_logprobs[row, span] = columns.logprobs
        batch.rewards[row, span] = columns.rewards
        batch.turn_ids[row, span] = columns.turn_ids
        if batch.support_ids is not None:
            batch.support_ids[row, span] = columns.support_ids
        batch.anchor_ids[row, span] = _anchor_ids(episodes[index], columns.turn_ids, anchors)
        if episodes[index].stop is EpisodeStop.TRUNCATED:
            batch.bootstrap_mask[row, span.stop - 1] = True
        batch.group_ids[index] = episodes[index].group
    return batch


def episode_length(episode: Episode) -> int:
    """Columns that an episode takes in a row; 0 if `pack` leaves it out."""
    sampled = [number for number, turn in enumerate(episode.turns) if len(turn.action_ids)]
    if episode.failed or not sampled:
        return 0
    truncated = episode.stop is EpisodeStop.TRUNCATED
    turns = episode.turns if truncated else episode.turns[: sampled[-1] + 1]
    length = sum(len(turn.prompt_ids) + len(turn.action_ids) for turn in turns)
    return length + len(episode.tail_ids) + 1 if truncated else length


def packing_efficiency(batch: TokenBatch) -> float:
    """Share of a batch's columns that hold an episode's tokens rather than padding, in 0..1."""
    return float(np.mean(np.asarray(batch.valid)))


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """One episode laid out, not yet in a row; n is its `episode_length`."""

    tokens: np.ndarray  # i32 [n]
    logprobs: np.ndarray  # f32 [n], 0 off-action
    rewards: np.ndarray  # f32 [n], on last action tokens
    turn_ids: np.ndarray  # i32 [n], -1 off-action
    positions: np.ndarray  # i32 [n], in the context; 0 where one begins
    support_ids: np.ndarray  # i32 [n], rows of the mask of actions; 0 off-action and without a mask


def _columns(episode: Episode, pad_id: int) -> _Columns:
    """Lays out an episode in which something was sampled."""
    length = episode_length(episode)
    tokens = np.full(length, pad_id, np.int32)
    logprobs, rewards = np.zeros(length, np.float32), np.zeros(length, np.float32)
    turn_ids, support_ids = np.full(length, -1, np.int32), np.zeros(length, np.int32)
    positions = np.arange(length, dtype=np.int32)
    at, last_action = 0, None
    for number, turn in enumerate(episode.turns):
        start = at + len(turn.prompt_ids)
        stop = start + len(turn.action_ids)
        if stop <= length:  # else read after the last action of a finished episode
            tokens[at:start], tokens[start:stop] = turn.prompt_ids, turn.action_ids
            logprobs[start:stop] = turn.action_logprobs
            turn_ids[start:stop] = number
            if turn.support_ids is not None:
                support_ids[start:stop] = turn.support_ids
            if turn.fresh:
                positions[at:] = np.arange(length - at)
            at = stop
        if len(turn.action_ids):
            last_action = stop - 1
        # A turn for which no tokens were left earned its reward by the action before it. Before any action there is
        # nobody to credit.
        if last_action is not None:
            rewards[last_action] += turn.reward
    if episode.stop is EpisodeStop.TRUNCATED:
        tokens[at : at + len(episode.tail_ids)] = episode.tail_ids
    return _Columns(
        tokens=tokens,
        logprobs=logprobs,
        rewards=rewards,
        turn_ids=turn_ids,
        positions=positions,
        support_ids=support_ids,
    )


def _anchor_ids(episode: Episode, turn_ids: np.ndarray, anchors: dict[tuple[int, str], int]) -> np.ndarray:
    """Numbers the states of a batch in `anchors`, task by task, and says for each action token where its turn began."""
    numbers = np.full(len(turn_ids), -1, np.int32)
    for turn, played in enumerate(episode.turns):
        if played.state:
            numbers[turn_ids == turn] = anchors.setdefault((episode.group, played.state), len(anchors))
    return numbers


def first_fit(lengths: dict[int, int], row_length: int) -> dict[int, tuple[int, int]]:
    """First-fit-decreasing: the row and first column of each index; equal lengths keep the order of their indices."""
    places: dict[int, tuple[int, int]] = {}
    used: list[int] = []
    for index in sorted(lengths, key=lambda index: (-lengths[index], index)):
        length = lengths[index]
        if length > row_length:
            raise CapacityError(
                f"episode {index} takes {length} columns, but a row has {row_length}: "
                f"raise batching.row_length or shorten episodes (sampling.cache_length)."
            )
        row = next((row for row, taken in enumerate(used) if taken + length <= row_length), len(used))
        if row == len(used):
            used.append(0)
        places[index] = (row, used[row])
        used[row] += length
    return places


def _empty(rows: int, row_length: int, num_episodes: int, pad_id: int, masked: bool) -> TokenBatch:
    """A batch of nothing but padding."""
    shape = (rows, row_length)
    return TokenBatch(
        tokens=np.full(shape, pad_id, np.int32),
        segment_ids=np.full(shape, -1, np.int32),
        positions=np.zeros(shape, np.int32),
        action_mask=np.zeros(shape, bool),
        behaviour_logprobs=np.zeros(shape, np.float32),
        rewards=np.zeros(shape, np.float32),
        turn_ids=np.full(shape, -1, np.int32),
        anchor_ids=np.full(shape, -1, np.int32),
        bootstrap_mask=np.zeros(shape, bool),
        group_ids=np.full(num_episodes, -1, np.int32),
        support_ids=np.zeros(shape, np.int32) if masked else None,
    )
