"""Patterns that would hold a worker up are refused before a run; those that people write pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import ConfigError
from jaxmtrl.rewards import pattern
from jaxmtrl.rewards.pattern import hostile_texts, require_quick
from jaxmtrl.rewards.source import load_source

TOY = Path(__file__).parents[2] / "configs" / "toy.yaml"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A tenth of the time: what is refused takes for ever, and what passes a millisecond."""
    monkeypatch.setattr(pattern, "_TEXT_S", 0.05)


@pytest.mark.parametrize(
    ("slow", "begins"),
    [
        (r"(a+)+", "'aaaa"),
        (r"<action>(\w+\s?)+</action>", "'<action>"),
        (r"go (north|south)( \d+)*(\d+)*", "'go "),
        (r"(.*)(.*)(.*)(.*)(.*)x", "'"),  # a polynomial, of the fifth degree
        (r"(?:(?:go )+)+", "'go go "),
    ],
)
def test_what_has_too_many_ways_is_refused(slow, begins):
    with pytest.raises(ConfigError) as caught:
        require_quick(slow, 50)
    (mistake,) = caught.value.mistakes
    assert f"got {slow!r}, which takes more than 0.05 s for " in mistake and f"that begin {begins}" in mistake


@pytest.mark.parametrize(
    "quick",
    [
        r"([a-z]+ )*[a-z]+",  # a repeat in a repeat, with one way through any text
        r"(a++)+",
        r"(?s).*<action>[^<]{1,60}</action>",
        r"<think>.*</think>\n<action>.*</action>",
        r"(?i)(go|take|open|put) .{1,40}",
        r"\S+(\s\S+){0,9}",
        "ü",
    ],
)
def test_what_has_few_passes(quick):
    require_quick(quick, 500)


def test_texts_are_as_long_as_actions_and_bounded_in_number():
    texts = hostile_texts(r"(one|two|three|four|five|six|seven)\.x+" + "".join(map(chr, range(0x4E00, 0x4E80))), 80)
    assert len(texts) == 2 * 26 * 40 and max(map(len, texts)) <= 81 + len("threefour") and "one" in texts[0]
    for group in ("(?:", "(?P<word>", "(?i:", "(?=", "(?<!", "("):
        assert "go.go.go.go." in hostile_texts(rf"{group}go\.)+", 12), group


def test_a_run_with_such_a_pattern_does_not_begin():
    made = load_config(TOY, ["env.options={}", "reward.format_penalty=0.1", "reward.format_pattern=(a+)+"])
    with pytest.raises(ConfigError, match="too many ways to match it; let no repeat"):
        load_source(made)


@pytest.mark.parametrize("wrong", ["(", "a{99999999999999999999}", "(" * 5000 + ")" * 5000])
def test_what_is_no_pattern_is_said_with_the_config(wrong):
    with pytest.raises(ConfigError, match="which is no regular expression"):
        load_config(TOY, ["env.options={}", "reward.format_penalty=0.1", f"reward.format_pattern={wrong!r}"])


def test_a_trial_that_cannot_be_made_is_told(monkeypatch):
    monkeypatch.setattr(pattern, "_TRIAL", "raise SystemExit('no room')")
    with pytest.raises(ConfigError, match=re.escape("could not be tried (exit code 1): no room")):
        require_quick("a", 10)
