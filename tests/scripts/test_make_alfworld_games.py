"""The tree of game files is what ALFWorld reads; without alfworld the script says what to install."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from jaxmtrl.envs.alfworld.generator import complexity, generate

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_alfworld_games.py"
spec = importlib.util.spec_from_file_location("make_alfworld_games", SCRIPT)
assert spec and spec.loader
make_alfworld_games = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_alfworld_games)


@pytest.fixture
def stand_in(tmp_path, monkeypatch) -> Path:
    """A folder that is found as the package alfworld; importing it would fail."""
    package = tmp_path / "site" / "alfworld"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    (package / "data" / "alfred.pddl").write_text("(define (domain alfred))")
    (package / "data" / "alfred.twl2").write_text("Your task is to: UNKNOWN GOAL.")
    monkeypatch.delitem(sys.modules, "alfworld", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))
    return package


def run(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["make_alfworld_games.py", *arguments])
    return make_alfworld_games.main()


def test_the_tree_that_alfworld_walks(tmp_path, monkeypatch, capsys, stand_in):
    arguments = ["--out", str(tmp_path / "games"), "--complexity", "small", "--count", "3", "--first-seed", "7"]
    assert run(monkeypatch, *arguments, "--kinds", "look_at_obj_in_light", "pick_two_obj_and_place") == 0
    root = tmp_path / "games" / "json_2.1.1" / "train"
    assert f"wrote 3 games to {root}" in capsys.readouterr().out
    kinds = ("look_at_obj_in_light", "pick_two_obj_and_place")
    games = [generate(complexity("small", kinds=kinds), seed) for seed in (7, 8, 9)]
    assert {str(path.parent.relative_to(root)) for path in root.rglob("traj_data.json")} == {game.id for game in games}
    for game in games:
        page = json.loads((root / game.id / "game.tw-pddl").read_text())
        assert page["pddl_problem"] == game.problem and page["solvable"] is True
        assert page["pddl_domain"] == "(define (domain alfred))" and page["walkthrough"] == list(game.walkthrough)
        assert page["grammar"] == f"Your task is to: {game.task}."
        trial = json.loads((root / game.id / "traj_data.json").read_text())
        assert trial["task_type"] == game.kind
        assert trial["turk_annotations"]["anns"][0]["task_desc"] == game.task
        _, target, _, place, scene = game.id.partition("/")[0].split("-")
        assert trial["pddl_params"]["object_target"] == target
        which = "toggle_target" if game.kind == "look_at_obj_in_light" else "parent_target"
        assert trial["pddl_params"][which] == place and trial["scene"]["floor_plan"] == f"FloorPlan{scene}"


def test_unseen_scenes_get_the_folder_of_that_name(tmp_path, monkeypatch, stand_in):
    assert run(monkeypatch, "--out", str(tmp_path), "--scenes", "unseen", "--count", "1", "--steps", "4-6") == 0
    (page,) = (tmp_path / "json_2.1.1" / "valid_unseen").rglob("game.tw-pddl")
    assert 4 <= len(json.loads(page.read_text())["walkthrough"]) <= 6


def test_without_alfworld(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(monkeypatch, "--out", str(tmp_path)) == 2
    assert "alfworld is not installed; `pip install --no-deps alfworld==0.4.2`" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_alfworld_without_its_files(tmp_path, monkeypatch, capsys, stand_in):
    (stand_in / "data" / "alfred.twl2").write_text("another grammar")
    assert run(monkeypatch, "--out", str(tmp_path / "games")) == 2
    assert "the grammar has no 'UNKNOWN GOAL'; install alfworld==0.4.2" in capsys.readouterr().err
    (stand_in / "data" / "alfred.twl2").unlink()
    assert run(monkeypatch, "--out", str(tmp_path / "games")) == 2
    assert "a file of alfworld is missing" in capsys.readouterr().err


def test_a_type_that_is_none(tmp_path, monkeypatch, capsys, stand_in):
    assert run(monkeypatch, "--out", str(tmp_path / "games"), "--kinds", "pick") == 2
    assert "kinds: 'pick' is no task type" in capsys.readouterr().err
