"""Alarms that could never ring and reactions that could never follow are refused, with the fields and the cure."""

from __future__ import annotations

from typing import get_args

import pytest

from jaxmtrl.config.alarms_rules import ALARMS_RULES
from jaxmtrl.config.alarms_section import ALARMS, AlarmName, AlarmsSection, Reaction
from jaxmtrl.config.catalogue import settings
from jaxmtrl.config.loading import load_config
from jaxmtrl.config.rules import broken_rules
from jaxmtrl.errors import ConfigError

SMALLEST = "run: {name: a}\nenv: {factory: 'package.module:make'}\n"
WARM_UP = "alarms.early_collapse=kl_warm_up"
SCALING = "alarms.late_oscillation=reward_scaling"
REFERENCE = "algorithm.kl_coef=0.001"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "run.yaml").write_text(SMALLEST, encoding="utf-8")
    return tmp_path / "run.yaml"


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["alarms.on=false", "alarms.echo_trap=stop"], ["alarms.echo_trap: got stop", "alarms.on to true"]),
        ([WARM_UP], ["algorithm.kl_coef: got 0", "alarms.early_collapse", "0.001", "message"]),
        (
            [WARM_UP, REFERENCE, "algorithm.kl_target=0.02"],
            ["alarms.early_collapse", "algorithm.kl_target 0.02", "to 0, or"],
        ),
        ([SCALING, "algorithm.reward_scale=running"], ["alarms.late_oscillation", "reward_scale running", "none"]),
        (["alarms.forgetting=stop"], ["alarms.forgetting: got stop", "evaluation.every (0)", "none"]),
        (
            ["alarms.forgetting=stop", "evaluation.splits={heldout: 9}"],
            ["alarms.forgetting", "evaluation.every (0)", "heldout", "10"],
        ),
        (["alarms.early_iterations=5"], ["alarms.early_iterations: got 5", "alarms.window (3)", "6 or more"]),
        (["alarms.swing_window=4", "alarms.swings=4"], ["alarms.swings: got 4", "alarms.swing_window (4)", "to 3"]),
        (["alarms.variance_low=10"], ["alarms.variance_high: got 10", "alarms.variance_low (10)", "set 100"]),
        (
            [SCALING, "alarms.scaled_variance=20"],
            ["alarms.scaled_variance: got 20", "alarms.variance_low (1)", "alarms.variance_high (10)", "3.2"],
        ),
        ([WARM_UP, REFERENCE, "alarms.kl_from=0.2"], ["alarms.kl_to: got 0.1", "alarms.kl_from (0.2)", "2"]),
        (["alarms.kl_iterations=50"], ["alarms.kl_iterations: got 50", "kl_warm_up", "alarms.early_collapse"]),
        (["alarms.scaled_variance=2"], ["alarms.scaled_variance: got 2", "reward_scaling"]),
    ],
)
def test_a_broken_rule_names_the_fields_and_the_cure(path, overrides, parts):
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    (message,) = caught.value.mistakes
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    "overrides",
    [
        ["alarms.on=false", "alarms.echo_trap=off"],
        [WARM_UP, REFERENCE],
        [WARM_UP, REFERENCE, "alarms.kl_from=0.1", "alarms.kl_iterations=1"],
        [SCALING, "alarms.scaled_variance=10"],
        ["alarms.forgetting=stop", "evaluation.splits={heldout: 9}", "evaluation.every=10"],
        ["alarms.forgetting=off"],
        ["alarms.early_iterations=6"],
        ["alarms.swing_window=4", "alarms.swings=3"],
        ["alarms.echo_trap=stop"],
    ],
)
def test_values_on_the_right_side_of_each_rule_pass(path, overrides):
    load_config(path, overrides)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("alarms.echo_trap=sotp", "did you mean stop?"),
        ("alarms.window=1", ">= 2"),
        ("alarms.opening=51", "<= 50"),
        ("alarms.certainty=0", "> 0"),
        ("alarms.certainty=.inf", "alarms.certainty"),
        ("alarms.collapse_fall=1.5", "<= 1"),
        ("alarms.echo=stop", "alarms.echo: unknown"),
    ],
)
def test_each_field_has_its_bounds(path, override, part):
    with pytest.raises(ConfigError) as caught:
        load_config(path, [override])
    assert len(caught.value.mistakes) == 1 and part in caught.value.mistakes[0]


def test_alarms_are_messages_by_default_and_nothing_when_off(path):
    section = load_config(path).alarms
    assert section == AlarmsSection() and {section.reaction(name) for name in ALARMS} == {"message"}
    off = AlarmsSection(on=False)
    assert {off.reaction(name) for name in ALARMS} == {"off"}


def test_every_alarm_is_a_field_that_takes_every_reaction():
    assert ALARMS == get_args(AlarmName)
    for name in ALARMS:
        assert settings()[f"alarms.{name}"].choices == get_args(Reaction)


def test_every_rule_names_fields_that_there_are_and_holds_for_the_defaults(path):
    for rule in ALARMS_RULES:
        assert set(rule.fields) <= set(settings())
    assert broken_rules(load_config(path)) == []
