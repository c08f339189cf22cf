"""A curriculum played through by hand: levels, replay, budgets, mastery and forgetting, and going on from any point."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played import Result, Shelf, episode, played, tasks

from jaxmtrl.config.curriculum_section import CurriculumSection, LevelSection
from jaxmtrl.curriculum.adaptation import streak_after
from jaxmtrl.curriculum.course import Course
from jaxmtrl.curriculum.opening import open_course
from jaxmtrl.curriculum.state import CurriculumState
from jaxmtrl.errors import ConfigError

NAMES = ("small", "medium", "large")
LEVELS = {name: LevelSection(train=f"{name}_train", evaluate=f"{name}_test") for name in NAMES}
SPLITS = {
    **{level.train: tasks(level.train, 40) for level in LEVELS.values()},
    **{level.evaluate: tasks(level.evaluate, 120) for level in LEVELS.values()},
    "core": tasks("core", 9),
}


def course(length: int | None = 4, **fields) -> Course:
    found = open_course(CurriculumSection(**fields), "small_train", Shelf(SPLITS, length))
    assert found is not None
    return found


def through(course: Course, wins: dict[int, dict[str, int]], *, until: int, training: float = 0.5, saved=False):
    """Plays `until` iterations; returns the level after each, and all messages.

    Args:
        wins: of a hundred in the evaluations of each level by its iteration; the last ones go on.
        training: share of each batch that is won.
        saved: whether the state goes through JSON after each iteration.
    """
    state, where, messages, known = course.start(), [], [], {}
    for iteration in range(until):
        plan = course.plan(state, seed=0, iteration=iteration, count=20)
        step = course.after_iteration(plan, played(plan, lambda group, _: group < 20 * training), iteration + 1)
        state, messages = step.state, [*messages, *step.messages]
        known = wins.get(iteration + 1, known)
        due = course.due(state, iteration + 1)
        if due:
            results = {split: Result(known[split.removesuffix("_test")], n) for split, n in due.items()}
            step = course.after_evaluation(state, results, iteration + 1)
            state, messages = step.state, [*messages, *step.messages]
        if saved:
            state = course.start(json.loads(json.dumps(state.as_dict())))
        where.append(state.level)
    return state, where, messages


def test_a_run_climbs_and_falls_back_as_worked_out_by_hand():
    """Evaluations every 5. small .80 .80: up after 10. medium .90 .90: up after 20. large .30 .30: down after 30."""
    wins = {5: {"small": 80, "medium": 90, "large": 30}}
    _, where, messages = through(course(levels=LEVELS), wins, until=40)
    assert where == ["small"] * 9 + ["medium"] * 10 + ["large"] * 10 + ["medium"] * 10 + ["large"]
    assert messages[0] == (
        "curriculum: level small → medium after 10 iterations of it (success 0.80, 0.80, above 0.75; n 100)"
    )
    assert messages[2].startswith("curriculum: level large → medium after 10 iterations of it (success 0.30, 0.30, bel")
    assert len(messages) == 4


def test_hysteresis_holds_a_level():
    once = {5: {"small": 80}, 10: {"small": 70}, 15: {"small": 80}, 20: {"small": 70}}
    assert set(through(course(levels=LEVELS), once, until=24)[1]) == {"small"}
    twice = {5: {"small": 80, "medium": 30, "large": 30}}
    one_confirmation = {"levels": LEVELS, "confirmations": 1}
    assert through(course(**one_confirmation, stay=15), twice, until=40)[1] == (
        ["small"] * 14 + ["medium"] * 15 + ["small"] * 11
    )
    assert through(course(**one_confirmation, stay=0), twice, until=11)[1] == (
        ["small"] * 4 + ["medium"] * 5 + ["small"] * 2
    )


def test_scores_of_an_earlier_visit_do_not_count():
    """Back on small after 20, where it had .80 .80: both confirmations are needed again, at 25 and 30."""
    wins = {5: {"small": 80, "medium": 30}, 25: {"small": 80, "medium": 30}}
    _, where, _ = through(course(levels=LEVELS, stay=0), wins, until=31)
    assert where[19:31] == ["small"] * 10 + ["medium"] * 2


def test_the_first_and_last_level_have_no_way_out():
    state, where, messages = through(course(levels=LEVELS, start="large"), {5: dict.fromkeys(NAMES, 99)}, until=21)
    assert set(where) == {"large"} and messages == []
    assert state.evaluations == 4
    assert set(through(course(levels=LEVELS), {5: {"small": 1}}, until=21)[1]) == {"small"}


def test_an_evaluation_that_was_hardly_played_does_not_count():
    plan = course(levels=LEVELS)
    step = plan.after_evaluation(plan.start(), {"small_test": Result(49, 49)}, 5)
    assert step.state.histories == {} and step.state.evaluations == 1
    assert (
        "the evaluation of level small does not count: 49 of 100 games were played to an end, wanted 50"
        in (step.messages[0])
    )
    nobody = plan.after_evaluation(plan.start(), {"small_test": Result(0, 0)}, 5)
    assert nobody.state.histories == {}, "a success that is no number went into the state"
    assert plan.after_evaluation(plan.start(), {"small_test": Result(50, 50)}, 5).messages == ()


def at(level: str, *trained: str, **fields) -> CurriculumState:
    return CurriculumState(level=level, trained=(*trained, level), **fields)


def test_earlier_levels_are_evaluated_in_every_second_evaluation():
    plan, state = course(levels=LEVELS), at("large", "small", "medium")
    assert plan.due(state, 4) == {} and plan.due(state, 5) == {"large_test": 100}
    state = dataclasses.replace(state, evaluations=1)
    assert list(plan.due(state, 10).items()) == [("small_test", 100), ("medium_test", 100), ("large_test", 100)]
    assert course(step_budget=True).due(CurriculumState(), 5) == {}, "nothing is evaluated without levels"


def test_forgetting_an_earlier_level_is_an_alarm_until_it_comes_back():
    plan, state = course(levels=LEVELS, regression_every=1), at("medium", "small")

    def evaluated(state, small, finished):
        return plan.after_evaluation(
            state, {"small_test": Result(small, 100), "medium_test": Result(50, 100)}, finished
        )

    state = evaluated(state, 90, 5).state
    step = evaluated(state, 70, 10)
    assert [message[:36] for message in step.messages] == ["alarm: level small is being forgotten"[:36]]
    assert plan.metrics(step.state, 10)["curriculum/forgotten_levels"] == 1
    back = evaluated(step.state, 85, 15)
    assert back.messages == () and plan.alarms(back.state) == []


def test_batches_replay_what_was_trained_on_below_and_keep_their_core():
    plan = course(levels=LEVELS, core_split="core", core_share=0.25, replay_share=0.1)

    def kinds(state):
        return Counter((one.split, one.role) for one in plan.plan(state, seed=0, iteration=0, count=40).drawn)

    assert kinds(plan.start()) == {("small_train", "own"): 30, ("core", "core"): 10}
    both = {
        ("large_train", "own"): 26,
        ("core", "core"): 10,
        ("small_train", "replay"): 2,
        ("medium_train", "replay"): 2,
    }
    assert kinds(at("large", "small", "medium")) == both
    assert kinds(at("large")) == {("large_train", "own"): 30, ("core", "core"): 10}, "replays what was never played"
    # Fallen back from large: that is no earlier level.
    assert kinds(at("medium", "small", "large"))[("small_train", "replay")] == 4


def test_training_goes_through_the_train_split_where_nothing_else_is_named():
    drawn = course(step_budget=True).plan(CurriculumState(), seed=0, iteration=0, count=40).drawn
    assert sorted(one.task.seed for one in drawn) == list(range(40)) and {one.split for one in drawn} == {"small_train"}


def test_a_budget_is_given_to_the_game_and_nothing_else_changes():
    plan = course(step_budget=True).plan(CurriculumState(), seed=0, iteration=0, count=40)
    known = {task.id: task for task in SPLITS["small_train"]}
    for task in plan.tasks:
        assert task.payload == {**known[task.id].payload, "max_steps": 8}
        assert task.seed == known[task.id].seed
    assert all(task.payload["max_steps"] == 12 for task in SPLITS["small_train"])


def test_the_budget_follows_training_success_every_ten_iterations():
    """2 → 1.5 → 1.25, its least; the other way 2 → 2.5 → 3.125."""
    state, _, messages = through(course(step_budget=True), {}, until=30, training=0.8)
    assert (state.factor, state.factor_since, state.games) == (1.25, 30, 0)
    assert messages == [
        "curriculum: steps a command 2 → 1.5 (success 0.80 in 200 training games)",
        "curriculum: steps a command 1.5 → 1.25 (success 0.80 in 200 training games)",
    ]
    assert through(course(step_budget=True), {}, until=20, training=0.1)[0].factor == 3.125
    assert through(course(step_budget=True), {}, until=20, training=0.5)[0].factor == 2.0
    assert through(course(step_budget=True), {}, until=9, training=0.8)[0].factor is None
    assert course(step_budget=True).metrics(state, 30) == {"curriculum/step_factor": 1.25}


def test_another_level_has_its_budget_anew():
    wins = {5: {"small": 80, "medium": 50}}
    fields = {"levels": LEVELS, "step_budget": True, "budget_every": 4}
    state, _, messages = through(course(**fields), wins, until=10, training=0.8)
    assert state.level == "medium" and state.factor is None and (state.games, state.factor_since) == (0, 10)
    assert [message.split(" (")[0] for message in messages] == [
        "curriculum: steps a command 2 → 1.5",
        "curriculum: steps a command 1.5 → 1.25",
        "curriculum: level small → medium after 10 iterations of it",
    ]
    assert through(course(**fields), wins, until=13, training=0.8)[0].factor is None, (
        "decided before its four iterations"
    )
    assert through(course(**fields), wins, until=14, training=0.8)[0].factor == 1.5


def test_replays_and_failed_episodes_do_not_count_for_the_budget():
    plan = course(levels=LEVELS, step_budget=True)
    batch = plan.plan(at("medium", "small"), seed=0, iteration=0, count=20)
    own = [group for group, one in enumerate(batch.drawn) if one.role == "own"]
    episodes = played(batch, lambda group, one: one.role == "replay" or group == own[0])
    episodes[own[1]] = episode(own[1], success=True, failed=True)
    state = plan.after_iteration(batch, episodes, 1).state
    assert len(own) == 18 and (state.wins, state.games) == (1, 17)


def test_mastery_for_three_iterations_raises_the_level():
    fields = {"levels": LEVELS, "mastery": "raise_level", "stay": 0}
    _, where, messages = through(course(**fields), {5: dict.fromkeys(NAMES, 50)}, until=7, training=0.85)
    assert where == ["small"] * 2 + ["medium"] * 3 + ["large"] * 2
    assert messages[0] == (
        "curriculum: level small → medium after 3 iterations of it (success above 0.8 in 3 iterations of training)"
    )
    _, where, _ = through(course(**fields), {5: dict.fromkeys(NAMES, 50)}, until=7, training=0.80)
    assert set(where) == {"small"}, "80 % is not above 80 %"
    _, where, _ = through(course(**{**fields, "stay": 4}), {5: dict.fromkeys(NAMES, 50)}, until=9, training=0.85)
    assert where == ["small"] * 3 + ["medium"] * 4 + ["large"] * 2


def test_mastery_tightens_the_budget_sooner_than_its_turn():
    """After 3 iterations 1.5, after 6 1.25, and then it is at its least."""
    fields = {"step_budget": True, "mastery": "tighten_budget"}
    state, _, messages = through(course(**fields), {}, until=9, training=0.85)
    assert (state.factor, state.factor_since, len(messages)) == (1.25, 9, 2)
    assert messages[0].endswith("2 → 1.5 (success above 0.8 in 3 iterations of training)")
    assert through(course(**fields), {}, until=5, training=0.85)[0].factor == 1.5


def test_a_streak_is_broken_by_play_and_not_by_its_absence():
    assert streak_after(2, [True] * 5, above=0.8) == 3
    assert streak_after(2, [True] * 4 + [False], above=0.8) == 0
    assert streak_after(2, [], above=0.8) == 2


def test_a_mastered_part_of_a_mixture_is_sampled_less_until_it_is_not():
    mixture = {"small_train": 1.0, "medium_train": 1.0}
    plan = course(mixture=mixture, mastery="sample_less")
    state, shares = plan.start(), []
    for iteration in range(8):
        batch = plan.plan(state, seed=0, iteration=iteration, count=30)
        shares.append(Counter(one.split for one in batch.drawn)["small_train"] / 30)
        mastered = iteration < 5
        episodes = played(batch, lambda _, one, mastered=mastered: one.split == "small_train" and mastered)
        state = plan.after_iteration(batch, episodes, iteration + 1).state
    assert shares == pytest.approx([1 / 2] * 3 + [1 / 3] * 3 + [1 / 2] * 2)
    assert plan.metrics(state, 8) == pytest.approx({f"curriculum/share_{split}": 0.5 for split in mixture})


def test_metrics_tell_success_where_it_was_just_measured():
    plan = course(levels=LEVELS, step_budget=True)
    state = plan.after_evaluation(plan.start(), {"small_test": Result(60, 100)}, 5).state
    wanted = {"curriculum/level": 0, "curriculum/forgotten_levels": 0, "curriculum/step_factor": 2}
    assert plan.metrics(state, 5) == {**wanted, "curriculum/success_small": 0.6}
    assert plan.metrics(state, 6) == wanted


def test_a_batch_tells_success_by_role():
    batch = course(levels=LEVELS, core_split="core").plan(at("medium", "small"), seed=0, iteration=0, count=40)
    episodes = played(batch, lambda _, one: one.role != "own")
    assert batch.metrics(episodes) == {
        "curriculum/own_success": 0, "curriculum/core_success": 1, "curriculum/replay_success": 1,
    }  # fmt: skip
    assert course(step_budget=True).plan(CurriculumState(), seed=0, iteration=0, count=4).metrics([]) == {}


EVERYTHING = {
    "levels": LEVELS, "core_split": "core", "step_budget": True, "budget_every": 3, "mastery": "raise_level", "stay": 4,
    "every": 2, "confirmations": 1,
}  # fmt: skip


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from([0.0, 0.3, 0.85, 1.0])), min_size=1, max_size=25))
def test_a_run_resumed_after_every_iteration_is_the_unbroken_run(outcomes):
    def run(saved: bool):
        plan = course(**EVERYTHING)
        state, seen = plan.start(), []
        for iteration, (wins, training) in enumerate(outcomes):
            batch = plan.plan(state, seed=3, iteration=iteration, count=10)
            episodes = played(batch, lambda group, _, training=training: group < 10 * training)
            if saved:  # nor does it matter in which order episodes end, or whether a new process asks the expert
                episodes, plan = episodes[::-1], course(**EVERYTHING)
            step = plan.after_iteration(batch, episodes, iteration + 1)
            results = {split: Result(wins, n) for split, n in plan.due(step.state, iteration + 1).items()}
            after = plan.after_evaluation(step.state, results, iteration + 1) if results else step
            state = plan.start(json.loads(json.dumps(after.state.as_dict()))) if saved else after.state
            seen.append((batch.tasks, after.messages, plan.metrics(state, iteration + 1), state))
        return seen

    assert run(saved=True) == run(saved=False)


def test_no_task_of_a_split_comes_twice_before_all_came_whatever_the_level():
    plan, drawn = course(**EVERYTHING), Counter()
    state = plan.start()
    for iteration in range(30):
        batch = plan.plan(state, seed=0, iteration=iteration, count=10)
        drawn.update((one.split, one.task.id) for one in batch.drawn)
        for split in {one.split for one in batch.drawn}:
            counts = [drawn[split, task.id] for task in SPLITS[split]]
            assert max(counts) - min(counts) <= 1
        state = plan.after_iteration(batch, played(batch, lambda *_, it=iteration: it % 7 > 1), iteration + 1).state
    assert len(state.trained) == 3


def test_the_expert_is_asked_once_a_task():
    shelf = Shelf(SPLITS)
    plan = open_course(CurriculumSection(step_budget=True), "core", shelf)
    assert plan is not None and shelf.asked == [], "no game was made yet"
    for iteration in range(3):
        plan.plan(CurriculumState(), seed=0, iteration=iteration, count=20)
    assert sorted(shelf.asked) == sorted(task.id for task in SPLITS["core"])


def test_no_expert_is_one_error_that_names_the_task():
    plan = course(length=None, step_budget=True)
    with pytest.raises(ConfigError, match=r"no expert for small_train/3, of whose way the budget is a multiple; set "):
        plan.require_experts(SPLITS["small_train"][3:])
    with pytest.raises(ConfigError, match=r"no expert for small_train/"):
        plan.plan(plan.start(), seed=0, iteration=0, count=1)
    course(length=None, core_split="core").require_experts(SPLITS["small_train"])


def test_one_task_of_every_split_that_was_made_is_asked_about():
    shelf = Shelf(SPLITS)
    plan = open_course(CurriculumSection(levels=LEVELS, core_split="core", step_budget=True), "small_train", shelf)
    assert plan is not None
    plan.require_experts([*SPLITS["small_train"][5:], *SPLITS["core"], *SPLITS["small_test"]])
    assert shelf.asked == ["small_train/5", "core/0"], "asked about a game that was not made, or is not trained on"
