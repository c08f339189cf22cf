"""Which tasks a run plays: known before it starts, so that no other game is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxmtrl.config.loading import load_config
from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import ConfigError
from jaxmtrl.tasks import tasks_evaluated, tasks_in_use, tasks_of, tasks_to_learn_from

CONFIG = Path(__file__).parent / "training" / "tiny.yaml"


def config(*overrides: str):
    return load_config(CONFIG, ["env.options.train_tasks=200", "pretrain.plays=0", "sft.demonstrations=0", *overrides])


def train_tasks(settings):
    return load_environment(settings.env.factory, settings.env.options).split("train").tasks


def test_tasks_in_use_are_those_that_the_stages_play_in_the_order_of_the_split():
    settings = config("critic_warmup.iterations=1", "rl.iterations=2", "rl.tasks_per_iteration=5")
    tasks = train_tasks(settings)
    used = tasks_in_use(settings, tasks)
    played = [
        task
        for stage, iteration in (("critic_warmup", 0), ("rl", 0), ("rl", 1))
        for task in tasks_to_learn_from(settings, tasks, stage, iteration)
    ]
    assert {task.id for task in used} == {task.id for task in played} and len(used) <= 15
    assert used == [task for task in tasks if task in used]


def test_demonstrated_and_explored_tasks_are_the_first_ones():
    settings = config("pretrain.plays=7", "sft.demonstrations=9", "critic_warmup.iterations=0", "rl.iterations=0")
    tasks = train_tasks(settings)
    assert tasks_in_use(settings, tasks) == list(tasks[:9])
    assert tasks_in_use(config("pretrain.plays=1000", "rl.iterations=0"), tasks) == list(tasks)


def test_a_long_run_uses_every_task_once_and_evaluation_names_its_own():
    settings = config("rl.iterations=50", "rl.tasks_per_iteration=10")
    assert tasks_in_use(settings, train_tasks(settings)) == list(train_tasks(settings))
    environment = load_environment(settings.env.factory, settings.env.options)
    assert tasks_evaluated(settings, environment) == list(environment.split("heldout").tasks[:4])


def test_a_split_that_is_too_small_names_the_field():
    environment = load_environment("jaxmtrl.envs.toy:make", {})
    with pytest.raises(ConfigError, match=r"evaluation.splits.heldout: split 'heldout' has 64 tasks, 65 wanted"):
        tasks_of(environment, "heldout", 65, "evaluation.splits.heldout")
