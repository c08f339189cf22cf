"""What is made before a run begins is all that it may play, and no more than it must be."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from played import Result, Shelf, played, tasks

from jaxmtrl.config.curriculum_section import CurriculumSection, LevelSection
from jaxmtrl.curriculum.course import Course
from jaxmtrl.curriculum.opening import open_course

LEVELS = {name: LevelSection(train=name, evaluate=f"{name}_test") for name in ("a", "b", "c")}
SPLITS = {name: tasks(name, 500) for name in ("a", "b", "c", "core")}
SPLITS |= {f"{name}_test": tasks(f"{name}_test", 100) for name in ("a", "b", "c")}


def course(**fields) -> Course:
    found = open_course(CurriculumSection(**fields), "a", Shelf(SPLITS))
    assert found is not None
    return found


FIELDS = st.one_of(
    st.fixed_dictionaries(
        {
            "levels": st.just(LEVELS),
            "start": st.sampled_from(["", "b", "c"]),
            "every": st.integers(1, 4),
            "confirmations": st.integers(1, 3),
            "stay": st.integers(0, 5),
            "mastery": st.sampled_from(["none", "raise_level"]),
            "mastery_iterations": st.integers(1, 3),
            "core_split": st.sampled_from(["", "core", "a"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "mixture": st.just({"a": 1.0, "b": 3.0}),
            "mastery": st.sampled_from(["none", "sample_less"]),
            "core_split": st.sampled_from(["", "core", "b"]),
        }
    ),
)


@settings(max_examples=40)
@given(FIELDS, st.integers(1, 20), st.integers(0, 2), st.integers(1, 15), st.integers(0, 1000))
def test_whatever_is_played_was_in_reach(fields, count, warmup, iterations, luck):
    plan, rng = course(**fields), random.Random(luck)
    reach = {task.id for task in plan.in_reach(seed=7, count=count, warmup=warmup, iterations=iterations)}
    examined = {task.id for task in plan.evaluated(iterations)}
    state = plan.start()
    for iteration in range(warmup):
        batch = plan.plan(state, seed=7, iteration=iteration, count=count)
        assert {task.id for task in batch.tasks} <= reach
        state = batch.state
    for iteration in range(iterations):
        batch = plan.plan(state, seed=7, iteration=iteration, count=count)
        assert {task.id for task in batch.tasks} <= reach
        won = rng.random() < 0.6
        state = plan.after_iteration(batch, played(batch, lambda *_, won=won: won), iteration + 1).state
        due = plan.due(state, iteration + 1) if iteration + 1 < iterations else {}
        assert {task.id for split, n in due.items() for task in SPLITS[split][:n]} <= examined
        if due:
            wins = rng.choice([10, 90])
            state = plan.after_evaluation(state, {split: Result(wins, 100) for split in due}, iteration + 1).state


def split_counts(found) -> dict[str, int]:
    counts: dict[str, int] = {}
    for task in found:
        name = task.id.split("/")[0]
        counts[name] = counts.get(name, 0) + 1
    return counts


def test_a_level_that_no_run_of_that_length_comes_to_is_not_made():
    """With stay 10 the second level is come to after 10 iterations at the earliest, the third after 20."""
    plan = course(levels=LEVELS)
    assert split_counts(plan.in_reach(seed=0, count=8, warmup=2, iterations=10)) == {"a": 96}
    assert split_counts(plan.in_reach(seed=0, count=8, warmup=2, iterations=15)) == {"a": 136, "b": 40}
    assert split_counts(plan.evaluated(15)) == {"a_test": 100, "b_test": 100}
    assert split_counts(plan.in_reach(seed=0, count=8, warmup=2, iterations=1000)) == {"a": 500, "b": 500, "c": 500}


def test_a_mixture_makes_its_shares_and_the_splits_come_by_turns():
    plan = course(mixture={"a": 1.0, "b": 3.0}, core_split="core")
    found = plan.in_reach(seed=0, count=16, warmup=0, iterations=2)
    assert split_counts(found) == {"a": 6, "b": 18, "core": 8}
    assert [task.id.split("/")[0] for task in found[:6]] == ["a", "b", "core"] * 2


def test_a_level_may_have_all_that_a_small_core_leaves_in_one_batch():
    """A quarter of three tasks is none in some batches."""
    plan = course(levels=LEVELS, core_split="core")
    found = plan.in_reach(seed=0, count=3, warmup=0, iterations=1)
    assert split_counts(found) == {"a": 3, "core": 1}
