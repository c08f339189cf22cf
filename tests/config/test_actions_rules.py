"""The action space's settings: what goes together, and what is refused with the field named and the cure."""

from __future__ import annotations

import pytest

from jaxmtrl.config.actions_section import ActionsSection
from jaxmtrl.config.lint import advice
from jaxmtrl.config.loading import load_config, save_config
from jaxmtrl.errors import ConfigError

SMALLEST = "run: {name: a}\nenv: {factory: 'package.module:make'}\n"
TEN = "[a, b, c, d, e, f, g, h, i, j]"
TWO = ["actions.stages={first: [go to, take], second: [put]}"]
FETCH = ["actions.stages={first: [go to, take, open, fetch], second: [put]}"]
MACRO = "actions.macros={fetch X from Y: [go to Y, try open Y, take X from Y]}"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "run.yaml").write_text(SMALLEST, encoding="utf-8")
    return tmp_path / "run.yaml"


def mistakes(path, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return caught.value.mistakes


def test_nothing_is_restricted_by_default(path):
    section = load_config(path).actions
    assert section == ActionsSection() and not section.on


@pytest.mark.parametrize(
    "overrides",
    [
        TWO,
        ["actions.stages={only: [take]}"],
        [*FETCH, MACRO, "actions.enforce=mask", "actions.evaluate=last", "actions.start=second"],
        [*TWO, "actions.advance=iterations", "actions.at=[20]"],
        [*TWO, "actions.every=1", "actions.least=8", "actions.return_below=0.2", "actions.certain=true"],
        [f"actions.stages={{first: {TEN}, second: [k, l], third: [m, n]}}"],  # 2 of 14 are 14 %
        ["actions.stages={first: [a], second: [b, c, d]}", "actions.growth=1"],
    ],
)
def test_what_goes_together_loads_and_is_written_back(path, overrides, tmp_path):
    config = load_config(path, overrides)
    save_config(config, tmp_path / "again.yaml")
    assert config.actions.on and load_config(tmp_path / "again.yaml") == config


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["actions.enforce=mask"], "actions.enforce: got 'mask', which nothing reads with actions.stages empty"),
        (["actions.stages={a: []}"], "actions.stages.a: adds nothing"),
        (["actions.stages={a: [Take]}"], "actions.stages.a: got 'Take', wanted a verb in small letters"),
        (["actions.stages={a: [take], b: [take]}"], "take added more than once"),
        (["actions.stages={a: [take, take]}"], "take added more than once"),
        *(
            ([f"actions.stages={{a: [{verb!r}]}}"], "wanted a verb in small letters with single spaces")
            for verb in (
                "",
                " take",
                "take ",
                "go  to",
                "go\nto",
                "tâke",
                "take 1",
                "-take",
                "take\u00a0up",
                "<action>",
            )
        ),
        (
            [f"actions.stages={{a: {TEN}, b: [k, l, m, n]}}"],
            "actions.stages.b: adds 4 of the last stage's 14 verbs (29 %), wanted at most 2 (actions.growth 0.2); "
            "put 2 of them into the first stage or a stage of their own, or raise actions.growth to 0.29",
        ),
        ([*TWO, "actions.start=third"], "actions.start: got 'third', wanted one of actions.stages: first, second"),
        ([*TWO, MACRO], "'fetch' is in none of actions.stages"),
        ([*FETCH, "actions.macros={fetch X: [take Y]}"], "its steps have Y, which 'fetch X' does not"),
        ([*FETCH, "actions.macros={fetch X: [take X, try open X, look at Z]}"], "its steps have Z"),
        ([*FETCH, "actions.macros={fetch X: [open door]}"], "X stands in none of its steps"),
        ([*FETCH, "actions.macros={fetch X: [try take X]}"], "wanted a step that is always done"),
        ([*FETCH, "actions.macros={X fetch: [take X]}"], "wanted a verb in small letters, then parameters"),
        ([*FETCH, "actions.macros={fetch X: [take X], fetch X in Y: [go to Y, take X]}"], "two begin with 'fetch'"),
        ([*FETCH, "actions.macros={fetch X: [fetch X now]}"], "its step 'fetch X now' is a macro itself"),
        ([*TWO, "actions.at=[5]"], "actions.at: got [5] with actions.advance success"),
        ([*TWO, "actions.advance=iterations"], "wanted 1 ascending RL iterations"),
        ([*TWO, "actions.advance=iterations", "actions.at=[5, 5]"], "wanted 1 ascending RL iterations"),
        ([*TWO, "actions.advance=iterations", "actions.at=[5]", "actions.least=8"], "which nothing reads with actions"),
        ([*TWO, "actions.return_below=0.8"], "wanted less than actions.advance_above (0.7)"),
        ([*TWO, "rollout.overlap=true", "algorithm.importance_cap=2"], "wanted false"),
    ],
)
def test_what_does_not_is_refused_with_the_cure(path, overrides, said):
    found = mistakes(path, *overrides)
    assert len(found) == 1 and said in found[0], found


def test_all_mistakes_come_at_once(path):
    found = mistakes(path, "actions.stages={a: [take], b: [take]}", "actions.start=c", "actions.at=[3]", MACRO)
    assert len(found) == 4


def test_a_first_stage_of_three_among_many_gets_advice(path):
    few = "actions.stages={a: [a, b, c], b: [d, e], c: [f, g], d: [h, i], e: [j]}"
    assert any(text.startswith("actions.stages: 3 of 10 verbs") for text in advice(load_config(path, [few])))
    small = "actions.stages={a: [a, b, c], b: [d]}"
    assert not any(text.startswith("actions") for text in advice(load_config(path, [small])))
