"""The order of training tasks: each once before any again, and a function of its seed alone."""

from __future__ import annotations

from jaxmtrl.curriculum.order import task_batch
from jaxmtrl.types import Task


def test_every_task_comes_once_before_any_comes_again():
    tasks = [Task(id=str(n), seed=n) for n in range(10)]
    drawn = [task.id for iteration in range(5) for task in task_batch(tasks, seed=(0,), first=4 * iteration, count=4)]
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == sorted(task.id for task in tasks)
    assert drawn[:10] != drawn[10:], "the second pass came in the order of the first"


def test_a_batch_larger_than_the_split_takes_tasks_again():
    tasks = [Task(id=str(n), seed=n) for n in range(3)]
    drawn = [task.id for task in task_batch(tasks, seed=(0,), first=0, count=7)]
    assert sorted(drawn[:3]) == sorted(drawn[3:6]) == ["0", "1", "2"] and len(drawn) == 7


def test_other_seeds_draw_other_orders():
    tasks = [Task(id=str(n), seed=n) for n in range(50)]
    orders = {tuple(t.id for t in task_batch(tasks, seed=(a, b), first=0, count=50)) for a in (0, 1) for b in (1, 3)}
    assert len(orders) == 4


def test_a_batch_is_a_piece_of_the_order_wherever_it_begins():
    tasks = [Task(id=str(n), seed=n) for n in range(5)]
    whole = task_batch(tasks, seed=(4,), first=0, count=23)
    for first in range(12):
        for count in range(11):
            assert task_batch(tasks, seed=(4,), first=first, count=count) == whole[first : first + count]
