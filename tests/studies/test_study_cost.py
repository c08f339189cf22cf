"""What a study says it will take, before and while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxmtrl.studies.cost import as_lines, cost_of
from jaxmtrl.studies.grid import Cell, Smoke, Study, runs_of


@pytest.fixture
def study() -> Study:
    cells = {"a": Cell(), "longer": Cell()}
    smoke = Smoke(cells=["a"])
    return Study(name="s", about="x", base="b", minutes_per_run=10, minutes_before=7, smoke=smoke, cells=cells)


def test_before_anything_ran_the_file_is_believed(study, tmp_path):
    costs = cost_of(study, runs_of(study, Path("b"), tmp_path), {})
    assert [(cost.to_do, cost.minutes_left, cost.known_from) for cost in costs] == [(3, 30.0, "as the file says")] * 2
    lines = as_lines(study, costs, jobs=2)
    assert lines[0] == "s: 2 cells, 3 seeds each, 6 runs"
    assert lines[-2] == "left: 60 min of training after 7 min for games that are not built yet"
    assert lines[-1].startswith("--jobs 2: 30 min at best")


def test_what_ran_is_believed_more_and_a_cell_most_of_itself(study, tmp_path):
    runs = runs_of(study, Path("b"), tmp_path)  # a_s0, longer_s0, a_s1, …
    begun = runs[2].folder
    begun.mkdir()
    (begun / "config.yaml").write_text("")
    costs = cost_of(study, runs, {runs[0]: {"wall_s": 240.0}})
    assert [(c.done, c.begun, c.to_do, c.minutes) for c in costs] == [(1, 1, 1, 4.0), (0, 0, 3, 4.0)]
    assert [cost.known_from for cost in costs] == ["measured", "as the other cells"]
    assert sum(cost.minutes_left for cost in costs) == 2 * 4 + 3 * 4


def test_when_all_is_done_nothing_is_left(study, tmp_path):
    runs = runs_of(study, Path("b"), tmp_path)
    costs = cost_of(study, runs, {run: {"wall_s": 60.0} for run in runs})
    assert as_lines(study, costs, jobs=4)[-1] == "left: nothing to train"


def test_hours_are_told_in_hours(study, tmp_path):
    study = Study(name="s", about="x", base="b", minutes_per_run=60, smoke=study.smoke, cells=study.cells)
    lines = as_lines(study, cost_of(study, runs_of(study, Path("b"), tmp_path), {}), jobs=1)
    assert "6.0 h of training" in lines[-1]
