"""Games on disk: the folders that alfworld-download fills, the packed form, and what is left out or damaged."""

from __future__ import annotations

import json
import lzma
import os
import time
import warnings
from pathlib import Path

import pytest
from small_room import kitchen

from jaxmtrl.envs.alfworld import games
from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import SPLIT_SIZES, AlfworldData
from jaxmtrl.envs.alfworld.naming import CLASSIC, MODERN
from jaxmtrl.envs.alfworld.packed import PackedSplit
from jaxmtrl.envs.alfworld.problem import read_problem
from jaxmtrl.errors import EnvironmentFailure

SHARED = Path(__file__).parents[4] / "shared" / "data" / "alfworld"
HEAT = "pick_heat_then_place_in_recep-Apple-None-SideTable-1"
SIMPLE = "pick_and_place_simple-Mug-None-Shelf-2"

pytestmark = pytest.mark.filterwarnings("ignore:ALFWorld's .* games under:UserWarning")


def grammar(task: str, older: bool) -> str:
    put, place = ("put {o} in/on {r}", "lend") if older else ("move {o} to {r}", "r")
    rules = json.dumps(
        {"task": [{"rhs": f"Your task is to: {task}."}], "Goto": [{"rhs": f"You arrive at {{{place}.name}}."}]}
    )
    return f'grammar :: """{rules}""";\naction PutObject {{ template :: "{put}"; }}\n' + "action help {\n}" * (
        not older
    )


def write_game(root: Path, version: str, split: str, game: str, *, older: bool = False, **changed) -> Path:
    folder = root / version / split / game
    folder.mkdir(parents=True)
    row = {"pddl_domain": "", "grammar": grammar("heat an apple", older), "pddl_problem": kitchen(), "solvable": True}
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps(row | {"walkthrough": ["look"]} | changed))
    (folder / "traj_data.json").write_text(json.dumps({"task_type": game.partition("-")[0]}))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    write_game(root, "json_2.1.1", "train", f"{SIMPLE}/trial_b")
    write_game(root, "json_2.1.1", "train", f"{HEAT}/trial_a", older=True, walkthrough=None)
    write_game(root, "json_2.1.1", "train", f"{HEAT}/trial_c", solvable=False)
    write_game(root, "json_2.1.1", "train", "pick_and_place_with_movable_recep-Pen-Mug-Shelf-3/trial_d")
    write_game(root, "json_2.1.1", "train", "pick_and_place_simple-AppleSliced-None-Table-3/trial_e")
    (root / "json_2.1.1" / "train" / SIMPLE / "trial_without").mkdir()
    return root


def data_at(root: Path) -> AlfworldData:
    return AlfworldData(root, root.parent / "cache")


def ids(root: Path, split: str = "train") -> list[str]:
    return [entry.id for entry in data_at(root).games(split)]


def test_solvable_games_are_listed_by_id_without_slices_and_movable_receptacles(root):
    entries = data_at(root).games("train")
    assert [(entry.id, entry.kind) for entry in entries] == [
        (f"{SIMPLE}/trial_b", "pick_and_place_simple"),
        (f"{HEAT}/trial_a", "pick_heat_then_place_in_recep"),
    ]
    assert data_at(root).split_names() == ("train",)


def test_a_game_without_the_key_solvable_is_left_out(root):
    path = root / "json_2.1.1" / "train" / SIMPLE / "trial_b" / "game.tw-pddl"
    row = json.loads(path.read_text())
    del row["solvable"]
    path.write_text(json.dumps(row))
    assert ids(root) == [f"{HEAT}/trial_a"]


def test_a_record_holds_what_the_file_says(root):
    record = data_at(root).load("train", f"{SIMPLE}/trial_b")
    assert record.task == "heat an apple" and record.wording == MODERN and record.walkthrough == ("look",)
    assert record.kind == "pick_and_place_simple" and record.problem == kitchen()
    older = data_at(root).load("train", f"{HEAT}/trial_a")
    assert older.wording == CLASSIC and older.walkthrough is None


def test_files_are_read_again_only_when_they_changed(root, monkeypatch):
    read = []
    really_read = games._read_game
    monkeypatch.setattr(games, "_read_game", lambda path: read.append(path.parent.name) or really_read(path))
    first = ids(root)
    assert sorted(read) == ["trial_a", "trial_b", "trial_c"]
    read.clear()
    assert ids(root) == first and read == []
    path = root / "json_2.1.1" / "train" / HEAT / "trial_c" / "game.tw-pddl"
    path.write_text(path.read_text().replace('"solvable": false', '"solvable": true '))
    write_game(root, "json_2.1.1", "train", f"{SIMPLE}/trial_new")
    assert ids(root) == sorted([*first, f"{HEAT}/trial_c", f"{SIMPLE}/trial_new"])
    assert sorted(read) == ["trial_c", "trial_new"]
    path.unlink()
    assert ids(root) == sorted([*first, f"{SIMPLE}/trial_new"])


def test_a_damaged_index_is_made_anew(root):
    first = ids(root)
    (index,) = (root.parent / "cache").iterdir()
    for content in ("{", "[]", '{"version": 0, "games": {}}'):
        index.write_text(content)
        assert ids(root) == first
    assert list((root.parent / "cache").iterdir()) == [index]  # nothing is left beside it


def test_a_cache_that_cannot_be_written_costs_only_time(root):
    (root.parent / "cache").write_text("a file where the folder should be")
    assert len(ids(root)) == 2


def test_the_newest_version_of_a_game_counts(root):
    write_game(root, "json_2.1.3_tw-pddl", "train", f"{HEAT}/trial_a", walkthrough=["inventory"])
    write_game(root, "json_2.1.2", "train", f"{HEAT}/trial_a", walkthrough=["help"])
    assert data_at(root).load("train", f"{HEAT}/trial_a").walkthrough == ("inventory",)
    assert len(ids(root)) == 2


def test_an_incomplete_split_is_warned_of(root):
    with pytest.warns(UserWarning, match="train has 2 games .* the published set has 3553"):
        ids(root)


@pytest.mark.parametrize("content", ["", "{", '{"solvable": true}'])
def test_a_damaged_game_file_is_named(root, content):
    path = root / "json_2.1.1" / "train" / SIMPLE / "trial_b" / "game.tw-pddl"
    path.write_text(content)
    with pytest.raises(EnvironmentFailure, match="trial_b/game.tw-pddl .*alfworld-download"):
        ids(root)
    with pytest.raises(EnvironmentFailure, match="trial_b/game.tw-pddl"):
        data_at(root).load("train", f"{SIMPLE}/trial_b")


def test_missing_data_say_how_to_get_them(root, tmp_path, monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    wanted = "pip install alfworld && alfworld-download, and set ALFWORLD_DATA.* Generated games need no data"
    with pytest.raises(EnvironmentFailure, match="ALFWORLD_DATA is not set.*" + wanted):
        AlfworldData()
    with pytest.raises(EnvironmentFailure, match="holds no ALFWorld games.*" + wanted):
        data_at(tmp_path / "nowhere")
    with pytest.raises(EnvironmentFailure, match="no ALFWorld split 'valid_seen'; it has: train.*" + wanted):
        data_at(root).games("valid_seen")
    with pytest.raises(EnvironmentFailure, match="no game.tw-pddl of train/x"):
        data_at(root).load("train", "x")
    monkeypatch.setenv("ALFWORLD_DATA", str(root))
    assert AlfworldData(cache_dir=tmp_path / "cache").split_names() == ("train",)


def packed(folder: Path, rows: list[dict], split: str = "valid_seen") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{split}.jsonl.xz"
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


ROWS = [
    {"id": f"{SIMPLE}/trial_b", "type": "pick_and_place_simple", "task": "put", "pddl_problem": "p",
     "walkthrough": ["x"]},
    {"id": f"{HEAT}/trial_a", "type": "pick_heat_then_place_in_recep", "task": "heat", "pddl_problem": "q"},
]  # fmt: skip


def test_packed_games_are_unpacked_once_and_read_one_by_one(tmp_path, monkeypatch):
    packed(tmp_path / "data", ROWS)
    assert ids(tmp_path / "data", "valid_seen") == [f"{SIMPLE}/trial_b", f"{HEAT}/trial_a"]
    monkeypatch.setattr(lzma, "open", None)  # not needed any more
    record = data_at(tmp_path / "data").load("valid_seen", f"{SIMPLE}/trial_b")
    assert (record.task, record.problem, record.walkthrough, record.wording) == ("put", "p", ("x",), MODERN)
    assert data_at(tmp_path / "data").load("valid_seen", f"{HEAT}/trial_a").walkthrough is None
    with pytest.raises(EnvironmentFailure, match="no game 'x'"):
        data_at(tmp_path / "data").load("valid_seen", "x")
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_two_that_unpack_at_once_both_read_whole_games(tmp_path, monkeypatch):
    """Case F8, one in the middle of the other's writing; wrong: it finds the half that is there."""
    packed(tmp_path / "data", ROWS)
    rows, meanwhile = PackedSplit._rows, []

    def interrupted(split: PackedSplit):
        first, *others = rows(split)
        yield first
        monkeypatch.undo()
        meanwhile.append(ids(tmp_path / "data", "valid_seen"))
        yield from others

    monkeypatch.setattr(PackedSplit, "_rows", interrupted)
    whole = [row["id"] for row in ROWS]
    assert ids(tmp_path / "data", "valid_seen") == whole and meanwhile == [whole]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_packed_file_that_changed_is_unpacked_again(tmp_path):
    path = packed(tmp_path / "data", ROWS)
    assert len(ids(tmp_path / "data", "valid_seen")) == 2
    packed(tmp_path / "data", ROWS[:1])
    os.utime(path, ns=(1, 1))
    assert len(ids(tmp_path / "data", "valid_seen")) == 1


def test_a_damaged_packed_file_is_named_and_leaves_nothing(tmp_path):
    path = packed(tmp_path / "data", ROWS)
    for content in (path.read_bytes()[:-20], b"nothing packed", lzma.compress(b'{"id": "a"}\n')):
        path.write_bytes(content)
        with pytest.raises(EnvironmentFailure, match="valid_seen.jsonl.xz is damaged"):
            ids(tmp_path / "data", "valid_seen")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_said_where_it_is_needed(tmp_path):
    packed(tmp_path / "data", ROWS)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(EnvironmentFailure, match="name another cache_dir"):
        ids(tmp_path / "data", "valid_seen")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("alfworld")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published games are not here")
def test_every_walkthrough_of_valid_seen_wins(unpacked):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the split is complete
        data = AlfworldData(SHARED, unpacked)
        entries = data.games("valid_seen")
    assert len(entries) == SPLIT_SIZES["valid_seen"]
    for entry in entries:
        record = data.load("valid_seen", entry.id)
        world = World(read_problem(record.problem), record.task, record.wording)
        answers = [world.step(command) for command in record.walkthrough or ()]
        assert [won for _, won in answers] == [False] * (len(answers) - 1) + [True], entry.id
        assert all(said != "Nothing happens." for said, _ in answers), entry.id


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the published games are not here")
def test_all_training_games_open_at_once_and_can_be_planned(unpacked):
    from jaxmtrl.envs.alfworld.planner import plan

    data = AlfworldData(SHARED, unpacked)
    entries = data.games("train")
    began = time.process_time()
    assert AlfworldData(SHARED, unpacked).games("train") == entries and len(entries) == SPLIT_SIZES["train"]
    assert time.process_time() - began < 2
    for entry in entries[::10]:
        record = data.load("train", entry.id)
        world = World(read_problem(record.problem), record.task, record.wording)
        way = plan(world)
        assert way and [world.step(command)[1] for command in way][-1], entry.id
