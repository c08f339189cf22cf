"""The official engine loads generated games, says the same about them, and is won by our planner's commands.

Wants an interpreter with the official engine: `bash scripts/setup_alfworld_official.sh`, or one that ALFWORLD_OFFICIAL
names. Run with `pytest -m official`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import KINDS
from jaxmtrl.envs.alfworld.generator import COMPLEXITIES, complexity, generate
from jaxmtrl.envs.alfworld.problem import read_problem

ROOT = Path(__file__).parents[3]
OFFICIAL = Path(os.environ.get("ALFWORLD_OFFICIAL", ROOT / ".venv-alfworld" / "bin" / "python"))

pytestmark = [
    pytest.mark.official,
    pytest.mark.skipif(not OFFICIAL.is_file(), reason="no official engine: bash scripts/setup_alfworld_official.sh"),
]


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    sys.path.insert(0, str(ROOT / "scripts" / "sides"))
    try:
        from alfworld_peer import OfficialPeer
    finally:
        sys.path.pop(0)
    peer = OfficialPeer(str(OFFICIAL), quick=True)
    yield peer
    peer.close()


@pytest.mark.parametrize("colocated", [False, True])
@pytest.mark.parametrize("name", COMPLEXITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_generated_games_are_won_in_the_official_engine(official, kind, name, colocated):
    """36 games: all types, all complexities, both kinds of scene."""
    scenes = "unseen" if colocated else "train"
    game = generate(complexity(name, kinds=(kind,), scenes=scenes, colocated=colocated), 31)
    world = World(read_problem(game.problem), game.task)
    ours = (world.reset(), world.admissible(), False)
    theirs = official.reset(game.problem, game.task, "modern")
    for command in game.walkthrough or ():
        assert (theirs["observation"], theirs["admissible"], theirs["won"]) == ours
        said, won = world.step(command)
        ours = (said, world.admissible(), won)
        theirs = official.step(command)
    assert (theirs["observation"], theirs["admissible"], theirs["won"]) == ours
    assert theirs["won"] and theirs["done"] and theirs["reward"] == 1


LOADER = """
import contextlib, io, sys, textworld
with contextlib.redirect_stdout(io.StringIO()):
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredTWEnv
    data = {"data_path": sys.argv[1], "eval_ood_data_path": sys.argv[1], "num_train_games": -1, "num_eval_games": -1}
    config = {"env": {"task_types": [1, 2, 3, 4, 5, 6], "goal_desc_human_anns_prob": 0}, "dataset": data}
    files = AlfredTWEnv(config, train_eval="eval_out_of_distribution").game_files
    env = textworld.start(files[0], textworld.EnvInfos(won=True, extras=["walkthrough"]), [AlfredDemangler()])
    state = env.reset()
    for command in state["extra.walkthrough"]:
        state, reward, done = env.step(command)
print(len(files), bool(state["won"]))
"""


def test_the_official_loader_finds_the_games_on_disk(tmp_path):
    script = [str(OFFICIAL), str(ROOT / "scripts" / "make_alfworld_games.py")]
    run = {"check": True, "capture_output": True, "text": True, "cwd": tmp_path}
    there = os.environ | {"ALFWORLD_DATA": str(tmp_path / "data")}
    subprocess.run([*script, "--out", "games", "--scenes", "unseen", "--count", "7"], **run)
    split = tmp_path / "games" / "json_2.1.1" / "valid_unseen"
    answer = subprocess.run([str(OFFICIAL), "-c", LOADER, str(split)], env=there, **run)
    assert answer.stdout.split()[-2:] == ["7", "True"]
