"""Groups by their definition, and broken plays left out of them."""

from __future__ import annotations

import dataclasses

import pytest
from doctor_bench import bench, episodes, failures

from jaxmtrl.diagnosis.groups import check_groups
from jaxmtrl.learner import credit
from jaxmtrl.rollout import pack
from jaxmtrl.types import EpisodeStop

RLOO = ("algorithm.name=rloo", "algorithm.group_size=2")


@pytest.mark.parametrize("name", ["ppo", "rloo", "grpo", "gspo", "gigpo"])
def test_sound_groups_pass(name: str):
    overrides = () if name == "ppo" else (f"algorithm.name={name}", "algorithm.group_size=2")
    overrides += ("algorithm.ratio=sequence",) if name == "gspo" else ()
    assert failures(check_groups(bench(*overrides), episodes(3))) == []


def test_a_mean_that_counts_the_play_itself_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(credit, "leave_one_out", lambda returns, group_ids: returns - returns.mean())
    assert "group advantages are as defined" in failures(check_groups(bench(*RLOO), episodes(3)))


def test_a_failed_episode_scored_0_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = pack.pack

    def scored(given, **rest):
        lost = [dataclasses.replace(episode, stop=EpisodeStop.DONE) if episode.failed else episode for episode in given]
        return right(lost, **rest)

    monkeypatch.setattr("jaxmtrl.diagnosis.groups.pack", scored)
    assert "a failed episode is left out" in failures(check_groups(bench(*RLOO), episodes(3)))
