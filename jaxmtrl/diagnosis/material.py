"""Episodes to measure on: real ones with made-up credit, laid out in ways that must not matter.

What was sampled where is told from the episodes alone, so that the masks of a batch can be checked against it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmtrl.batch import TokenBatch, column_fields
from jaxmtrl.rollout.pack import episode_length, pack
from jaxmtrl.types import Episode, EpisodeStop

MANY = 4  # episodes that the checks of invariance cut and pack


def with_made_up_credit(episodes: Sequence[Episode], *, turns: int, seed: int) -> list[Episode]:
    """Four played episodes in two groups of two, with random rewards: untrained play hardly earns any.

    Args:
        turns: that are kept of each; rows stay short, and long rows take long to compile.
    """
    rng = np.random.default_rng((seed, 0x3EAD))
    played = [_opening(episode, turns) for episode in episodes if episode_length(episode) > 0]
    chosen = [played[number % len(played)] for number in range(MANY)]
    return [
        dataclasses.replace(
            episode,
            group=number // 2,
            index=number % 2,
            turns=tuple(dataclasses.replace(turn, reward=float(rng.normal())) for turn in episode.turns),
        )
        for number, episode in enumerate(chosen)
    ]


def _opening(episode: Episode, turns: int) -> Episode:
    """The first turns of an episode; one that had more is truncated there, after it has read on."""
    if len(episode.turns) <= turns:
        return episode
    read = episode.turns[turns].prompt_ids
    return dataclasses.replace(episode, turns=episode.turns[:turns], stop=EpisodeStop.TRUNCATED, tail_ids=read)


def longest(episodes: Sequence[Episode]) -> int:
    """Columns of the longest episode."""
    return max(episode_length(episode) for episode in episodes)


def one_a_row(episodes: Sequence[Episode], *, row_length: int, pad_id: int) -> TokenBatch:
    """Row e holds episode e."""
    single = [
        pack([episode], row_length=row_length, num_episodes=len(episodes), pad_id=pad_id, rows=1)
        for episode in episodes
    ]
    groups = np.array([episode.group for episode in episodes], np.int32)
    fields = {}
    for name in column_fields(single[0]):
        rows = [np.array(getattr(batch, name)) for batch in single]
        if name == "segment_ids":
            rows = [np.where(row >= 0, number, -1).astype(np.int32) for number, row in enumerate(rows)]
        fields[name] = np.concatenate(rows)
    return TokenBatch(**fields, group_ids=groups)


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Where an episode's tokens lie in a batch, by the lengths of its turns."""

    row: int
    prompts: tuple[slice, ...]  # columns of each turn's prompt
    actions: tuple[slice, ...]  # columns of each turn's action

    @property
    def sampled(self) -> np.ndarray:
        """i64 [A], the columns of all action tokens in order."""
        return np.concatenate([np.arange(span.start, span.stop) for span in self.actions])


def ledger(batch: TokenBatch, number: int, episode: Episode) -> Ledger:
    """Where episode `number` of `batch` lies."""
    rows, columns = np.nonzero(np.asarray(batch.segment_ids) == number)
    at = int(columns.min())
    prompts, actions = [], []
    for turn in episode.turns:
        prompts.append(slice(at, at + len(turn.prompt_ids)))
        at += len(turn.prompt_ids)
        if len(turn.action_ids):
            actions.append(slice(at, at + len(turn.action_ids)))
        at += len(turn.action_ids)
    return Ledger(row=int(rows[0]), prompts=tuple(prompts), actions=tuple(actions))


def sampled_mask(batch: TokenBatch, episodes: Sequence[Episode]) -> np.ndarray:
    """bool [B, T], what the policy sampled, by the episodes."""
    mask = np.zeros(np.shape(batch.tokens), bool)
    for number, episode in enumerate(episodes):
        if episode_length(episode) > 0:
            found = ledger(batch, number, episode)
            mask[found.row, found.sampled] = True
    return mask


def ended(episode: Episode, stop: EpisodeStop, rewards: Sequence[float], *, index: int, tail: int = 2) -> Episode:
    """The same play with another end and other rewards, one a turn."""
    tail_ids = episode.turns[0].prompt_ids[:tail] if stop is EpisodeStop.TRUNCATED else np.zeros(0, np.int32)
    turns = tuple(dataclasses.replace(turn, reward=float(r)) for turn, r in zip(episode.turns, rewards, strict=True))
    return dataclasses.replace(episode, turns=turns, stop=stop, group=0, index=index, tail_ids=tail_ids)
