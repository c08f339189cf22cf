"""Between the settings and an environment: every mistake at once, before anything is made."""

from __future__ import annotations

import dataclasses

import pytest
from played import Shelf, tasks

from jaxmtrl.config.curriculum_section import CurriculumSection, LevelSection
from jaxmtrl.curriculum.opening import open_course
from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import ConfigError, EnvironmentFailure

SPLITS = {"train": tasks("train", 10), "test": tasks("test", 99), "empty": []}


def test_a_section_that_asks_for_nothing_is_no_course():
    assert open_course(CurriculumSection(), "train", Shelf(SPLITS)) is None


def test_all_mistakes_are_listed_at_once():
    levels = {
        "one": LevelSection(train="trian", evaluate="test"),
        "two": LevelSection(train="empty", evaluate="tset"),
    }
    with pytest.raises(ConfigError) as caught:
        open_course(CurriculumSection(levels=levels, core_split="cor", step_budget=True), "train", Shelf(SPLITS))
    assert caught.value.mistakes == (
        "curriculum.levels.one.train: no split 'trian'; this environment has train, test, empty.",
        "curriculum.levels.one.evaluate: split 'test' has 99 tasks, 100 wanted; lower curriculum.evaluation_tasks or "
        "widen the split.",
        "curriculum.levels.two.train: split 'empty' has 0 tasks, 1 wanted.",
        "curriculum.levels.two.evaluate: no split 'tset'; this environment has train, test, empty.",
        "curriculum.core_split: no split 'cor'; this environment has train, test, empty.",
    )
    with pytest.raises(ConfigError, match=r"curriculum.mixture.gone: no split 'gone'"):
        open_course(CurriculumSection(mixture={"train": 1.0, "gone": 2.0}), "train", Shelf(SPLITS))
    with pytest.raises(ConfigError, match=r"env.train_split: no split 'gone'"):
        open_course(CurriculumSection(step_budget=True), "gone", Shelf(SPLITS))


def test_a_task_is_not_trained_on_and_evaluated_under_two_names_of_splits():
    """The second level is tried on three tasks of which the first one's training has two."""
    splits = {**SPLITS, "hard": tasks("hard", 5), "mixed": [*SPLITS["train"][:2], *tasks("new", 1)]}
    one, two = LevelSection(train="train", evaluate="test"), LevelSection(train="hard", evaluate="mixed")
    for fields in ({"levels": {"one": one, "two": two}}, {"levels": {"two": two}, "core_split": "train"}):
        with pytest.raises(ConfigError) as caught:
            open_course(CurriculumSection(**fields, evaluation_tasks=3), "train", Shelf(splits))
        (mistake,) = caught.value.mistakes
        told = f"curriculum.levels.two.evaluate: 2 tasks of split 'mixed', such as {splits['mixed'][0].id}"
        assert mistake.startswith(told)


def test_a_budget_wants_tasks_that_know_of_steps():
    bare = {"train": [dataclasses.replace(task, payload={}) for task in SPLITS["train"]]}
    with pytest.raises(ConfigError, match=r"curriculum.step_budget: got true, and the tasks of split 'train' have no"):
        open_course(CurriculumSection(step_budget=True), "train", Shelf(bare))
    assert open_course(CurriculumSection(core_split="train"), "train", Shelf(bare)) is not None
    levels = {"one": LevelSection(train="train", evaluate="test")}
    evaluated = {"train": SPLITS["train"], "test": [dataclasses.replace(task, payload={}) for task in SPLITS["test"]]}
    section = CurriculumSection(levels=levels, evaluation_tasks=99, step_budget=True)
    assert open_course(section, "train", Shelf(evaluated)) is not None, "evaluations are not cut"


def test_an_expert_that_breaks_is_the_environments_failure():
    class Broken(Shelf):
        def expert_actions(self, task):
            raise KeyError(task.id)

    course = open_course(CurriculumSection(step_budget=True), "train", Broken(SPLITS))
    assert course is not None
    with pytest.raises(EnvironmentFailure, match=r"asking for an expert's way through .* failed: KeyError"):
        course.plan(course.start(), seed=0, iteration=0, count=3)


@pytest.mark.parametrize(
    ("factory", "options", "steps"),
    [
        ("jaxmtrl.envs.toy:make", {}, {8}),
        (
            "jaxmtrl.envs.alfworld:make",
            {"complexity": "small", "splits": {"train": {"first_seed": 1, "count": 4, "steps": [3, 6]}}},
            {6, 8, 10, 12},
        ),
    ],
)
def test_real_environments_are_cut_at_twice_the_experts_way(factory, options, steps):
    environment = load_environment(factory, options)
    course = open_course(CurriculumSection(step_budget=True), "train", environment)
    assert course is not None
    environment.prepare(environment.split("train").tasks[:4], lambda done, total: None)
    plan = course.plan(course.start(), seed=0, iteration=0, count=4)
    for task in plan.tasks:
        assert task.payload["max_steps"] in steps
        assert task.payload["max_steps"] == 2 * len(environment.expert_actions(task) or ())


def test_a_game_ends_where_its_budget_does():
    environment = load_environment("jaxmtrl.envs.toy:make", {"max_steps": 100})
    course = open_course(CurriculumSection(step_budget=True), "train", environment)
    assert course is not None
    (task,) = course.plan(course.start(), seed=0, iteration=0, count=1).tasks
    env = environment.make_env()
    env.reset(task)
    assert [env.step("look").truncated for _ in range(8)] == [False] * 7 + [True]
