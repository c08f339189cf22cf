"""Values that are of the right type and no use: sums without end, addresses of nowhere, text that is none."""

from __future__ import annotations

import pytest

from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import ConfigError

JUDGED = ["reward.parts={judge: 1}", "judge.model=m"]
FETCH = "actions.stages={first: [fetch, get], second: [put]}"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "run.yaml").write_text("run: {name: a}\nenv: {factory: 'package.module:make'}\n", encoding="utf-8")
    return tmp_path / "run.yaml"


def mistakes(path, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return caught.value.mistakes


@pytest.mark.parametrize(
    "override",
    [
        "reward.parts={env: 1e308, success: 1e308}",
        "reward.clip=1e300",
        "reward.format_penalty=1e300",
        "curriculum.mixture={a: 1e308, b: 1e308}",
    ],
)
def test_weights_whose_sum_could_be_infinite_are_refused(path, override):
    assert all("<= 1e+06" in mistake for mistake in mistakes(path, override))


@pytest.mark.parametrize(
    "url",
    [
        "notaurl",
        "http://",
        "ftp://x/v1",
        "http://x:99999999/v1",
        "http://x:0/v1",
        "http://a b/v1",
        "//x/v1",
        "http://[x/v1",
    ],
)
def test_a_judge_that_no_request_could_reach_is_refused(path, url):
    (mistake,) = mistakes(path, *JUDGED, f"judge.url='{url}'")
    assert mistake.startswith(f"judge.url: got {url!r}, wanted http:// or https://, a host")


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "https://api.example.com/v1", "http://[::1]:80/v1"])
def test_a_judge_that_may_be_there_is_taken(path, url):
    assert load_config(path, [*JUDGED, f"judge.url='{url}'"]).judge.url == url


def test_a_key_in_place_of_its_variable_is_refused_and_not_repeated(path):
    found = mistakes(path, "reward.parts={judge: 1}", "judge.url='x'", "judge.model='  '", "judge.api_key_env=sk-123")
    assert len(found) == 3 and not any("sk-123" in mistake for mistake in found)


def test_every_stage_that_is_wrong_is_named(path):
    found = mistakes(path, "actions.stages={a: [], ' ': [Go, Put, take], b: ['']}")
    assert len([mistake for mistake in found if "adds nothing" in mistake]) == 1
    assert [verb for verb in ("'Go'", "'Put'", "''") if any(f"got {verb}, wanted a verb" in text for text in found)]
    assert len([mistake for mistake in found if "wanted a verb" in mistake]) == 3
    assert any("got the name ' '" in mistake for mistake in found)


def test_every_macro_that_is_wrong_is_named(path):
    macros = "{fetch X: [fetch X, get X], get Y: [get Y], hold Z: [go Z]}"
    found = mistakes(path, FETCH, f"actions.macros={macros}")
    assert sum("is a macro itself" in mistake for mistake in found) == 3
    assert any("'hold' is in none of actions.stages" in mistake for mistake in found)


@pytest.mark.parametrize("step", ["X", "X go", "try try go X", "Go X"])
def test_a_macro_step_without_a_verb_is_refused(path, step):
    (mistake,) = mistakes(path, FETCH, f"actions.macros={{fetch X: ['{step}', take X]}}")
    assert "wanted a verb in small letters at its beginning" in mistake


def test_every_level_that_is_wrong_is_named(path):
    levels = "{'a b': {train: x, evaluate: x}, 'c/d': {train: y, evaluate: y}}"
    found = mistakes(path, f"curriculum.levels={levels}")
    assert sum("got the name" in mistake for mistake in found) == 2
    assert sum("a split that is trained on" in mistake for mistake in found) == 2


@pytest.mark.parametrize("text", ['"a\\0b"', '"\\ud800"'])
@pytest.mark.parametrize("place", ["run.dir={}", "env.options={{a: [{{b: {}}}]}}", "env.options={{{}: 1}}"])
def test_text_that_no_file_name_takes_is_refused_wherever_it_stands(path, place, text):
    (mistake,) = mistakes(path, place.format(text))
    assert mistake.startswith(f"override {place.partition('=')[0]}: line 1: a text holds a NUL character or half of")


def test_an_unnamed_part_is_shown_in_quotes(path):
    assert 'unknown ""' in mistakes(path, "reward.parts={'': 1}")[0]
