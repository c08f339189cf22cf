"""Evaluation: intervals worked out by hand, and failures that count nowhere else."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from jaxmtrl.evaluation import by_kind, episode_metrics, success_table, summarise, wilson_interval
from jaxmtrl.types import Episode, EpisodeStop, Task, Turn, TurnStop


def episode(*, success: bool, stop: EpisodeStop = EpisodeStop.DONE, invalid: tuple[float, ...] = (0.0,)) -> Episode:
    ids = np.zeros(1, np.int32)
    turns = tuple(
        Turn(
            prompt_ids=ids,
            action_ids=ids,
            action_logprobs=np.zeros(1, np.float32),
            reward=float(success) / len(invalid),
            stop=TurnStop.STOP_TOKEN,
            metrics={"invalid_action": flag},
        )
        for flag in invalid
    )
    return Episode(task_id="t", group=0, index=0, turns=turns, stop=stop, success=success, policy_version=0)


def test_wilson_interval_of_half_of_a_hundred():
    """p = .5, n = 100, z² = 3.841459: centre .5, half-width (1.959964 √(.0025 + .0000960))/1.0384146 = .096169."""
    low, high = wilson_interval(50, 100)
    assert low == pytest.approx(0.5 - 0.096169, abs=1e-5) and high == pytest.approx(0.5 + 0.096169, abs=1e-5)


def test_wilson_interval_is_not_empty_at_the_ends():
    """At 0 of n it is [0, z²/(n + z²)]: 3.841459 / 103.841459 = .036994; the normal one would be [0, 0]."""
    assert wilson_interval(0, 100) == (0.0, pytest.approx(0.036994, abs=1e-6))
    assert wilson_interval(100, 100) == (pytest.approx(1 - 0.036994, abs=1e-6), 1.0)
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_failed_episodes_are_counted_and_nothing_else():
    """Wins 1 of 3 played; counting the failed one as a loss would give .25."""
    lost, cut = episode(success=False), episode(success=False, stop=EpisodeStop.TRUNCATED, invalid=(1.0, 1.0, 0.0))
    figures = summarise([episode(success=True), lost, cut, episode(success=False, stop=EpisodeStop.FAILED)])
    assert (figures.n, figures.failed) == (3, 1)
    assert figures.success == pytest.approx(1 / 3)
    assert figures.mean_turns == pytest.approx(5 / 3)
    assert figures.invalid_action_rate == pytest.approx(2 / 5)


def test_no_played_episode_has_no_success_rate():
    figures = summarise([episode(success=False, stop=EpisodeStop.FAILED)])
    assert math.isnan(figures.success) and figures.ci95 == (0.0, 1.0) and figures.n == 0


def test_kinds_of_tasks_have_figures_of_their_own():
    """Two of heat, one of them won; one of cool, failed; tasks without a kind are in the whole alone."""
    tasks = [Task(id=str(n), seed=n, payload={"kind": kind}) for n, kind in enumerate(("heat", "cool", "heat"))]
    plays = [
        dataclasses.replace(episode(success=n == 0, stop=stop), task_id=str(n))
        for n, stop in enumerate((EpisodeStop.DONE, EpisodeStop.FAILED, EpisodeStop.TRUNCATED))
    ]
    found = by_kind(plays, tasks)
    assert list(found) == ["heat", "cool"]
    assert (found["heat"].success, found["heat"].n) == (0.5, 2)
    assert (found["cool"].n, found["cool"].failed) == (0, 1)
    assert by_kind(plays, [dataclasses.replace(task, payload={}) for task in tasks]) == {}


def test_shares_of_tests_are_means_over_episodes_and_left_out_where_nobody_tells_of_tests():
    """Half of the tests and all of them, one cut before it was graded, one failed: 1.5 of three."""
    graded = [paid({"swe/flag": 0.0}, {"pass_ratio": share}) for share in (0.5, 1.0)]
    figures = summarise([*graded, paid({}), paid({"pass_ratio": 1.0}, stop=EpisodeStop.FAILED)])
    assert figures.as_dict()["pass_ratio"] == 0.5
    assert "pass_ratio" not in summarise([paid({}), episode(success=True)]).as_dict()
    assert "pass_ratio" not in summarise([]).as_dict()


def test_the_table_has_a_row_for_each_kind():
    whole = dataclasses.replace(summarise([episode(success=True)]), kinds={"heat": summarise([episode(success=True)])})
    heads, rows = success_table({"unseen": {"sft": whole.as_dict()}}, ["untrained", "sft"])
    assert heads == ["split", "n", "sft"]
    assert rows == [["unseen", 1, "1.00 [0.21, 1.00]"], ["  heat", 1, "1.00 [0.21, 1.00]"]]


def paid(*turns: dict, stop: EpisodeStop = EpisodeStop.DONE) -> Episode:
    played = episode(success=False, stop=stop, invalid=(0.0,) * len(turns))
    told = [dataclasses.replace(turn, reward=0.5, metrics=metrics) for turn, metrics in zip(played.turns, turns)]
    return dataclasses.replace(played, turns=tuple(told))


def test_each_part_of_rewards_has_a_curve():
    """Sums 1 and 0 of env, .2 - .1 and 0 of progress, over two plays; the failed one counts for nothing."""
    first = paid(
        {"reward/env": 0.0, "reward/progress": 0.2},
        {"reward/env": 1.0, "reward/progress": -0.1, "other": 9.0, "swe/flag": 1.0},
    )
    broken = paid({"reward/env": 5.0, "reward/progress": 5.0}, stop=EpisodeStop.FAILED)
    found = episode_metrics([first, paid({"reward/env": 0.0, "reward/progress": 0.0}), broken])
    assert found["reward/env"] == 0.5 and found["reward/progress"] == pytest.approx(0.05)
    assert found["reward/steps_per_reward"] == 3.0  # three turns, one of which the environment paid for
    assert found["swe/flag"] == 0.5  # an environment's own counts too
    assert not any("other" in name for name in found)


def test_steps_per_reward_of_an_own_reward_are_of_the_reward_itself():
    """A win in two turns pays in each, half of it; two turns for two rewards. Where nothing was paid it is unknown."""
    assert episode_metrics([episode(success=True, invalid=(0.0, 0.0))])["reward/steps_per_reward"] == 1.0
    assert math.isnan(episode_metrics([episode(success=False)])["reward/steps_per_reward"])
    assert [name for name in episode_metrics([episode(success=True)]) if name.startswith("reward/")] == [
        "reward/steps_per_reward"
    ]
