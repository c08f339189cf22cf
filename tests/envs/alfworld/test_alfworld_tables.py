"""The tables hold what alfworld's own say, scene by scene, and no scene is for training and for testing."""

from __future__ import annotations

import json
import lzma
import re
from collections import Counter
from pathlib import Path

import pytest

from jaxmtrl.envs.alfworld.tables import UNSEEN_SCENES, Location, tables, thing_id, train_scenes

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "alfworld"
ROOMS = ("Kitchen", "LivingRoom", "Bedroom", "Bathroom")


def test_thirty_scenes_of_every_room_three_of_them_never_trained_in():
    rooms = {number: scene.room for number, scene in tables().scenes.items()}
    assert Counter(rooms.values()) == dict.fromkeys(ROOMS, 30)
    assert Counter(rooms[number] for number in UNSEEN_SCENES) == dict.fromkeys(ROOMS, 3)
    assert set(train_scenes()) | set(UNSEEN_SCENES) == set(rooms)
    assert not set(train_scenes()) & set(UNSEEN_SCENES)


def test_valid_unseen_of_the_published_games_is_unseen_here_too():
    assert {10, 219, 308, 424} <= set(UNSEEN_SCENES)


@pytest.mark.parametrize(
    ("receptacle", "inside", "outside"),
    [
        ("Fridge", {"Apple", "WineBottle"}, {"Knife", "Book"}),
        ("CoffeeMachine", {"Mug"}, {"Cup"}),
        ("SideTable", {"Mug", "Laptop"}, {"Pillow"}),  # pillows belong on beds and sofas
        ("ToiletPaperHanger", {"ToiletPaper"}, {"Towel"}),
    ],
)
def test_containment(receptacle, inside, outside):
    can_contain = tables().can_contain[receptacle]
    assert inside <= can_contain and not outside & can_contain


def test_what_can_be_done_to_what():
    known = tables()
    assert known.openable == {"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"}
    assert known.toggleable == {"DeskLamp", "FloorLamp"}
    assert {"Bread", "Egg"} <= known.sliceable and "Bread" not in known.cleanable
    assert "Bowl" in known.coolable and "Bowl" not in known.heatable  # a bowl fits into the microwave all the same
    assert known.containers == {"Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot"}


def test_pickupable_is_what_may_lie_in_furniture():
    assert {"Mug", "Pillow", "Plunger"} <= tables().pickupable
    assert not {"DeskLamp", "Television", "Sink", "Chair"} & tables().pickupable


def test_teddy_bears_and_slices_are_left_out():
    named = {kind for scene in tables().scenes.values() for kind in scene.objects} | tables().pickupable
    assert not {"TeddyBear", "AppleSliced", "BreadSliced"} & named


def test_every_scene_is_whole():
    known = tables()
    for scene in known.scenes.values():
        names = [receptacle.id for receptacle in scene.receptacles]
        assert len(names) == len(set(names)) >= 6
        assert {receptacle.kind for receptacle in scene.receptacles} <= set(known.receptacle_classes)
        assert set(scene.objects) <= set(known.object_classes)
        assert len(set(scene.points)) == 12
    kitchens = [scene for scene in known.scenes.values() if scene.room == "Kitchen"]
    wanted = {"Fridge", "Microwave", "SinkBasin", "StoveBurner", "GarbageCan", "CoffeeMachine"}
    lacking = [(s.number, wanted - {r.kind for r in s.receptacles}) for s in kitchens]
    assert [(number, classes) for number, classes in lacking if classes - {"GarbageCan"}] == []


def test_names_of_things():
    # 68 cm, 91 cm, -1.20 m; two decimals and always a sign
    assert thing_id("Mug", (68, 91, -120)) == "Mug|+00.68|+00.91|-01.20"
    assert thing_id("Cabinet", (0, -5, 1234)) == "Cabinet|+00.00|-00.05|+12.34"
    # what is read as "sinkbasin 1" is called after the sink that it is part of
    assert thing_id("SinkBasin", (-30, 80, 242)) == "Sink|-00.30|+00.80|+02.42|SinkBasin"
    assert thing_id("BathtubBasin", (1, 2, 3)).startswith("Bathtub|")
    assert Location(3, -2, 1, 60).id == "loc|3|-2|1|60"


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published games are not beside the repository")
def test_rooms_are_those_of_the_published_games():
    """No class has more receptacles than in the real scene, most ids are the real ones, and objects are the same."""
    ours, real_ids, checked = 0, 0, set()
    with lzma.open(PUBLISHED / "train.jsonl.xz", "rt") as lines:
        for line in lines:
            number = int(re.search(r"-(\d+)/trial", line)[1])
            if number in checked:
                continue
            checked.add(number)
            text = _readable(json.loads(line)["pddl_problem"])
            real = Counter(re.findall(r"\(receptacleType \S+ (\w+)Type\)", text))
            scene = tables().scenes[number]
            assert not Counter(receptacle.kind for receptacle in scene.receptacles) - real
            assert set(scene.objects) == set(re.findall(r"\(objectType \S+ (\w+)Type\)", text)) - {"TeddyBear"}
            ours += len(scene.receptacles)
            real_ids += sum(f"(receptacleType {receptacle.id} " in text for receptacle in scene.receptacles)
            declared = re.findall(r"^\s*(\w+)Type - (\w)type$", text, re.M)
            assert {kind for kind, letter in declared if letter == "o"} == set(tables().object_classes)
            assert {kind for kind, letter in declared if letter == "r"} == set(tables().receptacle_classes)
    assert checked == set(train_scenes())
    # the rest, such as stove burners, are classes whose places alfworld does not tell
    assert real_ids / ours > 0.75


def _readable(text: str) -> str:
    for word, sign in (("_minus_", "-"), ("_bar_", "|"), ("_plus_", "+"), ("_dot_", ".")):
        text = text.replace(word, sign)
    return text
