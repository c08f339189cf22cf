"""The wrapped environment: what it pays for whole plays, and that in all else it is the one inside."""

from __future__ import annotations

import itertools
import math

import pytest
from paid_env import PaidEnvironment, play

from jaxmtrl.envs import toy
from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.rewards.order import order_mistakes
from jaxmtrl.rewards.recipe import Recipe
from jaxmtrl.rewards.scored import FACTORY, ScoredEnvironment
from jaxmtrl.types import StepResult


def recipe(weights: dict, penalties: dict | None = None, **others) -> Recipe:
    plain = {"clip": 1.0, "gamma": 1.0, "keeps_truncated": False, "stages": 0, "format_pattern": ""}
    return Recipe(weights=weights, penalties=penalties or {}, **{**plain, **others})


def paid(task, made: Recipe, *, actions=None, **options) -> list[StepResult]:
    env = ScoredEnvironment(PaidEnvironment(options), made, None).make_env()
    env.reset(task)
    return [env.step(action) for action in actions or [f"say {n}" for n in range(len(task.payload["steps"]))]]


HYBRID = recipe({"env": 0.8, "progress": 0.2})


def test_a_hybrid_play_is_paid_like_this():
    """Φ 0, .5, .25 and won: .2 * .5, .2 * -.25, .8 - .2 * .25 = .75; sum .8."""
    task = play([{}, {}, {"reward": 1.0, "success": True}], [0.0, 0.5, 0.25])
    results = paid(task, HYBRID, telling=True)
    assert [result.reward for result in results] == pytest.approx([0.1, -0.05, 0.75])
    assert [result.metrics["reward/env"] for result in results] == [0, 0, 1]
    assert [result.metrics["reward/progress"] for result in results] == [0.5, -0.25, -0.25]


def test_weights_times_what_is_told_are_the_reward():
    made = recipe({"env": 0.5, "pass_ratio": 0.3, "style": 0.1}, {"invalid_action": 0.05, "diversity": 0.2})
    steps = [{"metrics": {"invalid_action": 1.0}}, {"metrics": {"pass_ratio": 0.5, "style": 0.4, "other": 7.0}}]
    first, last = paid(play(steps), made, actions=["a", "a"])
    assert first.reward == pytest.approx(-0.05) and first.metrics["reward/invalid_action"] == 1
    # .3 * .5 + .1 * .4 - .2 * .5 = .09: one of two actions was new
    assert last.reward == pytest.approx(0.09) and last.metrics["other"] == 7.0
    told = {name.removeprefix("reward/"): value for name, value in last.metrics.items() if name.startswith("reward/")}
    assert told == {"env": 0, "pass_ratio": 0.5, "style": 0.4, "invalid_action": 0, "diversity": 0.5}
    assert last.reward == pytest.approx(made.reward(told))


def test_a_new_episode_knows_nothing_of_the_last():
    made = recipe({"env": 1.0, "pass_ratio": 0.5}, {"repetition": 0.1, "diversity": 0.1})
    env = ScoredEnvironment(PaidEnvironment({}), made, None).make_env()
    for _ in range(2):
        env.reset(play([{"metrics": {"pass_ratio": 0.5}}]))
        assert env.step("look").reward == pytest.approx(0.25)
    env.reset(play([{}]))
    with pytest.raises(EnvironmentFailure, match="no metric pass_ratio"):
        env.step("look")


def test_a_truncated_play_ends_at_0_or_keeps_its_potential():
    """Φ 0 → .5, cut: 0 - 0 where nothing follows, else .9 * .5."""
    task = play([{"truncated": True}], [0.0, 0.5])
    (end,) = paid(task, recipe({"progress": 1.0}, gamma=0.9), telling=True)
    (stop,) = paid(task, recipe({"progress": 1.0}, gamma=0.9, keeps_truncated=True), telling=True)
    assert (end.reward, stop.reward) == (0.0, pytest.approx(0.45))


@pytest.mark.parametrize("value", [1.5, -0.1, math.nan, None, "half"])
def test_progress_that_is_no_share_fails_the_episode(value):
    env = ScoredEnvironment(PaidEnvironment({"telling": True}), HYBRID, None).make_env()
    with pytest.raises(EnvironmentFailure, match="progress returned .*, wanted a number in 0..1"):
        env.reset(play([{}], [value]))


def test_what_the_environment_answers_wrongly_is_the_workers_to_say():
    assert paid(play([{"raw": "hello"}]), recipe({"env": 0.5})) == ["hello"]
    assert math.isnan(paid(play([{"reward": math.nan}]), recipe({"env": 0.5}))[0].reward)


def test_the_code_that_was_written_is_read_for_its_style():
    made = recipe({"style": 1.0})
    good, bad = (paid(play([{}, {}]), made, code=code) for code in ("x = 1\n", "import os\nx = 1\n"))
    assert [result.reward for result in good] == [0.0, 1.0]
    assert [result.reward for result in bad] == [0.0, 0.5]  # one finding, ten statements counted


# --- around the toy


def wrapped(made: Recipe, **options) -> ScoredEnvironment:
    return ScoredEnvironment(toy.make(options), made, None)


def plays(environment, task):
    """Every play of the task by admissible actions, as (actions, results)."""

    def go_on(actions):
        env = environment.make_env()
        env.reset(task)
        results = [env.step(action) for action in actions]
        if results and (results[-1].done or results[-1].truncated):
            yield actions, results
            return
        for action in env.admissible():
            yield from go_on((*actions, action))

    return list(go_on(()))


@pytest.mark.parametrize("stages", [0, 2])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_all_plays_of_a_game_rank_as_they_do_without_progress(gamma, keeps, stages):
    """The discounted sum is .8 of the game's own, less .2 Φ(start) = 0; plus .2 γ^T Φ(last) where a cut play keeps it.

    So what progress adds never depends on what was done, but for what the critic takes over at the cut.
    """
    made = recipe({"env": 0.8, "progress": 0.2}, gamma=gamma, keeps_truncated=keeps, stages=stages)
    environment = wrapped(made, max_steps=4)
    task = environment.split("train").tasks[0]
    found = plays(environment, task)
    assert len(found) > 100 and sum(results[-1].success for _, results in found) == 1
    for actions, results in found:
        own = sum(gamma**t * result.metrics["reward/env"] for t, result in enumerate(results))
        earned = sum(gamma**t * result.reward for t, result in enumerate(results))
        left = 0.0
        if keeps and results[-1].truncated:
            env = toy.make({"max_steps": 5}).make_env()
            env.reset(task)
            for action in actions:
                env.step(action)
            left = 0.2 * gamma ** len(actions) * made.potential(env.progress())
        assert earned == pytest.approx(0.8 * own + left)


def test_every_loss_of_a_game_earns_less_than_its_win():
    """Cut plays keep .2 Φ ≤ .15 of the .8 that the win is worth."""
    made = recipe({"env": 0.8, "progress": 0.2}, {"invalid_action": 0.02, "repetition": 0.05}, keeps_truncated=True)
    environment = wrapped(made, max_steps=4)
    task = environment.split("train").tasks[3]
    assert order_mistakes(made, environment.own_returns([task]), environment.max_steps) == []
    found = plays(environment, task)
    won = [sum(result.reward for result in results) for _, results in found if results[-1].success]
    lost = [sum(result.reward for result in results) for _, results in found if not results[-1].success]
    assert min(won) == pytest.approx(0.8) and max(lost) == pytest.approx(0.15)


def test_in_all_else_it_is_the_environment_inside():
    inner, outer = toy.make({"train_tasks": 3}), wrapped(recipe({"env": 0.5}), train_tasks=3)
    assert outer.split_names() == inner.split_names() and outer.max_steps == inner.max_steps
    assert outer.split("train") == inner.split("train")
    task = inner.split("train").tasks[0]
    actions = list(inner.expert_actions(task))
    assert outer.expert_actions(task) == actions
    own, ours = inner.make_env(), outer.make_env()
    assert own.reset(task) == ours.reset(task)
    for action in actions:
        assert (own.admissible(), own.state()) == (ours.admissible(), ours.state())
        a, b = own.step(action), ours.step(action)
        assert b.reward == a.reward / 2
        assert (a.observation, a.done, a.truncated, a.success) == (b.observation, b.done, b.truncated, b.success)
    ours.close()


def test_what_the_environment_inside_lacks_it_lacks_too():
    outer = ScoredEnvironment(PaidEnvironment({}), recipe({"env": 0.5}), None)
    player = outer.make_env()
    assert not any(hasattr(player, name) for name in ("state", "admissible", "progress"))
    assert not any(hasattr(outer, name) for name in ("warm_up", "own_returns"))


def test_it_is_made_of_plain_options_like_any_other():
    fields = {"weights": {"env": 0.5}, "penalties": {}, "clip": 1.0, "gamma": 1.0}
    fields |= {"keeps_truncated": False, "stages": 0, "format_pattern": ""}
    options = {"factory": "jaxmtrl.envs.toy:make", "options": {"train_tasks": 2}, "recipe": fields, "judge": None}
    environment = load_environment(FACTORY, options)
    task = environment.split("train").tasks[1]
    env = environment.make_env()
    env.reset(task)
    assert [env.step(action).reward for action in environment.expert_actions(task) or ()] == [0, 0, 0, 0.5]


def test_actions_that_repeat_are_told_on_their_own_curve():
    env = wrapped(recipe({"env": 1.0}, {"repetition": 0.1})).make_env()
    env.reset(toy.make({}).split("train").tasks[0])
    results = [env.step(action) for action in itertools.repeat("look", 3)]
    assert [result.metrics["reward/repetition"] for result in results] == [0, 0, 1]
    assert [result.reward for result in results] == [0, 0, pytest.approx(-0.1)]
