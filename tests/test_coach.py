"""The stage of the action space reaches whoever plays: training, demonstrations, evaluations; and a resumed run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxmtrl.actions.space import STAGE
from jaxmtrl.coach import Coach
from jaxmtrl.config.loading import load_config
from jaxmtrl.envs import toy
from jaxmtrl.evaluation import evaluate
from jaxmtrl.examiner import Examiner
from jaxmtrl.types import Episode, EpisodeStop

TOY = Path(__file__).parents[1] / "configs" / "toy.yaml"
ENVIRONMENT = toy.make({"train_tasks": 16, "heldout_tasks": 8})
TASKS = ENVIRONMENT.split("train").tasks
STAGES = ["actions.stages={a: [take], b: [open], c: [hit]}"]
QUICK = ["actions.every=1", "actions.least=4", "actions.confirmations=1", "actions.stay=0"]


def coach(*overrides: str, saved=None, say=lambda text: None) -> Coach:
    return Coach(load_config(TOY, [*STAGES, *QUICK, *overrides]), TASKS, None, {}, say, saved)


def stages(tasks) -> set[int | None]:
    return {task.payload.get(STAGE) for task in tasks}


def played(success: bool) -> list[Episode]:
    one = Episode(task_id="t", group=0, index=0, turns=(), stop=EpisodeStop.DONE, success=success, policy_version=0)
    return [one] * 8


class Recorder:
    """In a player's place: takes down what it is asked to play."""

    def __init__(self):
        self.tasks = []

    def play(self, plays, **how):
        self.tasks += [play.task for play in plays]
        return []


def test_without_stages_tasks_are_as_they_were():
    plain = Coach(load_config(TOY), TASKS, None, {}, print)
    assert stages([*plain.tasks("rl", 0), *plain.staged(TASKS), *plain.examined(TASKS)]) == {None}
    assert plain.saved_actions == {} and plain.learnt("rl", played(True), 1) == {} and plain.level == ""


def test_training_and_what_comes_before_it_are_in_the_stage_of_the_run():
    ours = coach("actions.start=b")
    assert stages(ours.tasks("critic_warmup", 0)) == stages(ours.tasks("rl", 0)) == stages(ours.staged(TASKS)) == {1}
    assert ours.level == "/1"


def test_success_leads_on_and_is_told():
    told: list[str] = []
    ours = coach(say=told.append)
    assert ours.learnt("critic_warmup", played(True), 1)["actions/stage"] == 0  # the policy stays as it is there
    assert stages(ours.tasks("rl", 0)) == {0}
    values = ours.learnt("rl", played(True), 1)
    assert values == {"actions/stage": 0.0, "actions/refused_share": 0.0, "actions/macro_share": 0.0}
    assert stages(ours.tasks("rl", 1)) == {1} and told == ["actions: stage a → b (success 1.00, above 0.7; n 8)"]


def test_a_resumed_run_is_in_the_stage_it_was_in():
    ours = coach()
    ours.learnt("rl", played(True), 1)
    ours.learnt("rl", played(False), 2)
    again = coach(saved=json.loads(json.dumps(ours.saved_actions)))
    assert again.saved_actions == ours.saved_actions and stages(again.tasks("rl", 2)) == {1}


@pytest.mark.parametrize(("evaluate_in", "stage"), [("current", 1), ("last", 2)])
def test_an_evaluation_is_played_in_its_stage(evaluate_in, stage):
    ours, player = coach("actions.start=b", f"actions.evaluate={evaluate_in}"), Recorder()
    parts = SimpleNamespace(load=lambda params, step: None, player=player, environment=ENVIRONMENT)
    examiner = Examiner(load_config(TOY), parts, None, ours.examined)  # pyright: ignore
    examiner.played({"heldout": 4, "harder": 2}, None, 0)
    assert len(player.tasks) == 6 and stages(player.tasks) == {stage}


def test_an_evaluation_follows_the_run():
    ours, player = coach(), Recorder()
    for expected in (0, 1):
        evaluate(player, ENVIRONMENT, {"heldout": 2}, temperature=0.0, seed=0, staged=ours.examined)  # pyright: ignore
        assert stages(player.tasks) == {expected}
        player.tasks.clear()
        ours.learnt("rl", played(True), 1)
