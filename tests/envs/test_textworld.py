"""TextWorld with real games: built once, won by their experts, safe against what a language model may type."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jericho")
pytest.importorskip("tatsu")

from jaxmtrl.envs.actions import REFUSED, UNTAGGED, with_tags
from jaxmtrl.envs.help import describe_environments
from jaxmtrl.envs.textworld import SplitOptions, TextWorldOptions, make
from jaxmtrl.envs.textworld_games import GameSpec, build_games, is_made, level_sizes, read_info
from jaxmtrl.envs.textworld_player import TextWorldEnv, read_screen, refuses
from jaxmtrl.errors import ConfigError, EnvironmentFailure
from jaxmtrl.types import Task

SPLITS = {
    "train": {"first_seed": 101, "count": 2},
    "heldout": {"first_seed": 1, "count": 1},
}


def nothing(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """Three plain custom games and a dense simple one, built by one process, which parses its rules once."""
    folder = tmp_path_factory.mktemp("textworld")
    tasks = [(task, "basic") for name in SPLITS for task in make(custom_options(folder)).split(name).tasks]
    tasks += [(task, "house") for task in make(simple_options(folder)).split("train").tasks]
    specs = [
        GameSpec(level=task.payload["level"], theme=theme, seed=task.seed, path=task.payload["path"])
        for task, theme in tasks
    ]
    build_games(specs, 1, nothing)
    return folder


def custom_options(folder: Path) -> dict:
    return {"theme": "basic", "cache_dir": str(folder), "splits": SPLITS}


def simple_options(folder: Path) -> dict:
    splits = {"train": {"first_seed": 1, "count": 1}}
    return {"games": "simple", "reward_density": "dense", "cache_dir": str(folder), "splits": splits}


@pytest.fixture(scope="session")
def custom(cache):
    """An environment of small plain games, all of them made, and its options."""
    environment = make(custom_options(cache))
    environment.prepare([task for name in SPLITS for task in environment.split(name).tasks], nothing)
    return environment, custom_options(cache)


@pytest.fixture(scope="session")
def simple(cache):
    """The fixed house, which can be lost by eating the food."""
    return make(simple_options(cache))


def play(environment, task, actions):
    env = environment.make_env()
    observations, results = [env.reset(task)], []
    for action in actions:
        results.append(env.step(action))
        observations.append(results[-1].observation)
        if results[-1].done or results[-1].truncated:
            break
    env.close()
    return observations, results


# --- options, splits, levels: no game needed


def test_level_names():
    assert level_sizes("w2-o3-q4") == (2, 3, 4)
    assert [level_sizes(name) for name in ("w2-o3", "w0-o3-q4", "w2-o3-q4-x", "")] == [None] * 4


def test_the_study_splits_are_the_default():
    environment = make({})
    assert environment.split_names() == ("train", "heldout", "harder", "w8-o3-q4", "w2-o12-q4", "w8-o12-q4")
    train, heldout, harder = (environment.split(name).tasks for name in ("train", "heldout", "harder"))
    assert [len(tasks) for tasks in (train, heldout, harder)] == [5000, 100, 100]
    assert (train[0].id, train[-1].seed, heldout[0].id) == ("w2-o3-q4/30001", 35000, "w2-o3-q4/1")
    # three steps a command of the quest: 12 and 24
    assert (train[0].payload["max_steps"], harder[0].payload["max_steps"], environment.max_steps) == (12, 24, 24)
    assert os.path.isabs(train[0].payload["path"]) and len(pickle.dumps(train[0])) < 500
    # a level that is trained on needs no second test split of its own
    assert "w8-o3-q4" not in make({"level": "w8-o3-q4"}).split_names()


def test_all_mistakes_in_options_at_once():
    with pytest.raises(ConfigError) as caught:
        make({"theem": "basic", "max_steps": 0, "splits": {"train": {"count": 1}}})
    text = str(caught.value)
    assert "env.options.theem: unknown option; did you mean theme?" in text
    assert "env.options.max_steps: got 0, wanted integer or null >= 1 (steps before a game is cut" in text
    assert "env.options.splits.train.first_seed: missing, wanted integer >= 0 and < 2147483648" in text
    assert len(caught.value.mistakes) == 3
    with pytest.raises(ConfigError) as caught:
        make(
            {
                "level": "big",
                "splits": {
                    "train": {"first_seed": 1, "count": 10, "level": "w2-o3-q4"},
                    "heldout": {"first_seed": 10, "count": 5, "level": "w2-o3-q4"},
                    "harder": {"first_seed": 1, "count": 5, "level": "w4-o6-q8"},  # other level: no clash
                },
            }
        )
    assert len(caught.value.mistakes) == 2
    assert "train and env.options.splits.heldout share 1 seeds of w2-o3-q4, from 10 on" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"theme": "plane"}, 'env.options.theme: got "plane", wanted house | basic | plain .*; did you mean plain?'),
        ({"max_steps": "12"}, 'env.options.max_steps: got "12", wanted integer'),
        ({"show_admissible": 1}, "env.options.show_admissible: got 1, wanted true or false"),
        ({"splits": {"a": {"first_seed": 1, "cont": 2}}}, "env.options.splits.a.cont: unknown .*; did you mean count?"),
        ({"splits": {"a": {"first_seed": 1, "count": 2, "exclude": [1, "x"]}}}, 'exclude[1]: got "x", wanted list of'),
        ({"splits": {"a": 3}}, "env.options.splits.a: got 3, wanted mapping of name to fields"),
        ({"splits": [1]}, "env.options.splits: got [1], wanted mapping of name to fields"),
    ],
)
def test_one_wrong_option_is_one_sentence(options, sentence):
    pattern = ".*".join(re.escape(part) for part in sentence.split(".*"))
    with pytest.raises(ConfigError, match=pattern):
        make(options)


def test_help_lists_every_option_of_the_environments():
    page = describe_environments()
    for field in (
        *TextWorldOptions.__dataclass_fields__,
        *(f"splits.NAME.{f}" for f in SplitOptions.__dataclass_fields__),
    ):
        assert f"  env.options.{field} " in page
    assert "env.factory jaxmtrl.envs.toy:make" in page and "(house | basic | plain)" in page


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"invalid_action_penalty": 0.09}, "0.09 times max_steps 12 must stay below 1 with reward score"),
        ({"invalid_action_penalty": 0.05, "reward": "progress"}, "below 0.5 with reward progress.*0.033 would do"),
        ({"observation": "state", "show_inventory": True}, "show_inventory means nothing with .* state"),
        ({"games": "simple", "theme": "plain"}, "theme plain means nothing with env.options.games: simple"),
    ],
)
def test_options_that_do_not_go_together(options, part):
    splits = {"train": {"first_seed": 1, "count": 1}}
    with pytest.raises(ConfigError, match=part) as caught:
        make({"splits": splits, **options})
    assert len(caught.value.mistakes) == 1


def test_excluded_seeds_are_no_tasks():
    splits = {"train": {"first_seed": 1, "count": 3, "exclude": [2]}, "heldout": {"first_seed": 2, "count": 1}}
    assert [task.seed for task in make({"splits": splits}).split("train").tasks] == [1, 3]


# --- text in, text out: no game needed


@pytest.mark.parametrize(
    "command",
    ["", " ", "\x00", "look\x00", "\\x", "\\help", "\\s", "look. look", "look then look", "look\nquit\nyes", "save"]
    + ["restart", "quit", "RESTORE", "script", "transcript on", "undo", "again", "g", "oops box", "verbose", "score"]
    + ["tw-print max_score", "restrict commands", "enable print state option", "print_state", "take all", "x, y"]
    + ["take box and key", "l" * 199, "look 👀", "é", 'say "look"', "look;look", "look\tlook", "look\r"],
)
def test_hostile_commands_are_refused(command):
    assert refuses(command)


@pytest.mark.parametrize(
    "command",
    ["look", "n", "go north", "take Z-key from box44", "take Henderson's type 4 passkey", "unlock chest", "l" * 198]
    + ["put half of a bag of chips on stove", "examine Quote of the Day Calendar"],
)
def test_plain_commands_pass(command):
    assert not refuses(command)


def test_goal_is_refused_only_where_it_would_tell():
    assert refuses("goal", goal_hidden=True) and not refuses("goal")


def test_a_screen_is_taken_apart():
    raw = "\nYou open it.\n\n\n<inventory>\nYou are carrying nothing.\n\n</inventory>\n>      -= The Room =-0/12"
    screen = read_screen(raw)
    assert (screen.text, screen.inventory, screen.score, screen.moves) == (
        "You open it.",
        "You are carrying nothing.",
        0,
        12,
    )
    end = "\nTaken.\n\n   *** The End ***\n\nYou scored 2 out of a possible 2, in 5 turns.\n\nQUIT?\n>    -= R =-0/4"
    assert (read_screen(end).text, read_screen(end).score, read_screen(end).won) == ("Taken.\nYou win.", 2, True)
    assert read_screen("\nGone.\n *** You lost! ***\n").lost and read_screen("no status").moves is None


# --- real games


def test_experts_win_with_return_one_and_no_invalid_action(custom):
    environment, _ = custom
    for name in SPLITS:
        for task in environment.split(name).tasks:
            observations, results = play(environment, task, environment.expert_actions(task))
            assert results[-1].success and results[-1].done and not results[-1].truncated
            assert [result.reward for result in results] == [0.0] * (len(results) - 1) + [1.0]
            assert not any(result.metrics["invalid_action"] for result in results)
            assert observations[0].startswith("Goal: ") and "\n[Room" in observations[0]
            assert not any(
                mark in text for text in observations for mark in ("-=", "$$", "\n>", "\n\n", "<", "RESTART")
            )


def test_the_same_seed_is_the_same_game(custom):
    """What this release of TextWorld makes of seed 1: if it moves, published numbers are about other games."""
    environment, options = custom
    task = environment.split("heldout").tasks[0]
    info = read_info(task.payload["path"])
    assert info.walkthrough == [
        "take Z-key from box44",
        "unlock Z-box with Z-key",
        "open Z-box",
        "take thing7 from Z-box",
    ]
    assert info.objective == (
        "First, take the Z-key from the box44. Next, unlock Z-box with Z-key. Next, open Z-box. "
        "Next, take the thing7 from the Z-box."
    )
    assert info.max_score == 1 and "thing7" in info.goal and "unlock" not in info.goal
    actions = ["look", "inventory", "n", "take Z-key from box44", "xyzzy", "s", "drop Z-key"]
    assert play(environment, task, actions) == play(make(options), task, actions)


def test_steps_run_out_and_bad_commands_cost_one(custom):
    _, options = custom
    environment = make({**options, "max_steps": 4})
    task = environment.split("heldout").tasks[0]
    _, results = play(environment, task, ["save", "xyzzy", "take moon", "look"])
    assert [result.metrics["invalid_action"] for result in results] == [1.0, 1.0, 1.0, 0.0]
    assert [result.truncated for result in results] == [False, False, False, True]
    assert results[0].observation == REFUSED and not results[-1].done and not results[-1].success


def test_hostile_play_neither_hangs_nor_cheats_nor_writes(custom, tmp_path, monkeypatch):
    environment, options = custom
    monkeypatch.chdir(tmp_path)
    environment = make({**options, "max_steps": 50})
    task = environment.split("heldout").tasks[0]
    expert = list(environment.expert_actions(task))
    hostile = ["\x00", "\\x", "\\help", ". ".join(expert), " then ".join(expert), "look\nquit\nyes", "save", "script"]
    hostile += ["restart", "yes", "quit", "y", "verbose", "x" * 500, "🙂", "", "take Z-key and box44", "again"]
    started = time.monotonic()
    _, results = play(environment, task, [*hostile, *expert])
    assert time.monotonic() - started < 5
    assert len(results) == len(hostile) + len(expert) and results[-1].success  # the game was never touched
    assert sum(result.reward for result in results) == 1.0
    assert list(tmp_path.iterdir()) == []


def test_after_the_end_only_reset_may_follow(custom):
    environment, _ = custom
    task = environment.split("heldout").tasks[0]
    env = environment.make_env()
    env.reset(task)
    results = [env.step(action) for action in environment.expert_actions(task)]
    assert results[-1].success
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("look")
    assert env.reset(task) == play(environment, task, [])[0][0]
    env.close()


def test_hidden_objective_tells_only_the_last_step(custom):
    _, options = custom
    environment = make({**options, "show_objective": "hidden"})
    task = environment.split("heldout").tasks[0]
    observations, results = play(environment, task, ["goal", *environment.expert_actions(task)])
    assert "thing7" in observations[0].split("\n")[0] and "unlock" not in observations[0]
    assert observations[1] == REFUSED and results[-1].success


def test_admissible_inventory_and_description_are_shown(custom):
    _, options = custom
    shown = {"show_admissible": True, "show_inventory": True, "show_description": True}
    environment = make({**options, **shown})
    task = environment.split("heldout").tasks[0]
    expert = list(environment.expert_actions(task))
    observations, results = play(environment, task, ["xyzzy", *expert])
    assert results[-1].success and not any(result.metrics["invalid_action"] for result in results[1:])
    listed = [text.split("You can: ")[1].rstrip(".").split("; ") for text in observations[:-1]]
    assert all(action in commands for action, commands in zip(expert, listed[1:], strict=True))
    assert listed[0] == listed[1]  # an invalid action changes nothing
    assert "You are carrying nothing." in observations[0] and "You are carrying: a Z-key." in observations[2]
    assert observations[2].count("[Room54]") == 1 and "[" not in observations[2].replace("[Room54]", "")


def test_progress_pays_every_step_on_the_way_and_nothing_for_circles(custom):
    _, options = custom
    environment = make({**options, "reward": "progress"})
    task = environment.split("heldout").tasks[0]
    expert = list(environment.expert_actions(task))
    observations, results = play(environment, task, expert)
    # four commands win: an eighth for each, and half for the score at the end
    assert [result.reward for result in results] == [0.125, 0.125, 0.125, 0.625] and results[-1].success
    assert "You can:" not in observations[0]  # what is shown does not change
    circle = [expert[0], "drop Z-key", "take Z-key", "xyzzy", *expert[1:]]
    _, results = play(environment, task, circle)
    assert results[-1].success and sum(result.reward for result in results) == 1.0
    assert [result.reward for result in results[:4]] == [0.125, -0.125, 0.125, 0.0]


@pytest.mark.parametrize("shown", [{}, {"show_admissible": True}])
def test_progress_is_told_whoever_asks_and_changes_nothing_else(custom, shown):
    """Four commands win: a quarter each; a way back takes one off, and nothing an action that changes nothing."""
    _, options = custom
    environment = make({**options, **shown})
    task = environment.split("heldout").tasks[0]
    expert = list(environment.expert_actions(task))
    circle = [expert[0], "drop Z-key", "take Z-key", "xyzzy", *expert[1:]]
    env = environment.make_env()
    observations, told = [env.reset(task)], [env.progress()]
    for action in circle[:-1]:
        observations.append(env.step(action).observation)
        told.append(env.progress())
    assert told == [0.0, 0.25, 0.0, 0.25, 0.25, 0.5, 0.75]
    last = env.step(circle[-1])
    assert last.success and last.reward == 1.0
    assert [*observations, last.observation] == play(environment, task, circle)[0]
    assert env.reset(task) == observations[0] and env.progress() == 0.0
    env.close()


def test_progress_is_first_asked_for_after_a_reset(custom):
    environment, _ = custom
    task = environment.split("heldout").tasks[0]
    env = environment.make_env()
    with pytest.raises(RuntimeError, match="right after a reset"):
        env.progress()
    env.reset(task)
    env.step("look")
    with pytest.raises(RuntimeError, match="right after a reset"):
        env.progress()
    env.close()


def test_own_returns_are_those_of_the_games_that_are_played(custom, simple):
    """One point: nothing but a win is paid. The dense house has 7, 8 or 10; a penalty comes off a win."""
    environment, options = custom
    tasks = environment.split("train").tasks
    assert all(read_info(task.payload["path"]).max_score == 1 for task in tasks)
    told = environment.own_returns(tasks)
    assert (told.win_least, told.other_most, told.step_least) == (1.0, 0.0, 0.0)
    told = make({**options, "invalid_action_penalty": 0.01, "reward": "progress"}).own_returns(tasks)
    assert (told.win_least, told.other_most, told.step_least) == (pytest.approx(0.88), 0.5, pytest.approx(-0.51))
    house = simple.split("train").tasks
    points = read_info(house[0].payload["path"]).max_score
    assert points in (7, 8, 10) and simple.own_returns(house).other_most == pytest.approx(1 - 1 / points)


def test_admissible_actions_are_what_is_listed_and_none_after_the_end(custom):
    _, options = custom
    environment = make({**options, "show_admissible": True})
    task = environment.split("heldout").tasks[0]
    env = environment.make_env()
    listed = env.reset(task).split("You can: ")[1].rstrip(".").split("; ")
    assert env.admissible() == listed and "take Z-key from box44" in listed
    for action in environment.expert_actions(task):
        env.step(action)
    assert env.admissible() == []
    env.close()
    assert make(options).make_env().admissible() == []


def test_observations_by_the_template_tell_the_state_and_what_the_command_did(custom):
    _, options = custom
    environment = make({**options, "observation": "state", "show_admissible": True})
    task = environment.split("heldout").tasks[0]
    observations, results = play(environment, task, ["xyzzy", " ", *environment.expert_actions(task)])
    labels = ["[Room]", "[Items]", "[Inventory]", "[Exits]", "[Goal]"]
    for turn, observation in enumerate(observations):
        starts = [line.split()[0] for line in observation.splitlines()]
        assert starts == labels + ["[Feedback]"] * (turn > 0) + ["You"]
        assert observation.splitlines()[4] == observations[0].splitlines()[4]
    assert "[Feedback] That's not a verb I recognise." in observations[1]
    assert f"[Feedback] {REFUSED}" in observations[2]
    assert "[Inventory] Z-key" in "\n".join(observations[2:]) and results[-1].success


def test_where_it_thinks_the_command_stands_between_tags(custom):
    _, options = custom
    plain, thinking = make(options), make({**options, "think": True, "show_admissible": True})
    task = plain.split("heldout").tasks[0]
    commands, actions = plain.expert_actions(task), thinking.expert_actions(task)
    assert actions == [with_tags(command) for command in commands]
    env = thinking.make_env()
    assert with_tags(commands[0]) in [env.reset(task), *env.admissible()]
    env.close()
    thoughts = [commands[0], f"First <action>{commands[0]}</action>", *actions[1:]]
    observations, results = play(thinking, task, thoughts)
    assert observations[1].startswith(UNTAGGED) and results[0].metrics["invalid_action"] == 1.0
    assert results[-1].success and len(results) == len(commands) + 1


def test_plain_names_have_one_digit(cache):
    options = {**custom_options(cache), "theme": "plain", "splits": {"train": SPLITS["train"]}}
    environment = make(options)
    tasks = environment.split("train").tasks
    environment.prepare(tasks, nothing)
    text = " ".join(read_info(task.payload["path"]).objective for task in tasks)
    assert re.search(r"[a-z]\d", text) and not re.search(r"\d\d", text)
    assert all(play(environment, task, environment.expert_actions(task))[1][-1].success for task in tasks)


def test_workers_play_from_another_folder(cache, custom, tmp_path, monkeypatch):
    _, options = custom
    monkeypatch.chdir(cache.parent)
    environment = make({**options, "cache_dir": cache.name})  # relative to where the run was started
    task = environment.split("heldout").tasks[0]
    monkeypatch.chdir(tmp_path)
    assert play(environment, task, [])[0][0].startswith("Goal: ")


def test_warming_up_opens_one_game_and_nothing_where_none_is_made(custom, tmp_path, monkeypatch):
    environment, options = custom
    opened = []
    monkeypatch.setattr(TextWorldEnv, "reset", lambda self, task: opened.append(task.seed))
    environment.warm_up()
    assert opened == [101]
    make({**options, "cache_dir": str(tmp_path)}).warm_up()
    assert opened == [101]


def test_a_missing_game_says_what_to_do(tmp_path):
    environment = make({"cache_dir": str(tmp_path)})
    task = environment.split("train").tasks[0]
    for call in (environment.make_env().reset, environment.expert_actions):
        with pytest.raises(EnvironmentFailure, match=r"30001\.z8 has not been made; run scripts/make_games.py"):
            call(task)


def test_listing_tasks_and_experts_imports_no_simulator(custom):
    _, options = custom
    code = (
        f"import sys; from jaxmtrl.envs.textworld import make; e = make({options!r}); t = e.split('train').tasks; "
        "assert e.expert_actions(t[0]); e.prepare(t, lambda a, b: None); "
        "assert not {'textworld', 'jericho', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("trained", ["train", "train-again"])
def test_two_games_that_are_the_same_are_refused(tmp_path, trained):
    """Different seeds can make one game: here the held-out page is a copy of a training page."""
    splits = {trained: {"first_seed": 5, "count": 1}, "heldout": {"first_seed": 9, "count": 1}}
    environment = make({"cache_dir": str(tmp_path), "splits": splits})
    page = {"objective": "win", "goal": "win", "walkthrough": ["look"], "max_score": 1}
    tasks = [environment.split(name).tasks[0] for name in splits]
    for task in tasks:
        path = Path(task.payload["path"]).with_suffix(".meta.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(page))
    with pytest.raises(ConfigError, match=rf"heldout: seed 9 makes the same game as seed 5 of {trained}; add it to"):
        environment.prepare(tasks, nothing)


def test_losing_is_done_without_success(simple):
    task = simple.split("train").tasks[0]
    expert = list(simple.expert_actions(task))
    food = expert[-1].removeprefix("put ").removesuffix(" on stove")
    taken = next(i for i, action in enumerate(expert) if action.startswith(f"take {food}"))
    _, results = play(simple, task, [*expert[: taken + 1], f"eat {food}"])
    assert results[-1].done and not results[-1].success and not results[-1].truncated
    assert sum(result.reward for result in results) < 1.0


def test_a_lost_game_keeps_no_progress(cache):
    """TextWorld knows no commands to win by then, which must not be taken for having won."""
    simple = make({**simple_options(cache), "reward": "progress"})
    task = simple.split("train").tasks[0]
    expert = list(simple.expert_actions(task))
    food = expert[-1].removeprefix("put ").removesuffix(" on stove")
    taken = next(i for i, action in enumerate(expert) if action.startswith(f"take {food}"))
    _, results = play(simple, task, [*expert[: taken + 1], f"eat {food}"])
    assert results[-1].done and not results[-1].success
    # seven of nine commands were done: half of 7/9 for progress is taken back
    np.testing.assert_allclose(results[-1].reward, -0.5 * 7 / 9, atol=1e-9)


def test_dense_rewards_add_up_to_one(simple):
    task = simple.split("train").tasks[0]
    _, results = play(simple, task, simple.expert_actions(task))
    # seed 1: nine commands, eight sub-goals worth 1/8 each; only "go north" on the way back reaches none
    assert [result.reward * 8 for result in results] == [1, 1, 1, 1, 1, 1, 1, 0, 1]
    assert results[-1].success


def test_two_runs_that_build_at_once_both_end_with_whole_games(tmp_path, custom):
    code = (
        "import sys; from jaxmtrl.envs.textworld_games import GameSpec, build_game; "
        f"build_game(GameSpec(level='w2-o3-q4', theme='basic', seed=1, path={str(tmp_path / 'deep' / '1.z8')!r}))"
    )
    racers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [racer.wait(timeout=60) for racer in racers] == [0, 0]
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["1.json", "1.meta.json", "1.z8"]
    environment, _ = custom
    info = read_info(str(tmp_path / "deep" / "1.z8"))
    assert info == read_info(environment.split("heldout").tasks[0].payload["path"])
    payload = {"path": str(tmp_path / "deep" / "1.z8"), "level": "w2-o3-q4", "max_steps": 12}
    _, results = play(environment, Task(id="x", seed=1, payload=payload), info.walkthrough)
    assert results[-1].success


def test_a_failed_build_names_level_and_seed(tmp_path, custom):
    reports: list[tuple[int, int]] = []
    (tmp_path / "file").write_text("no folder")
    made = custom[0].split("heldout").tasks[0].payload["path"]
    specs = [
        GameSpec(level="w2-o3-q4", theme="basic", seed=seed, path=path)
        for seed, path in ((1, made), (77, str(tmp_path / "file" / "77.z8")))
    ]
    with pytest.raises(EnvironmentFailure, match=r"w2-o3-q4 \(basic\) with seed 77"):
        build_games(specs, 1, lambda done, total: reports.append((done, total)))
    assert reports == [(1, 2)] and is_made(made)


def test_a_game_is_the_one_that_textworld_itself_would_make(custom, tmp_path):
    """The builder shares parsed rules and leaves out Inform's index: walkthrough, page and Z-code stay the same."""
    code = (
        "import json, sys; from jaxmtrl.envs import textworld_games as g\n"
        "from textworld.generator import compile_game; from textworld.generator.data import KnowledgeBase\n"
        "spec = g.GameSpec(level='w2-o3-q4', theme='basic', seed=102, path=sys.argv[1])\n"
        "options = g._game_options(spec, spec.path); options.kb = KnowledgeBase.load()\n"
        "game, info = g._make_custom(options); compile_game(game, options)\n"
        "print(json.dumps(info.__dict__))"
    )
    theirs = tmp_path / "102.z8"
    run = [sys.executable, "-c", code, str(theirs)]
    out = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    ours = Path(custom[0].split("train").tasks[1].payload["path"])
    assert json.loads(out.splitlines()[-1]) == read_info(str(ours)).__dict__
    assert ours.read_bytes() == theirs.read_bytes()
    assert ours.with_suffix(".json").read_text() == theirs.with_suffix(".json").read_text()


def test_a_seed_is_the_same_game_as_on_textworlds_command_line(custom, tmp_path):
    """The Python interface's defaults give other games for the same seed; the study made its games by `tw-make`."""
    theirs = tmp_path / "102.z8"
    sizes = ["--world-size", "2", "--nb-objects", "3", "--quest-length", "4", "--theme", "basic"]
    maker = Path(sys.executable).with_name("tw-make")
    run = [maker, "custom", *sizes, "--seed", "102", "--output", theirs, "--silent"]
    subprocess.run(run, check=True, capture_output=True)
    ours = Path(custom[0].split("train").tasks[1].payload["path"])
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    """INFORM_HOME may name a folder of the user's own; what its compiler said is in the error."""
    compilers = tmp_path / "share" / "inform7" / "Compilers"
    compilers.mkdir(parents=True)
    (compilers / "ni").write_text("#!/bin/sh\necho 'the world is too big'; exit 3\n")
    (compilers / "ni").chmod(0o755)
    monkeypatch.setenv("INFORM_HOME", str(tmp_path))
    spec = GameSpec(level="w2-o3-q4", theme="basic", seed=5, path=str(tmp_path / "games" / "5.z8"))
    with pytest.raises(EnvironmentFailure, match=r"seed 5: .*ni ended with exit code 3: the world is too big"):
        build_games([spec], 1, nothing)
    assert list((tmp_path / "games").iterdir()) == []


def test_an_invalid_action_costs_its_penalty_and_a_win_still_pays_more_than_any_loss(custom):
    """Nonsense earns -0.05, an understood command 0; 0.2 a step could outweigh a win and is refused."""
    options = custom[1] | {"invalid_action_penalty": 0.05, "max_steps": 12}
    _, results = play(make(options), custom[0].split("train").tasks[0], ["xyzzy", "a. b", "look"])
    assert [result.reward for result in results] == [pytest.approx(-0.05), pytest.approx(-0.05), 0.0]
    with pytest.raises(ConfigError, match="invalid_action_penalty 0.2 times max_steps"):
        make(options | {"invalid_action_penalty": 0.2})


_BUILDER = """
import sys
from jaxmtrl.envs.textworld_games import GameSpec, build_games

if __name__ == "__main__":
    specs = [GameSpec(level="w2-o3-q4", theme="basic", seed=n, path=f"{sys.argv[1]}/{n}.z8") for n in range(1000)]
    build_games(specs, 1, lambda done, total: print(done, flush=True))
"""


def test_builders_end_when_their_run_is_killed(tmp_path):
    script = tmp_path / "build.py"
    script.write_text(_BUILDER)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 30
    while not (children := _children(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    while any(_alive(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children and not any(_alive(child) for child in children)


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
