"""Every generated game is legal, unsolved, winnable and the same for ever; scenes keep training and testing apart."""

from __future__ import annotations

import hashlib
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.alfworld.engine import World
from jaxmtrl.envs.alfworld.games import KINDS, GameRecord
from jaxmtrl.envs.alfworld.generator import COMPLEXITIES, GeneratorSpec, complexity, generate
from jaxmtrl.envs.alfworld.planner import plan
from jaxmtrl.envs.alfworld.problem import COOL, PICKUPABLE, TOGGLEABLE, Problem, read_problem
from jaxmtrl.envs.alfworld.room import STANDS
from jaxmtrl.envs.alfworld.tables import UNSEEN_SCENES, tables, train_scenes
from jaxmtrl.errors import ConfigError, EnvironmentFailure

SPECS = st.builds(
    GeneratorSpec,
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, unique=True).map(tuple),
    scenes=st.sampled_from(["train", "unseen"]),
    receptacles=st.integers(4, 64),
    distractors=st.integers(0, 64),
    colocated=st.booleans(),
)
SEEDS = st.integers(-(2**40), 2**40)


def parts(game: GameRecord) -> tuple[str, str, str, int]:
    """Type, target class, goal class and scene, out of the id."""
    kind, target, none, place, scene = game.id.partition("/")[0].split("-")
    assert none == "None"
    return kind, target, place, int(scene)


def check_legal(problem: Problem, spec: GeneratorSpec, game: GameRecord) -> None:
    """What must hold of every game."""
    kind, target, place, scene = parts(game)
    assert re.fullmatch(r"\w+-\w+-None-\w+-\d+/trial_\w+", game.id)
    assert kind == game.kind and kind in spec.kinds and scene in spec.scene_numbers()
    assert problem.start not in problem.receptacle_locations and -1 not in problem.receptacle_locations
    if not spec.colocated:
        assert len(set(problem.receptacle_locations)) == len(problem.receptacles)
    assert len(problem.receptacles) <= spec.receptacles
    stands = {(where.lower(), what.lower()) for what, places in STANDS.items() for where in places}
    objects, receptacles = problem.object_classes, problem.receptacle_classes
    inside = [(thing, number) for number, things in enumerate(problem.contents) for thing in things]
    assert len({thing for thing, _ in inside}) == len(inside)  # nothing is in two places
    assert {(receptacles[number], objects[thing]) for thing, number in inside} <= problem.fits | stands
    others = [t for t, _ in inside if problem.traits[t] & PICKUPABLE and objects[t] != target.lower()]
    assert len(others) <= spec.distractors
    targets = [(thing, number) for thing, number in inside if objects[thing] == target.lower()]
    assert len(targets) >= (2 if kind == "pick_two_obj_and_place" else 1)
    assert all(receptacles[number] != place.lower() for _, number in targets)
    cool = {thing for thing, state in enumerate(problem.states) if state & COOL}
    assert cool == {thing for thing, number in targets if receptacles[number] == "fridge"}
    if kind == "look_at_obj_in_light":
        lamps = [number for thing, number in inside if objects[thing] == place.lower()]
        assert lamps and problem.traits[problem.contents[lamps[0]][0]] is not None
        assert any(problem.traits[thing] & TOGGLEABLE for thing in problem.contents[lamps[0]])


def check_won(problem: Problem, game: GameRecord) -> int:
    """Plays the walkthrough: only its last command wins. Returns its length."""
    world = World(problem, game.task)
    assert not world.won and game.walkthrough
    for left, command in reversed(list(enumerate(reversed(game.walkthrough)))):
        assert command in world.admissible()
        assert world.step(command)[1] == (left == 0)
    return len(game.walkthrough)


@given(spec=SPECS, seed=SEEDS)
def test_any_spec_and_seed_give_a_legal_game_that_is_won_as_planned(spec, seed):
    game = generate(spec, seed)
    problem = read_problem(game.problem)
    check_legal(problem, spec, game)
    check_won(problem, game)
    assert tuple(plan(World(problem, game.task)) or ()) == game.walkthrough
    assert generate(spec, seed) == game


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 300), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_type_is_won_in_every_complexity(kind, seeds):
    for name in COMPLEXITIES:
        spec = complexity(name, kinds=(kind,))
        for seed in seeds:
            game = generate(spec, seed)
            problem = read_problem(game.problem)
            check_legal(problem, spec, game)
            # fetch and bring, or fetch and light: 3 at least; two things with doors open: 4 more each
            assert 3 <= check_won(problem, game) <= 12


@pytest.mark.parametrize(
    ("kind", "task", "scene", "goal"),
    [
        ("pick_and_place_simple", r"put (a|some) \w+ (in|on) \w+", range(1, 431), "inReceptacle"),
        ("pick_two_obj_and_place", r"(put|find) two \w+ (in|and put them in) \w+", range(1, 431), "(not (= ?o1 ?o2))"),
        ("look_at_obj_in_light", r"(look at|examine the) \w+ (under|with) the desklamp", range(201, 331), "isToggled"),
        ("pick_clean_then_place_in_recep", r"(put a clean|clean some) .*", (*range(31), *range(401, 431)), "isClean"),
        ("pick_heat_then_place_in_recep", r"(put a hot|heat some) .*", range(1, 31), "isHot"),
        ("pick_cool_then_place_in_recep", r"(put a cool|cool some) .*", range(1, 31), "isCool"),
    ],
)
def test_what_is_asked_is_said_and_meant(kind, task, scene, goal):
    sentences = set()
    for seed in range(30):
        game = generate(complexity("small", kinds=(kind,)), seed)
        _, target, place, number = parts(game)
        assert re.fullmatch(task, game.task) and target.lower() in game.task and place.lower() in game.task
        assert number in scene
        asked = game.problem[game.problem.index("(:goal") :]
        assert goal in asked and f"{target}Type" in asked and f"{place}Type" in asked and "{" not in asked
        sentences.add(game.task.replace(target.lower(), "").replace(place.lower(), "").split()[0])
    assert len(sentences) == 2 or kind in ("pick_and_place_simple",)  # both wordings are drawn


def test_complexity_changes_the_room_and_not_the_task():
    games = [generate(complexity(name), seed) for seed in range(10) for name in COMPLEXITIES]
    for small, medium, large in zip(games[::3], games[1::3], games[2::3]):
        assert parts(small) == parts(medium) == parts(large) and small.task == medium.task == large.task
        sizes = [read_problem(game.problem) for game in (small, medium, large)]
        assert len(sizes[0].receptacles) <= len(sizes[1].receptacles) <= len(sizes[2].receptacles)
        assert len(sizes[0].objects) < len(sizes[1].objects)
    assert len({game.id for game in games}) == len(games)


def test_games_are_the_same_for_ever():
    """If this number has changed, so has every generated game, and results of earlier runs do not compare any more."""
    assert fingerprint() == "3ba4d095a0b4f648"


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_games_do_not_depend_on_the_hash_seed(hash_seed):
    code = "from envs.alfworld.test_alfworld_generator import fingerprint; print(fingerprint())"
    there = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(["tests", "."])}
    answer = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == fingerprint()


def fingerprint() -> str:
    """Of games of all complexities, both kinds of scene and a range of steps."""
    specs = [complexity(name) for name in COMPLEXITIES]
    specs += [complexity("small", scenes="unseen", colocated=True), complexity("small", steps=(6, 7))]
    games = [generate(spec, seed) for spec in specs for seed in range(3)]
    return hashlib.sha256(repr(games).encode("utf-8")).hexdigest()[:16]


def test_training_and_unseen_games_share_no_scene_and_no_room():
    def rooms(scenes: str) -> tuple[set[int], set[str]]:
        games = [generate(complexity("small", scenes=scenes), seed) for seed in range(100)]
        found = {re.sub(r"plan_\w+", "", game.problem) + game.task: parts(game)[3] for game in games}
        assert len(found) == len(games)  # no two games are the same
        return set(found.values()), set(found)

    train_numbers, train_texts = rooms("train")
    unseen_numbers, unseen_texts = rooms("unseen")
    assert train_numbers <= set(train_scenes()) and unseen_numbers <= set(UNSEEN_SCENES)
    assert not train_numbers & unseen_numbers and not train_texts & unseen_texts
    assert len(train_numbers) > 40 and len(unseen_numbers) == len(UNSEEN_SCENES)


def test_scenes_can_be_named():
    kinds = tuple(kind for kind in KINDS if kind != "look_at_obj_in_light")
    games = [generate(complexity("small", scenes=(5, 401), kinds=kinds), seed) for seed in range(30)]
    assert {parts(game)[3] for game in games} == {5, 401}
    assert all(tables().scenes[parts(game)[3]].room == "Kitchen" for game in games if "_heat_" in game.kind)


def test_types_are_equally_likely():
    counts = Counter(generate(complexity("small"), seed).kind for seed in range(300))
    assert set(counts) == set(KINDS)
    assert all(abs(count - 50) < 5 * math.sqrt(300 / 6 * 5 / 6) for count in counts.values())


@pytest.mark.parametrize("steps", [(3, 4), (6, 6), (9, 12)])
def test_as_many_steps_as_asked(steps):
    for seed in range(10):
        assert steps[0] <= len(generate(complexity("small", steps=steps), seed).walkthrough or ()) <= steps[1]


def test_steps_that_no_game_takes():
    spec = complexity("small", kinds=("pick_heat_then_place_in_recep",), steps=(3, 4))
    with pytest.raises(EnvironmentFailure, match=r"takes 3 to 4 commands was found for seed 7.*take 6 to [78]; widen"):
        generate(spec, 7)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kinds": ("pick_and_place",)}, "kinds: 'pick_and_place' is no task type; they are pick_and_place_simple,"),
        ({"kinds": ()}, "kinds must name at least one task type"),
        ({"scenes": "test"}, 'scenes must be "train", "unseen" or numbers of floor plans, got \'test\''),
        ({"scenes": (1, 99)}, r"no floor plans \[99\]; they are 1-30"),
        ({"scenes": ()}, "pick_and_place_simple can be set in none of the scenes"),
        (
            {"scenes": (401,), "kinds": ("look_at_obj_in_light",)},
            "in none of the scenes .* scenes of Bedroom or Living",
        ),
        ({"receptacles": 3}, "receptacles must be at least 4, got 3"),
        ({"distractors": -1}, "distractors must be at least 0, got -1"),
        ({"steps": (5, 4)}, r"steps must be \(fewest, most\) with 1 <= fewest <= most, got \(5, 4\)"),
    ],
)
def test_mistakes_in_a_spec(fields, message):
    with pytest.raises(ConfigError, match=message):
        GeneratorSpec(**fields)


def test_an_unknown_complexity():
    with pytest.raises(ConfigError, match="one of small, medium, large, got 'tiny'"):
        complexity("tiny")


def test_a_game_takes_milliseconds():
    spec, times = complexity("large"), []
    for seed in range(20):
        began = time.process_time()
        generate(spec, seed)
        times.append(time.process_time() - began)
    assert median(times) < 0.05  # 10 ms on one core of an idle machine
