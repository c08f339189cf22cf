"""What a config plays, and what is refused before anything is played."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from faulty_env import faulty_task

from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import ConfigError
from jaxmtrl.pools import make_pool
from jaxmtrl.rewards.scored import FACTORY, ScoredEnvironment
from jaxmtrl.rewards.source import check_order, env_source, load_source

TOY = Path(__file__).parents[2] / "configs" / "toy.yaml"
JUDGE = ["reward.parts={env: 0.6, judge: 0.4}", "judge.url=http://localhost:1/v1", "judge.model=m"]
PAID = ["env.factory=paid_env:make"]
SURE = ["env.factory=paid_env:make_sure"]


def config(*overrides: str):
    return load_config(TOY, ["env.options={}", *overrides])


def checked(made) -> None:
    environment = load_source(made)
    check_order(made, environment, environment.split("train").tasks)


def test_an_own_reward_is_not_wrapped():
    made = config()
    assert env_source(made) == (made.env.factory, made.env.options)
    assert not isinstance(load_source(made), ScoredEnvironment)
    checked(made)


@pytest.mark.parametrize("override", ["reward.preset=hybrid_text", "reward.repetition_penalty=0.01"])
def test_a_composed_one_is(override):
    made = config(override)
    factory, options = env_source(made)
    assert factory == FACTORY and options["factory"] == made.env.factory and options["options"] is made.env.options
    assert isinstance(load_source(made), ScoredEnvironment)
    checked(made)


def test_progress_wants_an_environment_that_tells_it():
    for options in ([], ["env.options.reports=[progress]"]):  # a metric of that name is something else
        with pytest.raises(ConfigError, match="progress: got weight 0.2, and paid_env:make tells no progress"):
            load_source(config(*PAID, *options, "reward.preset=hybrid_text"))
    assert load_source(config(*PAID, "env.options.telling=true", "reward.preset=hybrid_text"))


@pytest.mark.parametrize("wrapped", [[], ["actions.stages={a: [take]}"]])
def test_parts_of_metrics_want_an_environment_that_reports_them(wrapped):
    """All that is lacking at once, before anything is played; with commands in stages, whose refusals are reported."""
    toy = config("reward.preset=hybrid_code", "reward.invalid_action_penalty=0.01", *wrapped)
    with pytest.raises(ConfigError) as caught:
        load_source(toy)
    assert list(caught.value.mistakes) == [
        "reward.parts.style: got weight 0.1, and jaxmtrl.envs.toy:make tells no code and reports no metric style (it "
        "reports invalid_action); give its player a method `code` (jaxmtrl/envs/base.py), or choose reward.parts "
        "without it",
        "reward.parts.pass_ratio: got weight 0.3, and jaxmtrl.envs.toy:make reports no metric pass_ratio (it reports "
        "invalid_action); let the last step report it and name it in the environment's `reports` "
        "(jaxmtrl/envs/base.py), or choose reward.parts without it",
    ]
    assert load_source(config(*PAID, "env.options={reports: [pass_ratio], code: x}", "reward.preset=hybrid_code"))
    assert load_source(config(*PAID, "env.options.reports=[style]", "reward.parts={success: 1, style: 0.1}"))


def test_a_penalty_for_invalid_actions_wants_to_be_told_of_them():
    penalty = "reward.invalid_action_penalty=0.02"
    with pytest.raises(ConfigError, match=r"penalty: got 0.02, and paid_env:make .* \(it reports no metrics\); let"):
        load_source(config(*PAID, penalty))
    assert load_source(config(penalty)) and load_source(config(*PAID, penalty, "actions.stages={a: [take]}"))


def test_what_builds_upon_own_rewards_wants_to_know_what_they_come_to():
    with pytest.raises(ConfigError, match="reward.parts.env: got weight 1 .* give it a method `own_returns`"):
        checked(config(*PAID, "reward.repetition_penalty=0.01"))
    checked(config(*PAID))  # as it is, it is the environment's own affair
    checked(config(*PAID, "reward.preset=verified_binary"))  # does not build upon it
    checked(config(*SURE, "reward.repetition_penalty=0.01"))


def test_a_loss_that_could_pay_like_a_win_stops_the_run():
    with pytest.raises(ConfigError, match="a win is sure of 0.8 .* could earn up to 0.8 "):
        checked(config(*SURE, "env.options={other_most: 0.75, telling: true}", "reward.preset=hybrid_text"))
    with pytest.raises(ConfigError, match="could earn up to 1 "):
        checked(config(*SURE, "env.options.other_most=1.0"))  # of an own reward too


def test_a_judge_wants_its_library_and_its_key(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError) as caught:
        load_source(config(*JUDGE, "judge.api_key_env=SOME_KEY"))
    assert "the library openai is not installed" in str(caught.value)
    assert "judge.api_key_env: got SOME_KEY, and no such environment variable" in str(caught.value)


def test_the_key_itself_goes_nowhere(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    made = config(*JUDGE, "judge.api_key_env=SOME_KEY")
    assert "sk-very-secret" not in repr(env_source(made)) and "SOME_KEY" in repr(env_source(made))


def test_the_cache_lies_where_the_run_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, options = env_source(config(*JUDGE))
    assert options["judge"]["cache"] == str(tmp_path / ".cache" / "judge")


def test_style_wants_its_linter(monkeypatch):
    from jaxmtrl.rewards import style

    style._linter.cache_clear()
    monkeypatch.setitem(sys.modules, "ruff.__main__", None)
    with pytest.raises(ConfigError, match=r"the linter ruff is not installed; install it \(pip install -e"):
        load_source(config("reward.parts={success: 1, style: 0.1}"))


def test_a_game_that_breaks_is_named_by_its_own_factory_and_not_by_what_wraps_it():
    made = config("env.factory=faulty_env:make", "reward.repetition_penalty=0.01")
    with make_pool(made) as pool:
        pool.reset(0, faulty_task("raise", 0))
        (event,) = pool.receive(20.0)
    assert event.kind == "failure" and event.failure.startswith("faulty_env:make, task 'faulty/raise-0-0', turn 0")
