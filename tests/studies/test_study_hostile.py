"""A study that would not be trained as it is written, or whose pages could not be, is refused before the first run."""

from __future__ import annotations

import pytest
from test_study_reading import HEAD, has, mistakes_of

from jaxmtrl.study import main


@pytest.mark.parametrize("field", ["run.seed: 5", "run.name: x", "run.dir: /etc", "run.dir.x: 1"])
def test_what_a_study_gives_to_its_runs_cannot_be_set(tmp_path, field):
    name = field.partition(":")[0]
    assert has(mistakes_of(HEAD + f"cells: {{a: {{set: {{{field}}}}}}}\n", tmp_path), f"cells.a.set: got {name}")
    smoke = HEAD.replace("cells: [a]", f"cells: [a], set: {{{field}}}") + "cells: {a: {}}\n"
    assert has(mistakes_of(smoke, tmp_path), f"smoke.set: got {name}")
    axes = HEAD.replace("[a]", "[b]") + f"axes: {{x: {{b: {{{field}}}}}}}\n"
    assert has(mistakes_of(axes, tmp_path), f"axes.x.b: got {name}")


def test_a_cell_that_begins_with_another_names_no_weights_of_its_own(tmp_path):
    text = HEAD + "cells: {a: {}, b: {after: a, set: {model.from_pretrained: x}}}\n"
    assert has(mistakes_of(text, tmp_path), "cells.b.set: got model.from_pretrained with after 'a'")


def test_cells_that_say_the_same_are_refused(tmp_path):
    text = HEAD + "cells: {a: {set: {rl.iterations: 3}}, b: {}, c: {set: {rl.iterations: 3}}}\n"
    assert mistakes_of(text, tmp_path) == [
        "cells.c: says the same as a, and would be trained alike; change or remove one"
    ]


def test_levels_whose_names_run_together_lose_no_cell(tmp_path):
    axes = (
        "axes: {x: {a: {rl.iterations: 1}, a_b: {rl.iterations: 2}}, y: {b_c: {sft.epochs: 1}, c: {sft.epochs: 2}}}\n"
    )
    found = mistakes_of(HEAD.replace("[a]", "[a_c]") + axes, tmp_path)
    assert found == ["axes: two combinations of levels are named a_b_c; rename a level"]


def test_a_cell_after_itself_is_told_so(tmp_path):
    assert has(mistakes_of(HEAD + "cells: {a: {after: a}}\n", tmp_path), "'a' is the cell itself; name one before it")


def test_a_seed_that_no_run_takes_is_refused_in_the_file(tmp_path):
    found = mistakes_of(HEAD + "seeds: [0, 1, 4294967296]\ncells: {a: {}}\n", tmp_path)
    assert has(found, "seeds[2]: got 4294967296", "< 2147483648")
    smoke = HEAD.replace("cells: [a]", "cells: [a], seeds: [1, 1]") + "cells: {a: {}}\n"
    assert has(mistakes_of(smoke, tmp_path), "smoke.seeds: [1, 1] names one twice")


def test_a_section_that_is_wanted_is_said_to_have_fields(tmp_path):
    found = mistakes_of("name: x\nclaims: 5\n", tmp_path)
    assert has(found, "smoke: missing, wanted fields") and has(found, "claims: got 5, wanted list of fields")


def test_folders_that_cannot_be_are_refused_before_anything_is_trained(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    command = ["--config", "any.yaml", "--runs", str(file / "deep" / "er"), "--out", str(file)]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert f"--runs: got {file}/deep/er, and {file} is no folder" in said and f"--out: got {file}" in said


@pytest.mark.parametrize("jobs", ["0", "-1", "²", "9" * 5000, "x"])
def test_jobs_that_are_no_number_are_refused_in_words(jobs, capsys):
    with pytest.raises(SystemExit):
        main(["--jobs", jobs])
    assert "wanted a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_what_is_no_text_file_is_told_what_to_give(tmp_path, content, capsys):
    path = tmp_path if content is None else tmp_path / "study.yaml"
    if content is not None:
        path.write_bytes(content)
    assert main(["--config", str(path), "--dry-run"]) == 2
    assert "cannot be read as a text file" in capsys.readouterr().err
