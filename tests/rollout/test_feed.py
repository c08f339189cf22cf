"""The queue: which weights play which batch, and what becomes of an error in the background."""

from __future__ import annotations

import threading

import pytest

from jaxmtrl.rollout.feed import Feed


class Weights:
    """What `load` was given last, as a sampler would keep it."""

    version = -1

    def load(self, version):
        self.version = version


def test_on_demand_every_batch_is_played_by_the_newest_weights():
    held = Weights()
    feed = Feed(held.load, lambda iteration: (iteration, held.version), first=3, end=6, overlap=False)
    assert [feed.take(version) for version in (10, 11, 12)] == [(3, 10), (4, 11), (5, 12)]


def test_one_ahead_weights_are_exactly_one_update_old():
    """Batch 0 by weights 0; batch 1 is played while weights 0 are updated to 1, so by weights 0; batch 2 by 1."""
    threads, held = [], Weights()

    def play(iteration):
        threads.append(threading.current_thread() is threading.main_thread())
        return iteration, held.version

    feed = Feed(held.load, play, first=0, end=4, overlap=True)
    batches = [feed.take(version) for version in range(4)]
    feed.close()
    assert batches == [(0, 0), (1, 0), (2, 1), (3, 2)]
    assert threads == [True, False, False, False]


def test_nothing_is_played_beyond_the_end():
    played = []
    feed = Feed(Weights().load, played.append, first=0, end=2, overlap=True)
    feed.take(0)
    feed.take(0)
    feed.close()
    assert played == [0, 1]


def test_the_batch_ahead_is_played_while_the_caller_learns():
    started, release = threading.Event(), threading.Event()

    def play(iteration):
        if iteration == 1:
            started.set()
            assert release.wait(5)
        return iteration

    feed = Feed(Weights().load, play, first=0, end=2, overlap=True)
    assert feed.take(0) == 0
    assert started.wait(5), "batch 1 was not begun before it was asked for"
    release.set()
    assert feed.take(1) == 1
    feed.close()


def test_an_error_in_the_background_reaches_the_caller():
    """Case F2: it is raised by the next `take`, which never waits for ever."""

    def play(iteration):
        if iteration == 1:
            raise ValueError("reward function broke in batch 1")
        return iteration

    feed = Feed(Weights().load, play, first=0, end=3, overlap=True)
    assert feed.take(0) == 0
    with pytest.raises(ValueError, match="batch 1"):
        feed.take(1)
    feed.close()
