"""ALFWorld's options, splits and tasks: exact mixes, games kept apart, published games only where asked for."""

from __future__ import annotations

import json
import lzma
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from small_room import kitchen, light_goal, place_goal

from jaxmtrl.envs.alfworld import make
from jaxmtrl.envs.alfworld.environment import AlfworldOptions, SplitOptions
from jaxmtrl.envs.alfworld.games import KINDS
from jaxmtrl.envs.alfworld.generator import complexity, generate
from jaxmtrl.envs.base import load_environment
from jaxmtrl.envs.help import describe_environments
from jaxmtrl.errors import ConfigError, EnvironmentFailure

SHARED = Path(__file__).parents[4] / "shared" / "data" / "alfworld"
SIMPLE, LIGHT, CLEAN, HEAT, COOL, TWO = KINDS
pytestmark = pytest.mark.filterwarnings("ignore:ALFWorld's .* games under:UserWarning")


def nothing(done: int, total: int) -> None:
    pass


def kinds_of(environment, name: str) -> Counter:
    return Counter(task.payload["kind"] for task in environment.split(name).tasks)


@pytest.fixture
def published(tmp_path) -> Path:
    """A folder with a published split of four kitchens of three types."""
    goals = {
        SIMPLE: place_goal("Apple", "SideTable"),
        HEAT: place_goal("Apple", "SideTable", "isHot"),
        LIGHT: light_goal("Mug", "DeskLamp"),
    }
    games = [(SIMPLE, "a"), (HEAT, "a"), (HEAT, "b"), (LIGHT, "a")]
    rows = [
        {
            "id": f"{kind}-Apple-None-Table-1/trial_{trial}",
            "type": kind,
            "task": "x",
            "pddl_problem": kitchen(goals[kind]),
        }
        for kind, trial in games
    ]
    folder = tmp_path / "published"
    folder.mkdir()
    with lzma.open(folder / "valid_seen.jsonl.xz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def options_of(published: Path, **split) -> dict:
    return {
        "data": str(published),
        "cache_dir": str(published.parent / "cache"),
        "splits": {"seen": {"source": "valid_seen", **split}},
    }


# --- splits


def test_generated_games_are_the_default():
    environment = make({})
    assert environment.split_names() == ("train", "heldout", "unseen") and environment.max_steps == 50
    train, heldout, unseen = (environment.split(name).tasks for name in environment.split_names())
    assert [len(tasks) for tasks in (train, heldout, unseen)] == [5000, 100, 100]
    assert train[3].id == "pick_heat_then_place_in_recep/medium-train/30004" and train[3].seed == 30004
    assert unseen[0].id == "pick_and_place_simple/medium-unseen/1"
    everything = [*train, *heldout, *unseen]
    assert len({task.id for task in everything}) == 5200
    assert not {task.seed for task in train} & {task.seed for task in heldout}
    assert all(task.id.startswith(f"{task.payload['kind']}/") for task in everything)
    assert len(pickle.dumps(train[0])) < 500
    assert kinds_of(environment, "train") == dict(zip(KINDS, [834, 834, 833, 833, 833, 833]))


def test_no_held_out_or_unseen_game_is_a_training_game():
    """Whatever is in the rooms: games that look alike at first have other things in other places."""
    environment = make({"complexity": "small"})

    def rooms(name: str) -> set[str]:
        games = [
            generate(complexity("small", kinds=(task.payload["kind"],), scenes=task.payload["scenes"]), task.seed)
            for task in environment.split(name).tasks[:60]
        ]
        return {re.sub(r"plan_trial_\w+", "", game.problem) + game.task for game in games}

    train, heldout, unseen = (rooms(name) for name in environment.split_names())
    assert len(train | heldout | unseen) == 180


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"mix": "single"}, {SIMPLE: 100}),
        ({"mix": "four"}, {LIGHT: 25, CLEAN: 25, HEAT: 25, COOL: 25}),
        ({}, dict(zip(KINDS, [17, 17, 17, 17, 16, 16]))),
        ({"weights": {SIMPLE: 0.25, "others": 0.75}}, {SIMPLE: 25, **dict.fromkeys(KINDS[1:], 15)}),
        ({"weights": {HEAT: 1}, "split": {"mix": "single"}}, {SIMPLE: 100}),  # a split's own mix goes before
        ({"mix": "single", "split": {"weights": {HEAT: 3, TWO: 1}}}, {HEAT: 75, TWO: 25}),
    ],
)
def test_mixes_are_exact_and_always_the_same(options, counts):
    split = {"first_seed": 7, "count": 100, **options.pop("split", {})}
    environment, again = (make({**options, "splits": {"a": split}}) for _ in range(2))
    assert kinds_of(environment, "a") == counts
    assert environment.split("a").tasks == again.split("a").tasks
    assert [task.seed for task in environment.split("a").tasks] == list(range(7, 107))


def test_a_split_goes_before_the_options_of_all():
    splits = {
        "train": {"first_seed": 0, "count": 6},
        "large": {"first_seed": 6, "count": 6, "complexity": "large", "max_steps": 70, "steps": [3, 12]},
        "unseen": {"first_seed": 0, "count": 6, "scenes": "unseen"},  # other rooms: the same seeds do not clash
    }
    environment = make({"complexity": "small", "max_steps": 20, "splits": splits})
    first = {name: environment.split(name).tasks[0] for name in splits}
    assert dict(first["train"].payload) == {
        "kind": SIMPLE,
        "source": "generated",
        "complexity": "small",
        "scenes": "train",
        "steps": None,
        "max_steps": 20,
    }
    assert first["large"].id == f"{SIMPLE}/large-train/6" and first["large"].payload["max_steps"] == 70
    assert first["large"].payload["steps"] == (3, 12) and first["unseen"].payload["scenes"] == "unseen"
    assert environment.max_steps == 70


def test_an_unknown_split():
    with pytest.raises(ConfigError, match="ALFWorld has no split 'test'; it has: train, heldout, unseen"):
        make({}).split("test")


def test_steps_are_kept():
    splits = {"short": {"first_seed": 0, "count": 6, "steps": [3, 4], "mix": "single"}}
    environment = make({"complexity": "small", "splits": splits})
    lengths = [len(environment.expert_actions(task)) for task in environment.split("short").tasks]
    assert all(3 <= length <= 4 for length in lengths)


def test_preparing_finds_games_that_cannot_be():
    reports = []
    environment = make({})
    environment.prepare(environment.split("heldout").tasks, lambda done, total: reports.append((done, total)))
    assert reports[-1] == (100, 100)
    splits = {"short": {"first_seed": 0, "count": 3, "steps": [1, 2], "mix": "single"}}
    environment = make({"complexity": "small", "splits": splits})
    with pytest.raises(EnvironmentFailure, match=r"takes 1 to 2 commands was found for seed 0.*; widen steps"):
        environment.prepare(environment.split("short").tasks, nothing)


# --- mistakes


def test_all_mistakes_in_options_at_once():
    with pytest.raises(ConfigError) as caught:
        load_environment(
            "jaxmtrl.envs.alfworld:make", {"complexty": "small", "max_steps": 0, "splits": {"a": {"source": "valid"}}}
        )
    text = str(caught.value)
    assert "env.options.complexty: unknown option; did you mean complexity?" in text
    assert "env.options.max_steps: got 0, wanted integer >= 1 (steps before a game is cut)" in text
    assert 'env.options.splits.a.source: got "valid", wanted generated | train | valid_seen | valid_unseen' in text
    assert len(caught.value.mistakes) == 3
    with pytest.raises(ConfigError) as caught:
        make(
            {
                "weights": {"cook": 1},
                "invalid_action_penalty": 0.05,
                "splits": {
                    "train": {"first_seed": 1, "count": 10},
                    "heldout": {"first_seed": 10, "count": 5, "complexity": "small"},
                    "unseen": {"scenes": "unseen"},
                },
            }
        )
    assert len(caught.value.mistakes) == 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_steps": "12"}, 'env.options.max_steps: got "12", wanted integer >= 1'),
        ({"think": 1}, "env.options.think: got 1, wanted true or false"),
        ({"weights": {"cook": 1}}, 'env.options.weights: "cook" is no task type; they are pick_and_place_simple'),
        ({"weights": {HEAT: "all"}}, 'env.options.weights.pick_heat_then_place_in_recep: got "all", wanted mapping'),
        ({"weights": {HEAT: 1}, "mix": "four"}, "env.options.mix and env.options.weights both say what is mixed"),
        ({"splits": {"a": {"count": 1}}}, "env.options.splits.a needs first_seed, because its games are generated"),
        ({"splits": {"a": {}}}, "env.options.splits.a needs first_seed and count"),
        (
            {"splits": {"a": {"first_seed": 1, "count": 1, "steps": [5, 4]}}},
            "env.options.splits.a.steps must be [fewest, most] with 1 <= fewest <= most, got [5, 4].",
        ),
        (
            {"splits": {"a": {"first_seed": 1, "count": 1, "weights": {HEAT: 0}}}},
            "env.options.splits.a.weights are all 0",
        ),
        (
            {"splits": {"a": {"first_seed": 1, "count": 10}, "b": {"first_seed": 10, "count": 5}}},
            "splits.a and env.options.splits.b share 1 seeds of games in train scenes, from 10 on; move first_seed",
        ),
        (
            # of one seed all complexities ask for the same thing in the same room
            {
                "splits": {
                    "a": {"first_seed": 1, "count": 2, "complexity": "small"},
                    "b": {"first_seed": 1, "count": 2, "complexity": "large", "scenes": "train"},
                }
            },
            "share 2 seeds of games in train scenes, from 1 on",
        ),
        (
            {"splits": {"a": {"source": "valid_seen", "scenes": "unseen"}}},
            "env.options.splits.a.scenes means nothing with source valid_seen, whose games are given; remove it.",
        ),
        (
            {"splits": {"a": {"source": "train", "first_seed": 3}}},
            "splits.a.first_seed means nothing with source train",
        ),
        (
            {"splits": {"a": {"source": "train", "weights": {HEAT: 1, COOL: 2}}}},
            "env.options.splits.a needs a count, because its weights are unequal",
        ),
        (
            {"splits": {"train": {"source": "train"}, "heldout": {"source": "train"}}},
            "splits.train and env.options.splits.heldout both take games of the published train; test on another",
        ),
        (
            {"invalid_action_penalty": 0.015, "splits": {"a": {"first_seed": 1, "count": 1, "max_steps": 80}}},
            "0.015 times max_steps 80 must stay below 1",
        ),
        ({"invalid_action_penalty": 0.02}, "0.02 times max_steps 50 must stay below 1 with reward score"),
        (
            {"invalid_action_penalty": 0.01, "reward": "progress"},
            "0.01 times max_steps 50 must stay below 0.5 with reward progress, or a win could pay less than a loss; "
            "0.008 would do.",
        ),
    ],
)
def test_one_wrong_option_is_one_sentence(options, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)) as caught:
        make(options)
    assert len(caught.value.mistakes) == 1


def test_help_lists_every_option():
    page = describe_environments()
    assert "env.factory jaxmtrl.envs.alfworld:make" in page
    splits = (f"splits.NAME.{field}" for field in SplitOptions.__dataclass_fields__)
    for field in (*AlfworldOptions.__dataclass_fields__, *splits):
        assert f"  env.options.{field} " in page


# --- published games


def test_published_games_are_looked_for_only_where_they_are_asked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    environment = make({"splits": {"seen": {"source": "valid_seen"}, "made": {"first_seed": 1, "count": 2}}})
    assert len(environment.split("made").tasks) == 2 and environment.max_steps == 50
    with pytest.raises(EnvironmentFailure, match="ALFWORLD_DATA is not set.*pip install alfworld && alfworld-download"):
        environment.split("seen")
    with pytest.raises(EnvironmentFailure, match="holds no ALFWorld games .*Generated games need no data"):
        make(options_of(tmp_path)).split("seen")


def test_a_published_split_holds_all_its_games(published, monkeypatch):
    environment = make(options_of(published))
    tasks = environment.split("seen").tasks
    assert kinds_of(environment, "seen") == {SIMPLE: 1, HEAT: 2, LIGHT: 1}
    assert len({task.id for task in tasks}) == 4 and tasks == environment.split("seen").tasks
    simple = next(task for task in tasks if task.payload["kind"] == SIMPLE)
    game = f"{SIMPLE}-Apple-None-Table-1/trial_a"
    assert simple.id == f"{SIMPLE}/valid_seen/{game}"
    assert dict(simple.payload) == {"kind": SIMPLE, "source": "valid_seen", "game": game, "max_steps": 50}
    environment.prepare(tasks, nothing)
    monkeypatch.setenv("ALFWORLD_DATA", str(published))
    assert make({**options_of(published), "data": None}).split("seen").tasks == tasks


def test_fewer_published_games_are_a_part_of_more(published):
    def ids(**split) -> set[str]:
        return {task.id for task in make(options_of(published, **split)).split("seen").tasks}

    assert ids(mix="four") == ids() - ids(mix="single") and len(ids(mix="four")) == 3
    one, two = (ids(weights={HEAT: 1}, count=count) for count in (1, 2))
    assert len(one) == 1 and one < two == ids(weights={HEAT: 1})
    assert len(ids(weights={HEAT: 2, LIGHT: 1}, count=3)) == 3


def test_more_published_games_than_there_are(published):
    with pytest.raises(ConfigError) as caught:
        make(options_of(published, weights={SIMPLE: 1, HEAT: 1, COOL: 1}, count=6)).split("seen")
    asked, cure = (
        "env.options.splits.seen.count 6 asks for 2 games of",
        "lower it, change the mix, or use generated games.",
    )
    assert caught.value.mistakes == (
        f"{asked} {SIMPLE}, but valid_seen has 1; {cure}",
        f"{asked} {COOL}, but valid_seen has 0; {cure}",
    )


def test_workers_play_published_games_from_another_folder(published, monkeypatch, tmp_path):
    monkeypatch.chdir(published.parent)
    environment = make({**options_of(published), "data": "published", "cache_dir": "cache"})
    monkeypatch.chdir(tmp_path / "published")
    there = pickle.loads(pickle.dumps(environment))
    for task in pickle.loads(pickle.dumps(list(environment.split("seen").tasks))):
        env = there.make_env()
        assert env.reset(task).startswith("Goal: x.\n")
        assert [env.step(action) for action in environment.expert_actions(task)][-1].success
    assert (tmp_path / "cache").is_dir() and not Path("cache").exists()


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published games are not here")
def test_the_expert_wins_every_published_valid_seen_game_in_time(tmp_path):
    environment = make({**options_of(SHARED), "cache_dir": str(tmp_path)})
    tasks = environment.split("seen").tasks
    assert len(tasks) == 140
    env, steps = environment.make_env(), []
    for task in tasks:
        env.reset(task)
        results = [env.step(action) for action in environment.expert_actions(task)]
        assert results[-1].success and sum(result.reward for result in results) == 1
        steps.append(len(results))
    assert max(steps) <= 20


# --- processes


def test_nothing_heavy_is_imported():
    """Workers stay light, and scripts beside the official engine need the standard library alone."""
    environment = (
        "import sys; from jaxmtrl.envs.alfworld import make; e = make({}); t = e.split('heldout').tasks[0]; "
        "e.make_env().reset(t); assert e.expert_actions(t); "
        "assert not {'jax', 'flax', 'textworld', 'jericho', 'alfworld'} & set(sys.modules)"
    )
    generator = (
        "import sys, jaxmtrl.envs.alfworld.generator; assert not {'jax', 'numpy', 'pydantic'} & set(sys.modules)"
    )
    for code in (environment, generator):
        subprocess.run([sys.executable, "-c", code], check=True)
