"""Our engine and the official one, in lock-step, on a small kitchen and on published games where they are.

Wants an interpreter with the official engine: `bash scripts/setup_alfworld_official.sh`, or one that ALFWORLD_OFFICIAL
names. Run with `pytest -m official`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_room import kitchen, light_goal, place_goal

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "data" / "alfworld"
OFFICIAL = Path(os.environ.get("ALFWORLD_OFFICIAL", ROOT / ".venv-alfworld" / "bin" / "python"))

pytestmark = [
    pytest.mark.official,
    pytest.mark.skipif(not OFFICIAL.is_file(), reason="no official engine: bash scripts/setup_alfworld_official.sh"),
]


def check(*arguments: str) -> dict:
    """The line that the comparison prints. It ends with an error if anything differs."""
    script = ROOT / "scripts" / "check_alfworld.py"
    done = subprocess.run(
        [sys.executable, str(script), "--official", str(OFFICIAL), *arguments], capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    line = json.loads(done.stdout)
    assert done.returncode == 0 and not any(line["mismatches"].values()), line
    return line


def test_the_small_kitchen_is_played_alike(tmp_path):
    goals = {
        "pick_heat_then_place_in_recep": place_goal("Apple", "SideTable", "heatable", "isHot"),
        "pick_two_obj_and_place": place_goal("Apple", "Cabinet", count=2),
        "look_at_obj_in_light": light_goal("Mug", "DeskLamp"),
        "pick_and_place_simple": place_goal("Apple", "Microwave", "isSliced"),
    }
    rows = [
        {"id": f"kitchen/{kind}", "type": kind, "task": "test it", "pddl_problem": kitchen(goal)}
        for kind, goal in goals.items()
    ]
    path = tmp_path / "kitchens.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = check("--data", str(path), "--steps", "250", "--wordings", "modern", "classic")
    assert line["games"] == 4 and line["steps"] == 2000 and all(kind["wins"] for kind in line["by_type"].values())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published games are not here")
def test_published_games_of_all_types_are_played_alike(tmp_path):
    line = check("--data", str(SHARED), "--cache", str(tmp_path), "--games", "12", "--steps", "60")
    assert line["games"] == 12 and len(line["by_type"]) == 6 and line["walkthroughs"] == line["walkthroughs_won"] > 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published games are not here")
def test_what_makes_the_official_engine_quick_changes_nothing_it_says(tmp_path):
    arguments = ("--splits", "valid_seen", "--games", "2", "--sides", "2", "--steps", "12")
    line = check("--data", str(SHARED), "--cache", str(tmp_path), *arguments)
    assert line["games"] == 2 and line["steps"] == 24 and line["mismatches"] == {}
