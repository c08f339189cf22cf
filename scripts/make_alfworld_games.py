"""Makes ALFWorld games and writes them as the tree of files that ALFWorld reads.

    python scripts/make_alfworld_games.py --out games --complexity small --count 200 --first-seed 0

Writes games/json_2.1.1/<split>/<type>-<object>-None-<receptacle>-<scene>/trial_<..>/{game.tw-pddl,traj_data.json},
where ALFWorld looks for them if games is its data path. A game file holds the domain and the text grammar of the
alfworld package too, which must be installed for that; jaxmtrl itself plays generated games without any files.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # an environment made for alfworld lacks this package

from jaxmtrl.envs.alfworld.games import KINDS, GameRecord
from jaxmtrl.envs.alfworld.generator import COMPLEXITIES, complexity, generate
from jaxmtrl.errors import ConfigError, JaxmtrlError

_SPLITS = {"train": "train", "unseen": "valid_unseen"}  # folder by the scenes that games play in
_UNKNOWN_GOAL = "UNKNOWN GOAL"  # where the grammar wants the task sentence


def official_texts() -> tuple[str, str]:
    """The domain and the grammar that the installed alfworld brings; the package is found, not imported.

    Raises:
        ConfigError: alfworld is not installed, or its files are not those of version 0.4.2.
    """
    found = importlib.util.find_spec("alfworld")
    if found is None or found.origin is None:
        raise ConfigError(
            "this Python", ["alfworld is not installed; `pip install --no-deps alfworld==0.4.2` brings the two files."]
        )
    folder = Path(found.origin).parent / "data"
    try:
        domain, grammar = ((folder / name).read_text("utf-8") for name in ("alfred.pddl", "alfred.twl2"))
    except OSError as err:
        raise ConfigError(str(folder), [f"a file of alfworld is missing: {err}; install alfworld==0.4.2."]) from err
    if _UNKNOWN_GOAL not in grammar:
        raise ConfigError(
            str(folder / "alfred.twl2"), [f"the grammar has no {_UNKNOWN_GOAL!r}; install alfworld==0.4.2."]
        )
    return domain, grammar


def write_game(game: GameRecord, root: Path, domain: str, grammar: str) -> Path:
    """Writes one game below `root`, a split's folder, and returns the folder that it got."""
    folder = root / game.id
    folder.mkdir(parents=True, exist_ok=True)
    page = {
        "pddl_domain": domain,
        "grammar": grammar.replace(_UNKNOWN_GOAL, game.task),
        "pddl_problem": game.problem,
        "solvable": True,
        "walkthrough": game.walkthrough,
    }
    (folder / "game.tw-pddl").write_text(json.dumps(page), "utf-8")
    (folder / "traj_data.json").write_text(json.dumps(_trial(game), indent=1), "utf-8")
    return folder


def _trial(game: GameRecord) -> dict[str, Any]:
    """As much of ALFRED's description of a trial as ALFWorld reads."""
    name, _, trial = game.id.partition("/")
    _, target, _, place, scene = name.split("-")
    lamp = game.kind == "look_at_obj_in_light"
    return {
        "task_id": trial,
        "task_type": game.kind,
        "pddl_params": {
            "object_target": target,
            "parent_target": "" if lamp else place,
            "toggle_target": place if lamp else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
        "scene": {"floor_plan": f"FloorPlan{scene}", "scene_num": int(scene)},
        "turk_annotations": {"anns": [{"task_desc": game.task, "high_descs": []}]},
    }


def _steps(text: str) -> tuple[int, int]:
    fewest, _, most = text.partition("-")
    if not (fewest.isdigit() and most.isdigit()):
        raise argparse.ArgumentTypeError(f"must look like 4-6, got {text!r}")
    return int(fewest), int(most)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), metavar="TYPE", help="task types; all by default")
    parser.add_argument("--complexity", choices=list(COMPLEXITIES), default="large")
    parser.add_argument("--scenes", choices=list(_SPLITS), default="train")
    parser.add_argument("--steps", type=_steps, metavar="4-6", help="fewest and most commands of the way to win")
    parser.add_argument("--colocated", action="store_true", help="receptacles may share a location")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    try:
        domain, grammar = official_texts()
        spec = complexity(
            arguments.complexity,
            kinds=tuple(arguments.kinds),
            scenes=arguments.scenes,
            steps=arguments.steps,
            colocated=arguments.colocated,
        )
        root = arguments.out / "json_2.1.1" / _SPLITS[arguments.scenes]
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.count):
            write_game(generate(spec, seed), root, domain, grammar)
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    print(f"wrote {arguments.count} games to {root}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
