"""Writes jaxmtrl/envs/alfworld/tables.json from the alfworld wheel: classes, containment, goals, scenes.

    pip download alfworld==0.4.2 --no-deps
    python scripts/extract_alfworld_tables.py alfworld-0.4.2-py3-none-any.whl

With those tables games are generated without alfworld installed. The wheel is only read, never imported.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).resolve().parents[1] / "jaxmtrl" / "envs" / "alfworld" / "tables.json"
KINDS = (
    "pick_and_place_simple",
    "pick_two_obj_and_place",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
)
FREE_POINTS = 12  # kept of every scene: where the agent may begin, and what has no place of its own may stand
# Slices are made in play, and the hand-coded expert of alfworld stumbles over teddy bears.
LEFT_OUT = {"AppleSliced", "BreadSliced", "LettuceSliced", "PotatoSliced", "TomatoSliced", "TeddyBear"}


def class_tables(constants: dict[str, Any]) -> dict[str, Any]:
    """Which classes there are, what may lie in what, and what can be done to what.

    Args:
        constants: the names that alfworld/gen/constants.py defines.
    """
    movable = set(constants["MOVABLE_RECEPTACLES"])
    fixed = constants["RECEPTACLES"] - movable
    contain = constants["VAL_RECEPTACLE_OBJECTS"]
    actions = constants["VAL_ACTION_OBJECTS"]
    return {
        "object_classes": _words(set(constants["OBJECTS"]) - fixed),
        "receptacle_classes": _words(fixed),
        "containers": _words(movable),
        "openable": _words(constants["OPENABLE_CLASS_SET"] & fixed),
        "can_contain": {kind: _words(contain[kind] - LEFT_OUT) for kind in sorted(contain) if contain[kind] - LEFT_OUT},
        **{name.lower(): _words(set(actions[name]) - LEFT_OUT) for name in sorted(actions)},
    }


def goals(library: dict[str, Any]) -> dict[str, Any]:
    """Of every task type: the goal with {obj}, {recep} and {toggle} to fill in, the sentences, the rooms."""
    gdict, rooms = library["gdict"], library["GOALS_VALID"]
    return {
        kind: {
            "pddl": _one_line(gdict[kind]["pddl"]),
            "sentences": gdict[kind]["templates"],
            "rooms": sorted(rooms[kind]),
        }
        for kind in KINDS
    }


def scene(wheel: zipfile.ZipFile, number: int, room: str, fixed: set[str], loose: set[str]) -> dict[str, Any]:
    """One floor plan: its receptacles, the classes of its objects, and points where one can stand.

    A receptacle is [x, y, z in centimetres, x and z of where one stands in steps of 25 cm, quarter turns, degrees of
    looking down]. The wheel has these of what an agent opens or reaches into; of a class that it names for the scene
    without coordinates there is one in every real scene (four burners on a stove), which gets a free point here.
    """
    folder = f"alfworld/gen/layouts/FloorPlan{number}"
    stands = json.loads(wheel.read(f"{folder}-openable.json"))
    classes = set(json.loads(wheel.read(f"{folder}-objects.json")))
    points = sorted(_steps(x, z) for x, z in np.load(io.BytesIO(wheel.read(f"{folder}-layout.npy"))).tolist())
    points = [points[index * len(points) // FREE_POINTS] for index in range(FREE_POINTS)]
    receptacles: dict[str, list[list[int]]] = {}
    for name, (x, z, turn, horizon) in sorted(stands.items()):
        parts = name.split("|")
        place = [round(float(number) * 100) for number in parts[1:4]]
        receptacles.setdefault(parts[-1] if len(parts) == 5 else parts[0], []).append(
            [*place, *_steps(x, z), round(turn) // 90, round(horizon)]
        )
    for index, kind in enumerate(sorted((classes & fixed) - set(receptacles))):
        x, z = points[5 * index % FREE_POINTS]
        for copy in range(4 if kind == "StoveBurner" else 1):
            receptacles.setdefault(kind, []).append([25 * x + 10 * copy, 0, 25 * z + 40, x, z, 0, 60 - 15 * copy])
    return {
        "room": room,
        "receptacles": dict(sorted(receptacles.items())),
        "objects": _words(classes & loose - LEFT_OUT),
        "points": points,
    }


def _steps(x: float, z: float) -> tuple[int, int]:
    return round(4 * x), round(4 * z)


def _words(classes: set[str]) -> str:
    return " ".join(sorted(classes))


def _one_line(goal: str) -> str:
    """The library's goal closes the parenthesis of the whole problem too, and has # where PDDL has -."""
    text = re.sub(r"\s+", " ", goal.replace("#", "-")).strip()
    text = re.sub(r"\s*([()])\s*", r"\1", text).replace(")(", ") (")
    text = re.sub(r"(?<=[^\s(])\(", " (", text)
    return text[:-1]


def _names(wheel: zipfile.ZipFile, member: str) -> dict[str, Any]:
    """What a module of the wheel defines; both that are read need nothing but the standard library."""
    names: dict[str, Any] = {}
    exec(compile(wheel.read(member), member, "exec"), names)
    return names


def extract(path: Path) -> dict[str, Any]:
    """All tables of the wheel at `path`."""
    with zipfile.ZipFile(path) as wheel:
        constants = _names(wheel, "alfworld/gen/constants.py")
        library = {**constants, **_names(wheel, "alfworld/gen/goal_library.py")}
        licence = next(name for name in wheel.namelist() if name.endswith("LICENSE"))
        tables = class_tables(constants)
        fixed = set(tables["receptacle_classes"].split())
        loose = set(tables["object_classes"].split())
        rooms = {number: room for room, numbers in constants["SCENE_TYPE"].items() for number in numbers}
        return {
            "source": f"{path.name}: gen/constants.py, gen/goal_library.py, gen/layouts",
            "licence": wheel.read(licence).decode("utf-8"),
            **tables,
            "goals": goals(library),
            "scenes": {str(number): scene(wheel, number, rooms[number], fixed, loose) for number in sorted(rooms)},
        }


def page(tables: dict[str, Any]) -> str:
    """JSON with one class table, one goal and one scene a line, so that a difference can be read."""
    lines = []
    for key, value in tables.items():
        if isinstance(value, dict):
            inner = (f"  {json.dumps(name)}: {json.dumps(item, separators=(',', ':'))}" for name, item in value.items())
            lines.append(f" {json.dumps(key)}: {{\n" + ",\n".join(inner) + "\n }")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="alfworld-0.4.2-py3-none-any.whl")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    arguments.out.write_text(page(extract(arguments.wheel)), "utf-8")
    print(f"wrote {arguments.out} ({arguments.out.stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
