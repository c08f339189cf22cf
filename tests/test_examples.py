"""What is imitated: plays are cut where a row ends, between two turns."""

from __future__ import annotations

import numpy as np
import pytest

from jaxmtrl.examples import within
from jaxmtrl.types import Episode, EpisodeStop, Turn, TurnStop


def play(*sizes: tuple[int, int]) -> Episode:
    """Turns of so many prompt and action tokens."""
    turns = [
        Turn(
            prompt_ids=np.zeros(prompt, np.int32),
            action_ids=np.zeros(action, np.int32),
            action_logprobs=np.zeros(action, np.float32),
            reward=0.0,
            stop=TurnStop.STOP_TOKEN,
        )
        for prompt, action in sizes
    ]
    return Episode(
        task_id="t", group=0, index=0, turns=tuple(turns), stop=EpisodeStop.DONE, success=True, policy_version=-1
    )


@pytest.mark.parametrize(("tokens", "turns"), [(9, 0), (10, 1), (16, 1), (17, 2), (100, 3)])
def test_as_many_whole_turns_as_fit(tokens, turns):
    episode = play((7, 3), (5, 2), (4, 2))  # turns end after 10, 17 and 23 tokens
    assert within(episode, tokens) == episode.turns[:turns]
