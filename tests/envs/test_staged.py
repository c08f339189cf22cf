"""The environment with its commands in stages: refusals, lists, macros, limits; around the toy and real games."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jaxmtrl.actions.space import ActionSpace, staged
from jaxmtrl.config.loading import load_config
from jaxmtrl.envs import toy
from jaxmtrl.envs.alfworld import environment as alfworld
from jaxmtrl.envs.staged import Manner, StagedEnvironment
from jaxmtrl.errors import ConfigError
from jaxmtrl.rewards.scored import ScoredEnvironment
from jaxmtrl.rewards.source import env_source, load_source
from jaxmtrl.types import StepResult, Task

TOY = Path(__file__).parents[2] / "configs" / "toy.yaml"
STAGES = {"basic": ["look", "unlock", "take"], "more": ["open"], "all": ["hit"]}
MACROS = {"unlock X": ["take X key", "open door"]}


def wrapped(enforce: str = "prompt", *, inner=None, stages=None, macros=None, think=False, **options):
    space = ActionSpace.of(stages or STAGES, MACROS if macros is None else macros)
    return StagedEnvironment(inner or toy.make(options), space, Manner(enforce=enforce, think=think))


def begun(environment, stage: int | None, number: int = 0):
    task = environment.split("train").tasks[number]
    env = environment.make_env()
    seen = env.reset(task if stage is None else staged(task, stage))
    return env, seen, task


def test_the_first_observation_tells_what_may_be_used():
    _, seen, task = begun(wrapped(), 0)
    own = toy.make({}).make_env().reset(task)
    assert seen == f"You may use: look; unlock X (take X key, open door); take.\n{own}"
    assert all(begun(wrapped(how), 0)[1].startswith("Goal") for how in ("mask", "admissible"))


def test_a_refused_command_never_reaches_the_game_and_costs_a_step():
    environment = wrapped(max_steps=3)
    env, _, task = begun(environment, 0)
    key = environment.expert_actions(task)[0]
    assert env.step(key).metrics["invalid_action"] == 0
    refused = env.step("Open  DOOR")
    assert 'You may not use "open"' in refused.observation and "You may use: look" in refused.observation
    assert refused.metrics == {"invalid_action": 1.0, "action_refused": 1.0}
    assert (refused.reward, refused.done, refused.truncated) == (0.0, False, False)
    assert env.state() == f"room 0, key {key.split()[1]}, weapon , stage 0"  # the door is as it was
    assert env.step("open door").truncated
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("look")
    assert env.admissible() == []


def test_a_later_stage_may_and_a_task_without_a_stage_may_do_all():
    for stage in (1, None):
        env, _, task = begun(wrapped(), stage)
        env.step(wrapped().expert_actions(task)[0])
        assert env.step("open door").observation.startswith("It opens")
    env, seen, task = begun(wrapped(), None)
    assert seen == toy.make({}).make_env().reset(task) and env.step("dance").metrics == {"invalid_action": 1.0}


def test_a_macro_is_its_commands_in_one_step():
    environment = wrapped(reward="dense")
    env, _, task = begun(environment, 0)
    colour = environment.expert_actions(task)[0].split()[1]
    result = env.step(f"unlock {colour}")
    assert result.observation.startswith(f"You hold the {colour} key.\nIt opens. You see: ")
    assert result.reward == 0.5 and result.metrics == {"invalid_action": 0.0, "action_macro": 1.0}


def test_a_macro_ends_where_a_command_is_not_understood_and_counts_what_it_took():
    env, _, task = begun(wrapped(max_steps=3), 0)
    result = env.step("unlock purple")
    assert result.observation == "You cannot do that." and result.metrics["invalid_action"] == 1
    env.step("look")
    colour = wrapped().expert_actions(task)[0].split()[1]
    assert env.step(f"unlock {colour}").truncated  # one step was left, and the key took it


def test_a_macro_ends_with_the_game():
    environment = wrapped(stages={"all": ["unlock", "take", "beat"]}, macros={**MACROS, "beat X": ["hit X", "look"]})
    env, _, task = begun(environment, 0)
    way = toy.make({}).expert_actions(task)
    env.step(f"unlock {way[0].split()[1]}")
    env.step(way[2])
    result = env.step(f"beat {way[3].split()[1]}")
    assert result.success and result.done and result.reward == 1 and not result.observation.endswith("You see")


def test_an_optional_step_is_left_out_where_it_cannot_be_done():
    environment = wrapped(stages={"all": ["arm", "unlock"]}, macros={**MACROS, "arm X": ["try open door", "take X"]})
    env, _, task = begun(environment, 0)
    way = toy.make({}).expert_actions(task)
    assert env.step("arm axe").metrics["invalid_action"] == 1  # the door can be opened (it is locked), no axe is here
    env.step(f"unlock {way[0].split()[1]}")
    assert env.step(way[2].replace("take", "arm")).observation.startswith("You hold")


def test_what_can_be_done_is_listed_and_offered_as_far_as_it_may_be_used():
    env, seen, _ = begun(wrapped("admissible"), 0)
    offered = env.admissible()
    assert [command.split()[0] for command in offered] == ["take", "take", "look", "unlock", "unlock"]
    assert seen.splitlines()[-1] == f"You can: {'; '.join(offered)}."
    result = env.step("hit ogre")
    assert result.metrics["action_refused"] == 1 and result.observation.splitlines()[-1] == seen.splitlines()[-1]
    assert "open door" in begun(wrapped("admissible"), 1)[0].admissible()


@pytest.mark.parametrize("enforce", ["prompt", "admissible", "mask"])
def test_random_play_is_offered_the_same_in_every_way(enforce):
    assert begun(wrapped(enforce), 0)[0].admissible() == begun(wrapped(), 0)[0].admissible()


def test_an_expert_says_it_in_the_commands_of_the_stage_or_not_at_all():
    environment = wrapped()
    task = environment.split("train").tasks[0]
    way = toy.make({}).expert_actions(task)
    assert environment.expert_actions(task) == way
    assert environment.expert_actions(staged(task, 0)) is None
    assert environment.lacking_verbs(staged(task, 0)) == {"open", "hit"}  # of which unlock would stand for one
    said = environment.expert_actions(staged(task, 2))
    assert said == [f"unlock {way[0].split()[1]}", *way[2:]] and environment.lacking_verbs(staged(task, 2)) == set()
    env = environment.make_env()
    env.reset(staged(task, 2))
    assert [env.step(action) for action in said][-1].success


def test_the_returns_of_one_step_may_be_those_of_a_macro():
    own, ours = toy.make({}).own_returns([]), wrapped().own_returns([])
    assert (ours.win_least, ours.other_most, ours.step_least) == (own.win_least, own.other_most, 0.0)
    assert ours.step_most == 2 * own.step_most


class Silent(toy.ToyEnvironment):
    """The toy with a player that lists nothing, as TextWorld's does where show_admissible is off."""

    def make_env(self):
        player = super().make_env()
        player.admissible = list
        return player


def test_an_optional_step_is_tried_where_nobody_knows_whether_it_can_be_done():
    inner = Silent(toy.ToyOptions())
    environment = wrapped(
        inner=inner, stages={"all": ["arm", "unlock"]}, macros={**MACROS, "arm X": ["try hit X", "look"]}
    )
    env, _, _ = begun(environment, 0)
    assert env.step("arm ogre").observation.startswith("You cannot do that.\nYou see")
    known = wrapped(stages={"all": ["arm", "unlock"]}, macros={**MACROS, "arm X": ["try hit X", "look"]})
    assert begun(known, 0)[0].step("arm ogre").observation.startswith("You see")


class Bare:
    """An environment that has nothing it need not have."""

    max_steps = 4

    def reset(self, task):
        return "begin"

    def step(self, action):
        return "hello" if action == "take break" else StepResult(observation=action, reward=0.0, done=False)

    def close(self):
        pass

    def make_env(self):
        return Bare()


def test_what_the_environment_inside_lacks_it_lacks_too():
    environment = wrapped("admissible", inner=Bare())
    player = environment.make_env()
    assert not any(hasattr(player, name) for name in ("admissible", "state", "progress", "code"))
    assert not any(hasattr(environment, name) for name in ("own_returns", "warm_up"))
    player.reset(Task(id="a", seed=0))
    assert player.step("take break") == "hello"  # which the worker will say is no answer
    with pytest.raises(ConfigError, match="a Bare lists no admissible commands"):
        environment.require_admissible()


# --- what a config plays


def config(*overrides: str):
    return load_config(TOY, ["env.options={}", "actions.stages={a: [take, open], b: [hit]}", *overrides])


def test_a_config_with_stages_is_wrapped_and_rewards_are_outermost():
    environment = load_source(config())
    assert isinstance(environment, StagedEnvironment)
    both = load_source(config("reward.preset=hybrid_text"))
    assert isinstance(both, ScoredEnvironment) and isinstance(both._inner, StagedEnvironment)
    factory, options = env_source(config("reward.preset=hybrid_text"))
    assert "scored" in factory and "staged" in options["factory"] and "toy" in options["options"]["factory"]
    env = both.make_env()
    env.reset(staged(both.split("train").tasks[0], 0))
    assert env.step("hit ogre").metrics["action_refused"] == 1 and env.progress() == 0


# --- real games


ALFWORLD = {
    "basic": ["go to", "open", "close", "take", "move", "put", "use", "examine", "look", "inventory", "fetch"],
    "treat": ["clean", "heat"],
    "all": ["cool", "slice"],
}
FETCH = {"fetch X from Y": ["go to Y", "try open Y", "take X from Y"]}


@pytest.mark.parametrize("think", [False, True])
def test_households_are_won_with_macros(think):
    """Of the first 24 games those that need no treatment can be said in the first stage, and are won that way."""
    options = {"complexity": "small", "show_admissible": True, "think": think}
    options |= {"splits": {"train": {"first_seed": 1, "count": 24}}}
    environment = wrapped("admissible", inner=alfworld.make(options), stages=ALFWORLD, macros=FETCH, think=think)
    fetched = shorter = won = 0
    for task in environment.split("train").tasks:
        said = environment.expert_actions(staged(task, 0))
        kind = task.payload["kind"]
        treated = any(word in kind for word in ("clean", "heat", "cool"))
        assert (said is None) == treated, kind
        if said is None:
            assert environment.lacking_verbs(staged(task, 0)) <= {"clean", "heat", "cool"}
            said = environment.expert_actions(staged(task, 2))
        env = environment.make_env()
        env.reset(staged(task, 2 if treated else 0))
        results = [env.step(action) for action in said]
        won += results[-1].success
        fetched += any("fetch" in action for action in said)
        shorter += len(said) < len(environment.expert_actions(task))
        assert all(result.metrics.get("action_refused", 0) == 0 for result in results)
        lists = [result.observation.splitlines()[-1] for result in results[:-1]]
        assert all(line.startswith("You can: ") for line in lists)
        if not treated:
            assert not any(verb in line for line in lists for verb in ("heat ", "clean ", "cool ", "slice "))
    assert won == 24 and fetched >= 20 and shorter >= 20


def test_a_household_refuses_what_its_stage_has_not():
    inner = alfworld.make({"complexity": "small", "splits": {"train": {"first_seed": 1, "count": 1}}})
    env, seen, _ = begun(wrapped(inner=inner, stages=ALFWORLD, macros=FETCH), 0)
    assert "You may use: go to; open;" in seen and "fetch X from Y (go to Y, open Y, take X from Y)" in seen
    refused = env.step("heat mug 1 with microwave 1")
    assert refused.metrics["action_refused"] == 1
    assert env.step("go to nowhere 1").observation == "Nothing happens."
    before = env.state()
    assert env.step("fetch mug 9 from nowhere 1").metrics["invalid_action"] == 1 and env.state() == before


def of_the_template(seen: str) -> list[str]:
    """The names of an observation's lines."""
    return [line.split("]")[0].removeprefix("[") for line in seen.splitlines()]


STATE = ["Room", "Items", "Inventory", "Exits", "Goal", "Feedback"]


@pytest.mark.parametrize("enforce", ["prompt", "admissible", "mask"])
@pytest.mark.parametrize("listed", [False, True])
def test_a_household_of_states_refuses_and_tells_of_macros_in_its_feedback(enforce, listed):
    """The state after a refusal is the state before it; a macro's is the last, with what each command did."""
    options = {"complexity": "small", "observation": "state", "show_admissible": listed}
    inner = alfworld.make(options | {"splits": {"train": {"first_seed": 1, "count": 1}}})
    env, seen, _ = begun(wrapped(enforce, inner=inner, stages=ALFWORLD, macros=FETCH), 0)
    begins = ["You may use: go to"] if enforce == "prompt" else []
    lists = ["You can: "] * (listed or enforce == "admissible")
    state = seen.splitlines()[len(begins) : len(seen.splitlines()) - len(lists)]
    assert of_the_template("\n".join(state)) == STATE[:-1]
    refused = env.step("heat mug 1 with microwave 1").observation.splitlines()
    assert refused[:5] == state and refused[5].startswith('[Feedback] You may not use "heat". You may use: go to; ')
    assert [line[:9] for line in refused[6:]] == lists
    assert not any("heat" in line for line in refused[6:])
    again = env.step("heat mug 1 with microwave 1").observation.splitlines()
    assert again == refused
    place = next(command for command in env.admissible() if command.startswith("go to ")).removeprefix("go to ")
    fetched = env.step(f"fetch mug 9 from {place}").observation.splitlines()
    assert of_the_template("\n".join(fetched[:6])) == STATE and len(fetched) == 6 + len(lists)
    assert place in fetched[5] and fetched[5].endswith("Nothing happens.")
    assert f"[Room] {place}" == fetched[0]


def test_a_refusal_in_words_lists_what_can_be_done_where_every_observation_does():
    options = {"complexity": "small", "show_admissible": True, "splits": {"train": {"first_seed": 1, "count": 1}}}
    env, seen, _ = begun(wrapped(inner=alfworld.make(options), stages=ALFWORLD, macros=FETCH), 0)
    told, listed = env.step("heat mug 1 with microwave 1").observation.splitlines()
    assert told.startswith('You may not use "heat". ') and listed == seen.splitlines()[-1]


@pytest.fixture(scope="module")
def games(tmp_path_factory) -> str:
    """Where TextWorld's games are made, once for all tests."""
    return str(tmp_path_factory.mktemp("games"))


@pytest.mark.parametrize("observation", ["text", "state"])
def test_a_textworld_game_is_won_in_the_commands_of_a_stage(games, observation):
    pytest.importorskip("jericho")
    pytest.importorskip("tatsu")
    from jaxmtrl.envs import textworld

    options = {"theme": "basic", "cache_dir": games, "show_admissible": True, "observation": observation}
    inner = textworld.make(options | {"splits": {"train": {"first_seed": 101, "count": 1}}})
    tasks = inner.split("train").tasks
    inner.prepare(tasks, lambda done, total: None)
    way = inner.expert_actions(tasks[0])
    verbs = list(dict.fromkeys(command.split()[0] for command in way))
    stages = {"first": verbs[:-1], "last": verbs[-1:]}
    environment = wrapped("prompt", inner=inner, stages=stages, macros={})
    env, seen, task = begun(environment, 0)
    listed = seen.splitlines()[-1].removeprefix("You can: ").removesuffix(".").split("; ")
    assert {command.split()[0] for command in listed} <= set(verbs[:-1])
    refused = env.step(f"{verbs[-1]} everything")
    assert refused.metrics["action_refused"] == 1
    if observation == "state":
        *state, feedback, last = refused.observation.splitlines()
        assert [*state, last] == seen.splitlines()[1:] and of_the_template("\n".join(state)) == STATE[:-1]
        assert feedback.startswith(f'[Feedback] You may not use "{verbs[-1]}". You may use: ')
    env.close()
    assert environment.expert_actions(staged(task, 0)) is None
    env.reset(staged(task, 1))
    assert [env.step(command) for command in environment.expert_actions(staged(task, 1))][-1].success
    env.close()
    own = inner.make_env()
    own.reset(replace(task, payload={**task.payload}))
    assert own.step(way[0]).observation
    own.close()
