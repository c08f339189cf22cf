"""The queue between play and learning: batches of episodes, in order, played on demand or one ahead.

On demand: a batch is played by the newest weights when it is asked for; strictly on-policy. One ahead: a background
thread plays batch i + 1 while batch i is learnt from, by weights exactly one update old, and the learner corrects
for it. Knows nothing of what is played or learnt; both sides are functions.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

Batch = TypeVar("Batch")


class Feed(Generic[Batch]):
    """Hands out the batches `first`, `first + 1`, … up to `end`, each played once."""

    def __init__(
        self,
        load: Callable[[Any], None],
        play: Callable[[int], Batch],
        *,
        first: int,
        end: int,
        overlap: bool,
    ):
        """
        Args:
            load: takes a copy of weights that `play` plays with from here on; called by `take` itself, since the
                learner gives its own copy up, and only while nothing is being played.
            play: plays the batch of an iteration; in one thread at a time.
            first: the first iteration.
            end: one past the last.
            overlap: play one batch ahead in a background thread.
        """
        self._load, self._play, self._next, self._end = load, play, first, end
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout") if overlap else None
        self._ahead: Future[Batch] | None = None

    def take(self, weights: Any) -> Batch:
        """The next batch.

        With overlap, `weights` play the batch after it: those that the caller is about to update. The first batch
        is played by them as well, since there are none before.

        Raises:
            whatever `play` raised, also in the background.
        """
        iteration, self._next = self._next, self._next + 1
        if self._ahead is not None:
            batch = self._ahead.result()
            self._load(weights)
        else:
            self._load(weights)
            batch = self._play(iteration)
        self._ahead = None
        if self._thread is not None and iteration + 1 < self._end:
            self._ahead = self._thread.submit(self._play, iteration + 1)
        return batch

    def close(self) -> None:
        """Waits for the batch that is being played, and drops it."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
