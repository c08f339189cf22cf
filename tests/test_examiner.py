"""What is evaluated on the way, and when."""

from __future__ import annotations

from typing import Any

import pytest

from jaxmtrl.config.sections import Config, EnvSection, EvaluationSection, RunSection
from jaxmtrl.examiner import Examiner


@pytest.mark.parametrize(
    ("every", "splits", "finished"),
    [(5, {"heldout": 100, "harder": 50}, [5, 10]), (0, {"heldout": 100}, []), (5, {}, [])],
)
def test_the_first_split_is_due_after_every_so_many_iterations(every, splits, finished):
    evaluation = EvaluationSection(splits=splits, every=every)
    config = Config(run=RunSection(name="a"), env=EnvSection(factory="p.m:make"), evaluation=evaluation)
    nothing: Any = None
    examiner = Examiner(config, nothing, nothing, nothing)
    assert [count for count in range(1, 12) if examiner.due(count)] == finished
    assert all(examiner.due(count) == {"heldout": 100} for count in finished)
