"""The tables of a wheel made up here: what is taken, what is left out, and where things without a place go."""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from jaxmtrl.envs.alfworld import tables as tables_module

SCRIPT = Path(__file__).parents[2] / "scripts" / "extract_alfworld_tables.py"
spec = importlib.util.spec_from_file_location("extract_alfworld_tables", SCRIPT)
assert spec and spec.loader
extract = importlib.util.module_from_spec(spec)
spec.loader.exec_module(extract)

CONSTANTS = """
OBJECTS = ["Mug", "Apple", "TeddyBear", "Cabinet", "Fridge", "StoveBurner", "SinkBasin", "Sink"]
RECEPTACLES = {"Mug", "Cabinet", "Fridge", "StoveBurner", "SinkBasin"}
MOVABLE_RECEPTACLES = ["Mug"]
VAL_RECEPTACLE_OBJECTS = {"Cabinet": {"Mug", "AppleSliced", "TeddyBear"}, "Fridge": {"Mug", "Apple"}, "Mug": set()}
VAL_ACTION_OBJECTS = {"Heatable": {"Mug", "AppleSliced"}, "Coolable": {"Apple"}}
OPENABLE_CLASS_SET = {"Cabinet", "Fridge", "Box"}
SCENE_TYPE = {"Kitchen": range(3, 4)}
GOALS_VALID = {kind: {"Kitchen"} for kind in %r}
"""
LIBRARY = """
gdict = {kind: {"pddl": '''
        (:goal
            (and
                (exists (?o # object)
                    (objectType ?o {obj}Type))
                (exists (?r # receptacle
                         ?l # location)
                    (receptacleType ?r {recep}Type))
            )
        )
    )
    ''', "templates": ["put a {obj} in {recep}"]} for kind in %r}
"""
STANDS = {
    "Cabinet|+00.68|+00.50|-02.20": [0.25, -0.5, 270, 30],
    "Sink|-00.30|+00.80|+02.42|SinkBasin": [-1.0, 2.25, 90, 0],
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict:
    wheel = tmp_path_factory.mktemp("wheel") / "alfworld-0.0.0-py3-none-any.whl"
    layout = io.BytesIO()
    np.save(layout, np.array([[0.25 * x, -0.5] for x in range(24)]))
    with zipfile.ZipFile(wheel, "w") as out:
        out.writestr("alfworld/gen/constants.py", CONSTANTS % (extract.KINDS,))
        out.writestr("alfworld/gen/goal_library.py", LIBRARY % (extract.KINDS,))
        out.writestr("alfworld/gen/layouts/FloorPlan3-openable.json", json.dumps(STANDS))
        classes = ["Mug", "TeddyBear", "Faucet", "Cabinet", "Fridge", "StoveBurner", "SinkBasin", "Sink", "Lamp"]
        out.writestr("alfworld/gen/layouts/FloorPlan3-objects.json", json.dumps(classes))
        out.writestr("alfworld/gen/layouts/FloorPlan3-layout.npy", layout.getvalue())
        out.writestr("alfworld-0.0.0.dist-info/LICENSE", "a licence")
    return json.loads(extract.page(extract.extract(wheel)))


def test_classes(tables):
    assert tables["object_classes"] == "Apple Mug Sink TeddyBear"  # declared in every game, whether there or not
    assert tables["receptacle_classes"] == "Cabinet Fridge SinkBasin StoveBurner"
    assert tables["containers"] == "Mug" and tables["openable"] == "Cabinet Fridge"
    assert tables["can_contain"] == {"Cabinet": "Mug", "Fridge": "Apple Mug"}
    assert tables["heatable"] == "Mug" and tables["coolable"] == "Apple"


def test_where_they_come_from(tables):
    assert tables["source"].startswith("alfworld-0.0.0-py3-none-any.whl: ") and tables["licence"] == "a licence"


def test_a_goal_is_one_line_and_closes_only_itself(tables):
    goal = tables["goals"]["pick_and_place_simple"]
    assert goal["pddl"] == (
        "(:goal (and (exists (?o - object) (objectType ?o {obj}Type)) "
        "(exists (?r - receptacle ?l - location) (receptacleType ?r {recep}Type))))"
    )
    assert goal["sentences"] == ["put a {obj} in {recep}"] and goal["rooms"] == ["Kitchen"]
    assert list(tables["goals"]) == list(extract.KINDS)


def test_a_scene(tables):
    scene = tables["scenes"]["3"]
    assert scene["room"] == "Kitchen" and scene["objects"] == "Mug Sink"
    # centimetres; steps of 25 cm; 270 degrees are three quarter turns
    assert scene["receptacles"]["Cabinet"] == [[68, 50, -220, 1, -2, 3, 30]]
    assert scene["receptacles"]["SinkBasin"] == [[-30, 80, 242, -4, 9, 1, 0]]
    assert scene["points"] == [[x, -2] for x in range(0, 24, 2)]  # every second of 24


def test_what_has_no_place_gets_one(tables):
    receptacles = tables["scenes"]["3"]["receptacles"]
    assert len(receptacles["Fridge"]) == 1 and len(receptacles["StoveBurner"]) == 4
    stands = [tuple(place[3:]) for kind in ("Fridge", "StoveBurner") for place in receptacles[kind]]
    assert len(set(stands)) == 5
    assert all([x, z] in tables["scenes"]["3"]["points"] for x, z, _, _ in stands)


def test_the_tables_of_the_package_are_written_this_way():
    """One scene a line; the file in the package would not change if it was read and written again."""
    text = Path(tables_module.__file__).with_name("tables.json").read_text("utf-8")
    assert extract.page(json.loads(text)) == text
    assert text.count("\n") < 250
    assert "MIT License" in text and "alfworld-0.4.2" in text


def test_the_command(tmp_path, monkeypatch, capsys, tables):
    monkeypatch.setattr(extract, "extract", lambda wheel: {"source": wheel.name})
    monkeypatch.setattr("sys.argv", ["extract", "some.whl", "--out", str(tmp_path / "tables.json")])
    assert extract.main() == 0
    assert json.loads((tmp_path / "tables.json").read_text()) == {"source": "some.whl"}
    assert "wrote" in capsys.readouterr().out
