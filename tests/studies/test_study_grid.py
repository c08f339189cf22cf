"""Grids become runs: combined axes, one folder a run, overrides that YAML reads back unchanged."""

from __future__ import annotations

import re
from pathlib import Path

from jaxmtrl.config.yaml_format import read_yaml
from jaxmtrl.studies.grid import Cell, Smoke, Study, as_overrides, runs_of

BASE, ROOT = Path("base.yaml"), Path("runs")


def study(**fields) -> Study:
    smoke = fields.pop("smoke", Smoke(cells=["a"]))
    return Study(name="s", about="x", base="base.yaml", minutes_per_run=1, smoke=smoke, **fields)


def test_axes_are_combined_the_last_one_fastest():
    made = study(
        axes={"level": {"easy": {"x.a": 1}, "hard": {"x.a": 2}}, "size": {"small": {}, "large": {"x.b": 3, "x.a": 9}}}
    )
    assert {name: cell.set for name, cell in made.grid.items()} == {
        "easy_small": {"x.a": 1},
        "easy_large": {"x.a": 9, "x.b": 3},
        "hard_small": {"x.a": 2},
        "hard_large": {"x.a": 9, "x.b": 3},
    }


def test_all_cells_of_a_seed_come_before_the_next_seed():
    made = study(cells={"a": Cell(), "b": Cell()}, seeds=[3, 4, 5])
    names = [run.name for run in runs_of(made, BASE, ROOT)]
    assert names == ["a_s3", "b_s3", "a_s4", "b_s4", "a_s5", "b_s5"]


def test_a_cells_field_is_stronger_than_the_studys_and_smoke_strongest():
    made = study(
        set={"x.a": 1, "x.b": 1, "x.c": 1},
        cells={"a": Cell(set={"x.b": 2, "x.c": 2})},
        smoke=Smoke(cells=["a"], seeds=[7], set={"x.c": 3}),
    )
    full, small = runs_of(made, BASE, ROOT)[0], runs_of(made, BASE, ROOT, smoke=True)[0]
    assert full.overrides == ("x.a=1", "x.b=2", "x.c=2", 'run.dir="runs"', 'run.name="a_s0"', "run.seed=0")
    assert small.overrides[:3] == ("x.a=1", "x.b=2", "x.c=3") and small.seed == 7


def test_a_whole_that_is_set_later_replaces_a_part_that_was_set_earlier():
    made = study(set={"x.a": {}, "x.a.b": 1}, cells={"a": Cell(set={"x.a": {"b": 2}})})
    assert runs_of(made, BASE, ROOT)[0].overrides[:2] == ("x.a.b=1", 'x.a={"b": 2}')


def test_a_cell_begins_with_the_policy_of_its_own_seed():
    made = study(cells={"a": Cell(), "b": Cell(after="a", policy="sft")})
    run = next(run for run in runs_of(made, BASE, ROOT) if run.name == "b_s2")
    assert run.before == ROOT / "a_s2" and run.policy == "sft"
    assert run.exported == ROOT / "exported" / "a_s2_sft"
    assert 'model.from_pretrained="runs/exported/a_s2_sft"' in run.overrides


def test_a_smoke_grid_brings_what_its_cells_begin_with():
    cells = {"a": Cell(), "b": Cell(after="a"), "c": Cell(after="b"), "d": Cell()}
    made = study(cells=cells, smoke=Smoke(cells=["c"]))
    assert [run.cell for run in runs_of(made, BASE, ROOT, smoke=True)] == ["a", "b", "c"]


def test_overrides_are_read_back_as_they_were_written():
    fields = {
        "a.whole": 3, "a.small": 1e-05, "a.text": "no", "a.number_like": "1e-4", "a.flag": True, "a.none": None,
        "a.nested": {"x": [1, 2.5], "b": {"1": "y: z"}}, "a.quoted": 'it is "so"', "a.empty": {},
    }  # fmt: skip
    back = {}
    for override in as_overrides(fields):
        path, _, text = override.partition("=")
        back[path], mistakes = read_yaml(text)
        assert not mistakes
    assert back == fields


def test_every_run_has_a_name_that_a_run_may_have():
    made = study(axes={"x": {"a.1": {}, "b-2": {}}, "y": {"7B": {}}})
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", run.name) for run in runs_of(made, BASE, ROOT))
