"""What a batch is made of: shares in whole tasks, and one endless order for every split."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played import tasks

from jaxmtrl.curriculum.mixture import draw, first_tasks, portions, whole_tasks


def by_split(parts):
    return {(part.split, part.role): part.share for part in parts}


def test_core_and_replay_come_first_and_the_rest_goes_by_weight():
    parts = portions({"a": 3, "b": 1}, core="c", core_share=0.2, replayed=["x", "y"], replay_share=0.1)
    wanted = {
        ("a", "own"): 0.525,
        ("b", "own"): 0.175,
        ("c", "core"): 0.2,
        ("x", "replay"): 0.05,
        ("y", "replay"): 0.05,
    }
    assert by_split(parts) == pytest.approx(wanted)
    assert by_split(portions({"a": 2.0}, core="", core_share=0.25, replay_share=0.1)) == {("a", "own"): 1.0}
    assert by_split(portions({"a": 1.0}, core="c", core_share=0.0)) == {("a", "own"): 1.0}


def test_whole_shares_are_the_same_in_every_batch():
    for iteration in range(50):
        assert whole_tasks([0.65, 0.25, 0.1], count=20, iteration=iteration) == [13, 5, 2]


def test_a_tenth_of_four_tasks_is_a_task_in_every_few_batches():
    numbers = [whole_tasks([0.9, 0.1], count=4, iteration=iteration) for iteration in range(100)]
    assert {tuple(n) for n in numbers} == {(4, 0), (3, 1)}
    assert abs(sum(n[1] for n in numbers) - 40) <= 1
    gaps = [i for i, n in enumerate(numbers) if n[1]]
    assert max(b - a for a, b in zip(gaps, gaps[1:])) <= 5


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
    st.integers(1, 70),
    st.integers(0, 10_000),
    st.integers(1, 400),
)
def test_each_part_has_its_share_rounded_up_or_down_and_all_of_it_over_time(weights, count, first, length):
    shares = [weight / sum(weights) for weight in weights]
    batches = [whole_tasks(shares, count=count, iteration=first + i) for i in range(length)]
    for numbers in batches:
        assert sum(numbers) == count
        assert all(abs(number - share * count) < 1 for number, share in zip(numbers, shares))
    for part, share in enumerate(shares):  # a golden rotation is never far behind: 5 covers these lengths
        assert abs(sum(numbers[part] for numbers in batches) - share * count * length) < 5


SPLITS = {"a": tasks("a", 7), "b": tasks("b", 30), "c": tasks("c", 5)}


def batches(count: int, iterations: int, *, seed: int = 0, through_json: bool = False):
    parts = portions({"a": 1, "b": 2}, core="c", core_share=0.25)
    drawn, found = {}, []
    for iteration in range(iterations):
        batch, drawn = draw(parts, SPLITS, drawn, seed=seed, iteration=iteration, count=count)
        drawn = json.loads(json.dumps(drawn)) if through_json else drawn
        found.append(batch)
    return found


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 3))
def test_no_task_comes_twice_before_all_of_its_split_came(count, iterations, seed):
    everything = [one for batch in batches(count, iterations, seed=seed) for one in batch]
    for split, its_tasks in SPLITS.items():
        drawn = [one.task.id for one in everything if one.split == split]
        assert max(Counter(drawn).values(), default=0) - (min(Counter(drawn).values()) if len(drawn) else 0) <= 1
        assert len(set(drawn)) == min(len(drawn), len(its_tasks))


def test_a_split_with_two_roles_has_one_order():
    parts = portions({"b": 1}, core="b", core_share=0.5)
    batch, after = draw(parts, SPLITS, {"b": 4}, seed=0, iteration=0, count=20)
    assert Counter(one.role for one in batch) == {"own": 10, "core": 10}
    wanted = first_tasks("b", SPLITS["b"], seed=0, first=4, count=20)
    assert after == {"b": 24} and {one.task.id for one in batch} == {task.id for task in wanted}
    assert len({one.task.id for one in batch}) == 20


def test_batches_are_a_function_of_the_seed_and_the_iteration():
    assert batches(12, 6) == batches(12, 6, through_json=True)
    assert batches(12, 6) != batches(12, 6, seed=1)
    roles = [one.role for one in batches(40, 1)[0]]
    assert sum(a != b for a, b in zip(roles, roles[1:])) > 1, "the parts of a batch lie one after the other"


def test_splits_of_one_size_have_orders_of_their_own():
    one, other = (first_tasks(name, tasks(name, 30), seed=0, first=0, count=30) for name in ("p", "q"))
    assert [task.seed for task in one] != [task.seed for task in other]
