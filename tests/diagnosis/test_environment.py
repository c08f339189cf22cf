"""An environment that keeps its promises, and one for each promise that does not."""

from __future__ import annotations

import pytest
from doctor_bench import DirectPool, by_name, failures
from short_env import TASKS, ShortEnvironment

from jaxmtrl.diagnosis.environment import check_crash, check_environment

SPLITS = {"train": TASKS, "heldout": TASKS}


def examined(fault: str = ""):
    environment = ShortEnvironment({"fault": fault})
    return check_environment(environment, DirectPool(environment), SPLITS)


def test_a_sound_environment_passes():
    findings, plays = examined()
    assert failures(findings) == []
    # Two splits of two tasks, each played twice with nonsense until the third step cuts it, and won in one step.
    assert [len(play.rewards) for play in plays] == [3] * 8 + [1] * 4
    assert "go" in plays[0].observations


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("raise", "a task starts the same each time"),
        ("differs", "a task starts the same each time"),
        ("expert", "the expert wins, and earns more than nonsense"),
        ("generous", "the expert wins, and earns more than nonsense"),
        ("picky", "no action breaks the environment"),
    ],
)
def test_a_broken_promise_is_caught(fault: str, name: str):
    finding = by_name(examined(fault)[0])[name]
    assert not finding.passed
    assert finding.cure


def test_a_finding_names_task_and_split():
    finding = by_name(examined("expert")[0])["the expert wins, and earns more than nonsense"]
    assert "'short/0' of train" in finding.said and finding.number == 4


def test_a_pool_that_loses_nobody_or_everybody_is_caught():
    # Nobody was killed: the check must not pass by having done nothing.
    (finding,) = check_crash(DirectPool(), TASKS[0], list)
    assert not finding.passed
