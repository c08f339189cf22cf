"""ALFWorld as it is played: what is read, what is understood, what is paid, and when it ends."""

from __future__ import annotations

import json
import lzma
import random

import pytest
from small_room import Place, Thing, place_goal, problem_text

from jaxmtrl.envs.actions import REFUSED, UNTAGGED
from jaxmtrl.envs.alfworld import make
from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import KINDS
from jaxmtrl.envs.alfworld.generator import COMPLEXITIES, complexity, generate
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.problem import read_problem

SMALL = {"complexity": "small", "splits": {"train": {"first_seed": 30001, "count": 12}}}


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


def total(results) -> float:
    return sum(result.reward for result in results)


def test_a_game_reads_like_this():
    environment = make(SMALL)
    task = environment.split("train").tasks[0]
    observations, results = play(environment, task, environment.expert_actions(task))
    assert observations == [
        "Goal: put a peppershaker in shelf.\n"
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, a drawer 1, "
        "a fridge 1, a garbagecan 1, a shelf 1, a stoveburner 1, and a toaster 1.",
        "You arrive at cabinet 1. The cabinet 1 is closed.",
        "You open the cabinet 1. The cabinet 1 is open. In it, you see a peppershaker 1.",
        "You pick up the peppershaker 1 from the cabinet 1.",
        "You arrive at shelf 1. On the shelf 1, you see nothing.",
        "You move the peppershaker 1 to the shelf 1.",
    ]
    assert [result.reward for result in results] == [0, 0, 0, 0, 1]
    assert results[-1].done and results[-1].success and not results[-1].truncated


@pytest.mark.parametrize("reward", ["score", "progress"])
@pytest.mark.parametrize("size", COMPLEXITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_experts_win_with_return_one_and_no_invalid_action(kind, size, reward):
    split = {"first_seed": 500, "count": 3, "weights": {kind: 1}, "complexity": size}
    environment = make({"reward": reward, "splits": {"a": split, "b": {**split, "scenes": "unseen"}}})
    for task in (task for name in ("a", "b") for task in environment.split(name).tasks):
        observations, results = play(environment, task, environment.expert_actions(task))
        assert results[-1].success and results[-1].done and not results[-1].truncated
        assert total(results) == pytest.approx(1)
        assert not any(result.metrics["invalid_action"] for result in results)
        assert not any(mark in text for text in observations for mark in ("-=", "\n\n", "Your task", "You can:"))
        game = generate(complexity(size, kinds=(kind,), scenes=task.payload["scenes"]), task.seed)
        assert observations[0].startswith(f"Goal: {game.task}.\nYou are in the middle of a room.")


def test_steps_run_out_and_what_is_no_command_costs_one():
    environment = make({**SMALL, "max_steps": 4, "invalid_action_penalty": 0.1})
    task = environment.split("train").tasks[0]
    _, results = play(environment, task, ["dance", "look\ninventory", "take mug 9 from shelf 1", "look"])
    assert [result.observation for result in results[:3]] == ["Nothing happens.", REFUSED, "Nothing happens."]
    assert [result.metrics["invalid_action"] for result in results] == [1, 1, 1, 0]
    assert [result.reward for result in results] == [pytest.approx(-0.1)] * 3 + [0]
    assert [result.truncated for result in results] == [False, False, False, True]
    assert not results[-1].done and not results[-1].success


def test_a_win_at_the_last_step_is_no_cut():
    environment = make({**SMALL, "max_steps": 5})
    task = environment.split("train").tasks[0]
    _, results = play(environment, task, environment.expert_actions(task))
    assert len(results) == 5 and results[-1].done and not results[-1].truncated


def test_after_the_end_only_reset_may_follow():
    environment = make({**SMALL, "show_admissible": True})
    task = environment.split("train").tasks[0]
    env = environment.make_env()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("look")
    first = env.reset(task)
    results = [env.step(action) for action in environment.expert_actions(task)]
    assert results[-1].success and "You can:" not in results[-1].observation and env.admissible() == []
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("take peppershaker 1 from shelf 1")
    assert env.reset(task) == first
    env.close()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("look")


def test_what_a_policy_may_type():
    environment = make({**SMALL, "max_steps": 99})
    task = environment.split("train").tasks[0]
    odd = ["", " \n", "x" * 201, "look\nlook", "\x00", "🙂", "go to", "put", "put  in/on ", "<action>look</action>"]
    _, results = play(environment, task, [*odd, *environment.expert_actions(task)])
    assert all(result.metrics["invalid_action"] for result in results[: len(odd)])
    assert [result.observation for result in results[:4]] == [REFUSED] * 4
    assert results[-1].success and total(results) == 1  # nothing of it touched the game
    _, results = play(environment, task, ["  Go to  CABINET 1\n", "Inventory", "help"])
    assert not any(result.metrics["invalid_action"] for result in results)
    assert results[2].observation.startswith("Available commands:") and results[2].observation.endswith("sharp object")


def test_admissible_actions_are_those_that_change_something():
    environment = make({**SMALL, "show_admissible": True})
    rng = random.Random(0)
    for task in environment.split("train").tasks:
        env = environment.make_env()
        text = env.reset(task)
        for action in (None, *environment.expert_actions(task)[:-1]):
            if action is not None:
                assert action in env.admissible()
                text = env.step(action).observation
            listed = text.split("\nYou can: ")[1].rstrip(".").split("; ")
            assert listed == env.admissible() and any(command.startswith("go to ") for command in listed)
            assert not {command.split()[0] for command in listed} & {"look", "inventory", "help", "examine"}
        before = env.state()
        env.step(rng.choice([command for command in env.admissible() if command.startswith(("go", "open", "take"))]))
        assert env.state() != before
    shown = env.step("nonsense").observation
    assert shown.startswith("Nothing happens.\nYou can: ")
    assert make(SMALL).make_env().admissible() == []  # no game yet


# --- progress


def test_progress_adds_up_to_where_the_play_ends():
    """After every step the rewards so far are half of 1 - commands left / commands at the start, kept in 0..1."""
    environment = make({**SMALL, "reward": "progress", "max_steps": 40})
    rng = random.Random(3)
    seen = set()
    for task in environment.split("train").tasks:
        env = environment.make_env()
        env.reset(task)
        game = generate(complexity("small", kinds=(task.payload["kind"],)), task.seed)
        world = World(read_problem(game.problem), game.task)
        whole, paid = len(plan(world)), 0.0
        for _ in range(30):
            # the expert's next command now and then, so that some plays get somewhere
            ahead = plan(world)
            action = ahead[0] if rng.random() < 0.4 else rng.choice(world.admissible())
            result, _ = env.step(action), world.step(action)
            paid += result.reward
            left = plan(world)
            assert left is not None
            potential = max(0.0, 1 - len(left) / whole)
            assert paid == pytest.approx((potential + result.success) / 2)
            seen.add(round(potential, 2))
            if result.done:
                break
    assert 1.0 in seen and len(seen) > 10


def test_walking_in_circles_earns_nothing():
    environment = make({**SMALL, "reward": "progress"})
    task = environment.split("train").tasks[0]
    expert = environment.expert_actions(task)
    circle = [*expert[:3], "move peppershaker 1 to cabinet 1", "take peppershaker 1 from cabinet 1", "look", "xyzzy"]
    _, results = play(environment, task, [*circle, *expert[3:]])
    # five commands win: a tenth for each; back and forth takes one and gives it again
    assert [round(result.reward, 6) for result in results] == [0.1, 0.1, 0.1, -0.1, 0.1, 0, 0, 0.1, 0.6]
    assert results[-1].success and total(results) == pytest.approx(1)


def test_where_winning_has_become_impossible_progress_is_nothing(tmp_path):
    """The bear fits nowhere: who picks it up can never let go of it."""
    places = {"t": Place("Table", 1), "b": Place("Box", 2)}
    things = {"a": Thing("Apple", ["b"]), "bear": Thing("Bear", ["b"])}
    text = problem_text(places, things, place_goal("Apple", "Table"), refuses=[("Box", "Bear"), ("Table", "Bear")])
    row = {"id": f"{KINDS[0]}-Apple-None-Table-1/trial_x", "type": KINDS[0], "task": "x", "pddl_problem": text}
    with lzma.open(tmp_path / "train.jsonl.xz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    options = {"data": str(tmp_path), "cache_dir": str(tmp_path / "cache"), "splits": {"train": {"source": "train"}}}
    with pytest.warns(UserWarning, match="has 1 games"):
        environment = make({**options, "reward": "progress"})
        (task,) = environment.split("train").tasks
    _, results = play(environment, task, ["go to box 1", "take bear 1 from box 1", "go to table 1"])
    # go, take, go, move win: a quarter of the way, then none
    assert [result.reward for result in results] == [0.125, -0.125, 0] and not results[-1].done


# --- thinking, state, wording


def test_who_thinks_marks_the_command():
    environment = make({**SMALL, "think": True, "invalid_action_penalty": 0.01, "show_admissible": True})
    task = environment.split("train").tasks[0]
    expert = environment.expert_actions(task)
    assert expert[0] == "<action>go to cabinet 1</action>"
    env = environment.make_env()
    assert "You can: go to cabinet 1; " in env.reset(task)
    assert env.admissible()[0] == "<action>go to cabinet 1</action>"
    plain = env.step("go to cabinet 1")
    assert plain.observation.startswith(UNTAGGED) and plain.reward == -0.01 and plain.metrics["invalid_action"] == 1
    assert env.step("<action>look\nlook</action>").observation.startswith(REFUSED)
    long = "It may be in <action>fridge 1</action>.\n" * 30
    results = [env.step(f"{long}{action}") for action in expert]
    assert results[-1].success and not any(result.metrics["invalid_action"] for result in results)


def test_a_repeated_goal_ends_every_observation_before_the_list():
    environment = make({**SMALL, "repeat_goal": True, "show_admissible": True})
    task = environment.split("train").tasks[0]
    env = environment.make_env()
    first, then = env.reset(task).splitlines(), env.step("go to cabinet 1").observation.splitlines()
    plain = make(SMALL).make_env().reset(task).splitlines()
    assert first[:2] == [plain[1], plain[0]] and first[1].startswith("Goal: ") and first[2].startswith("You can: ")
    assert then[-2] == first[1] and sum(line.startswith("Goal: ") for line in then) == 1


def test_observations_by_the_template_tell_the_state_and_what_the_action_did():
    environment = make({**SMALL, "observation": "state", "show_admissible": True})
    task = environment.split("train").tasks[0]
    env = environment.make_env()
    start = env.reset(task).splitlines()
    assert start[0] == "[Room] middle of the room" and start[1] == "[Items] nothing" and len(start) == 6
    assert "cabinet 1" in start[3] and start[3].startswith("[Exits] ") and start[5].startswith("You can: ")
    there = env.step("go to cabinet 1").observation.splitlines()
    assert there[:2] == ["[Room] cabinet 1", "[Items] cabinet 1 (closed)"] and "cabinet 1" not in there[3]
    opened = env.step("open cabinet 1").observation.splitlines()
    assert opened[1].startswith("[Items] cabinet 1 (open), ") and "peppershaker 1 (cabinet 1)" in opened[1]
    taken = env.step("take peppershaker 1 from cabinet 1").observation.splitlines()
    assert taken[2] == "[Inventory] peppershaker 1" and "peppershaker 1" not in taken[1]
    assert taken[4] == start[4] and taken[5] == "[Feedback] You pick up the peppershaker 1 from the cabinet 1."
    for action, said in (("dance", "Nothing happens."), ("", REFUSED), ("a\nb", REFUSED)):
        refused = env.step(action).observation.splitlines()
        assert refused == [*taken[:5], f"[Feedback] {said}", taken[6]]


def test_an_answer_without_tags_is_told_so_in_the_template():
    environment = make({**SMALL, "observation": "state", "think": True})
    env = environment.make_env()
    state = env.reset(environment.split("train").tasks[0])
    assert env.step("look").observation == f"{state}\n[Feedback] {UNTAGGED}"


def test_the_state_is_where_everything_is_and_not_how_it_came_there():
    environment = make(SMALL)
    task = environment.split("train").tasks[0]

    def state(*actions: str) -> str:
        env = environment.make_env()
        env.reset(task)
        for action in actions:
            env.step(action)
        return env.state()

    assert state("go to shelf 1") == state("look", "go to cabinet 1", "dance", "go to shelf 1")
    assert state("go to cabinet 1") != state("go to cabinet 1", "open cabinet 1")
    assert state("go to cabinet 1") == state("go to cabinet 1", "open cabinet 1", "close cabinet 1")
    taken = state("go to cabinet 1", "open cabinet 1", "take peppershaker 1 from cabinet 1")
    assert taken.startswith("at cabinet 1, with peppershaker 1, ") and state().startswith("at start, with nothing, ")
    assert len(taken) < 100 and environment.make_env().state() == ""
    # having lain elsewhere shows: there, "look" goes by what was taken from where
    carried = [*environment.expert_actions(task)[:3], "go to countertop 1"]
    put = ["move peppershaker 1 to countertop 1", "take peppershaker 1 from countertop 1"]
    assert state(*carried) != state(*carried, *put) == state(*carried, *put, *put)


def test_two_states_are_called_the_same_exactly_if_they_are():
    """Over plays by chance and by the expert; hot or cool, clean, lit and in hand are all told apart."""
    environment = make({**SMALL, "max_steps": 99})
    rng, called, keys = random.Random(5), {}, {}
    env = environment.make_env()
    for number, task in enumerate(environment.split("train").tasks[:6]):
        game = generate(complexity("small", kinds=(task.payload["kind"],)), task.seed)
        for _ in range(4):
            world, expert = World(read_problem(game.problem), game.task), iter(game.walkthrough)
            env.reset(task)
            for _ in range(20):
                assert called.setdefault((number, env.state()), world.key()) == world.key()
                assert keys.setdefault((number, world.key()), env.state()) == env.state()
                if world.won:
                    break
                action = next(expert, "look") if rng.random() < 0.5 else rng.choice(world.admissible())
                env.step(action)
                world.step(action)
    assert len(called) > 100


def test_the_older_wording():
    environment = make({**SMALL, "wording": "classic", "show_admissible": True})
    task = environment.split("train").tasks[0]
    expert = environment.expert_actions(task)
    assert expert[-1] == "put peppershaker 1 in/on shelf 1"
    observations, results = play(environment, task, expert)
    assert results[-1].success and observations[1].startswith("You arrive at loc ")
    _, results = play(environment, task, [*expert[:-1], "move peppershaker 1 to shelf 1"])
    assert results[-1].metrics["invalid_action"] == 1


def test_play_at_random_hardly_ever_wins():
    environment = make({**SMALL, "splits": {"train": {"first_seed": 30001, "count": 120}}, "max_steps": 20})
    rng, wins = random.Random(0), 0
    for task in environment.split("train").tasks:
        env = environment.make_env()
        env.reset(task)
        while not ((result := env.step(rng.choice(env.admissible()))).done or result.truncated):
            pass
        wins += result.success
    assert wins <= 12


def test_progress_is_what_the_planner_still_needs():
    """Five commands win: a fifth each; what changes nothing changes nothing."""
    environment = make(SMALL)
    task = environment.split("train").tasks[0]
    expert = list(environment.expert_actions(task))
    env = environment.make_env()
    with pytest.raises(RuntimeError, match="right after a reset"):
        env.progress()
    env.reset(task)
    told = [env.progress()]
    for action in [expert[0], "dance", *expert[1:-1]]:
        env.step(action)
        told.append(env.progress())
    assert told == pytest.approx([0, 0.2, 0.2, 0.4, 0.6, 0.8])
    env.reset(task)
    env.step(expert[0])
    with pytest.raises(RuntimeError, match="right after a reset"):
        env.progress()


def test_own_returns_are_what_is_paid():
    tasks = make(SMALL).split("train").tasks
    told = make({**SMALL, "invalid_action_penalty": 0.01}).own_returns(tasks)
    assert (told.win_least, told.other_most, told.step_least) == (0.5, 0.0, pytest.approx(-0.01))
    told = make({**SMALL, "reward": "progress"}).own_returns(tasks)
    assert (told.win_least, told.other_most, told.step_least) == (1.0, 0.5, -0.5)
