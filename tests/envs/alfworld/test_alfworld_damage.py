"""Published games that are damaged in any part: one error that names the file, never an exception of Python's own."""

from __future__ import annotations

import json
import lzma
import zipfile
from pathlib import Path

import pytest

from jaxmtrl.envs.alfworld import make
from jaxmtrl.envs.alfworld.games import AlfworldData
from jaxmtrl.envs.alfworld.mixes import shares
from jaxmtrl.envs.alfworld.pddl import read_goal
from jaxmtrl.envs.alfworld.rows import read_row
from jaxmtrl.errors import ConfigError, EnvironmentFailure

GAME = "pick_and_place_simple-Mug-None-Desk-300/trial_a"
GRAMMAR = 'move {o} to {r} "Your task is to: put a mug in desk."'
ROW = {"id": GAME, "type": "pick_and_place_simple", "task": "put a mug in desk", "pddl_problem": "p"}


def packed(folder: Path, lines: list[str]) -> AlfworldData:
    folder.mkdir(exist_ok=True)
    (folder / "valid_seen.jsonl.xz").write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))
    return AlfworldData(folder, folder / "cache")


@pytest.mark.parametrize(
    "line",
    ["[1, 2]", "5", "null", '"id"', "[" * 100_000, "", json.dumps({"id": "a"})]
    + [json.dumps({**ROW, name: value}) for name in ROW for value in (None, 5, ["x"])]
    + [json.dumps({**ROW, "id": name}) for name in ("", "a\0b", "kinds.json")]
    + [json.dumps({**ROW, "task": task}) for task in ("", " ", "put\n\na mug")]
    + [json.dumps({**ROW, "walkthrough": commands}) for commands in (5, "look", ["look", None])],
)
def test_a_damaged_line_of_a_packed_split_is_named_and_leaves_nothing(tmp_path, line):
    with pytest.raises(EnvironmentFailure, match="valid_seen.jsonl.xz is damaged .line 2: .*copy it anew"):
        packed(tmp_path, [json.dumps({**ROW, "id": "first"}), line]).games("valid_seen")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_game_that_stands_there_twice_is_damage(tmp_path):
    with pytest.raises(EnvironmentFailure, match="line 2: the id 'pick.*' is given twice"):
        packed(tmp_path, [json.dumps(ROW)] * 2).games("valid_seen")


def kinds_gone(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "y")


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:40]),
        lambda path: path.write_bytes(path.read_bytes()[:60] + b"\xff" * 60 + path.read_bytes()[120:]),
        kinds_gone,
    ],
)
def test_a_damaged_copy_in_the_cache_is_named_with_the_cure(tmp_path, damage):
    rows = [json.dumps({**ROW, "id": f"{GAME}{number}", "pddl_problem": f"{number}" * 99}) for number in range(3)]
    data = packed(tmp_path, rows)
    with pytest.warns(UserWarning):
        assert len(data.games("valid_seen")) == 3
    damage(next((tmp_path / "cache").glob("*.zip")))
    with pytest.raises(EnvironmentFailure, match=r"\.zip is damaged .*delete it, and it is made anew"):
        for number in range(3):
            data.games("valid_seen") and data.load("valid_seen", f"{GAME}{number}")


@pytest.mark.parametrize(
    "content",
    ["[1]", "5", "null", "[" * 100_000]
    + [json.dumps({"solvable": True, "pddl_problem": "p", "grammar": wrong}) for wrong in (None, 5, "hello")]
    + [json.dumps({"solvable": True, "pddl_problem": 5, "grammar": GRAMMAR})]
    + [json.dumps({"solvable": True, "pddl_problem": "p", "grammar": GRAMMAR, "walkthrough": 5})],
)
def test_a_damaged_game_file_is_one_error_with_its_path(tmp_path, content):
    folder = tmp_path / "json_2.1.1" / "valid_seen" / GAME
    folder.mkdir(parents=True)
    (folder / "game.tw-pddl").write_text(content)
    with pytest.raises(EnvironmentFailure, match="trial_a/game.tw-pddl"):
        AlfworldData(tmp_path, tmp_path / "cache").load("valid_seen", GAME)


def test_a_link_to_nowhere_is_one_error_with_its_path(tmp_path):
    folder = tmp_path / "json_2.1.1" / "valid_seen" / GAME
    folder.mkdir(parents=True)
    (folder / "game.tw-pddl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(EnvironmentFailure, match="trial_a/game.tw-pddl cannot be read .No such file"):
        AlfworldData(tmp_path, tmp_path / "cache").games("valid_seen")


def test_a_problem_that_cannot_be_played_names_its_game(tmp_path):
    packed(tmp_path, [json.dumps(ROW)])
    options = {"data": str(tmp_path), "cache_dir": str(tmp_path / "cache"), "splits": {"s": {"source": "valid_seen"}}}
    environment = make(options)
    with pytest.warns(UserWarning):
        tasks = environment.split("s").tasks
    with pytest.raises(EnvironmentFailure, match="The game pick_.*/trial_a cannot be played: .*no section"):
        environment.prepare(tasks, lambda done, total: None)


def test_a_goal_of_many_brackets_is_refused_before_they_fill_the_stack():
    with pytest.raises(EnvironmentFailure, match="more than 50 brackets"):
        read_goal("(and " * 5000 + ")" * 5000)


def test_a_row_says_all_its_wrong_parts_at_once():
    with pytest.raises(ValueError, match="got id 5, task None, wanted text"):
        read_row('{"id": 5, "task": null, "type": "x"}', ("id", "task", "type"))


def test_weights_too_large_to_be_added_up_still_have_ratios():
    assert shares({"pick_and_place_simple": 1e308, "others": 1e308})["pick_and_place_simple"] == 0.5


def test_more_games_than_any_machine_holds_are_refused():
    with pytest.raises(ConfigError, match="splits.a.count: got 1000000000000, wanted .* <= 1000000"):
        make({"splits": {"a": {"first_seed": 1, "count": 10**12}}})


def test_a_cache_path_that_no_system_has_is_one_error(tmp_path):
    packed(tmp_path, [json.dumps(ROW)])
    with pytest.raises(EnvironmentFailure, match="name another cache_dir"):
        AlfworldData(tmp_path, "\0").games("valid_seen")
