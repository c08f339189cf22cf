"""Each part and fault by itself, with numbers worked out."""

from __future__ import annotations

import pytest
from moments import moment, said

from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.rewards import parts
from jaxmtrl.rewards.parts import Exchange


def test_progress_is_the_discounted_potential_less_the_one_before():
    """.9 * .5 - .25 = .2; at the end Φ is 0: -.75."""
    part = parts.progress(0.9)
    assert part(moment(before=0.25, after=0.5)) == pytest.approx(0.2)
    assert part(moment(before=0.75, after=0.0, done=True)) == -0.75


def test_success_pays_the_verdict_alone():
    assert parts.success(moment(reward=0.3)) == 0 and parts.success(moment(reward=0.3, done=True, success=True)) == 1


def test_shares_are_paid_once_as_the_episode_ends():
    assert parts.pass_ratio(moment(pass_ratio=0.5)) == 0 and parts.style(moment(style=0.7)) == 0
    assert parts.pass_ratio(moment(pass_ratio=0.5, done=True)) == 0.5
    assert parts.pass_ratio(moment(pass_ratio=1.0, done=True, success=True)) == 1.0
    assert parts.style(moment(style=0.7, truncated=True)) == 0.7


@pytest.mark.parametrize(
    ("metrics", "success", "sentence"),
    [
        ({}, False, "reported no metric pass_ratio by the end of the episode"),
        ({"pass_ratio": 1.5}, False, "pass_ratio 1.5, wanted a share in 0..1"),
        ({"pass_ratio": float("nan")}, False, "pass_ratio nan, wanted a share"),
        ({"pass_ratio": 1.0}, False, "pass_ratio 1 and success False"),
        ({"pass_ratio": 0.9}, True, "pass_ratio 0.9 and success True"),
    ],
)
def test_a_share_that_cannot_be_is_a_failure_and_no_score(metrics, success, sentence):
    with pytest.raises(EnvironmentFailure, match=sentence):
        parts.pass_ratio(moment(done=True, success=success, **metrics))


def test_an_invalid_action_is_what_the_environment_says():
    assert parts.invalid_action(moment(invalid_action=1.0)) == 1 and parts.invalid_action(moment()) == 0


@pytest.mark.parametrize(
    ("pattern", "action", "fault"),
    [
        ("", "take key", 0),
        ("", "  ", 1),
        ("", "take key\nopen door", 1),
        ("", "x" * 201, 1),
        ("", "I think.\nSo <action>take key</action>", 0),
        (r"(?s).*<action>[^<>]+</action>\s*", "I think.\nSo <action>take key</action>\n", 0),
        (r"(?s).*<action>[^<>]+</action>\s*", "take key", 1),
        ("[a-z ]+", "take key!", 1),  # all of it must match
    ],
)
def test_a_format_is_kept_or_not(pattern, action, fault):
    assert parts.wrong_format(pattern)(moment(*said(action))) == fault


def test_only_the_same_action_on_the_same_text_with_the_same_answer_is_a_repetition():
    look = Exchange(observation="You see a door.", action="look", answer="You see a door.")
    again = Exchange(observation="You see a door.", action=" LOOK ", answer="You see a door.")
    assert parts.repetition(moment(look)) == 0
    assert parts.repetition(moment(look, again)) == 1
    other_answer = Exchange(observation="You see a door.", action="look", answer="You see a wolf.")
    other_place = Exchange(observation="You hold the key.", action="look", answer="You see a door.")
    assert parts.repetition(moment(look, other_answer)) == parts.repetition(moment(look, other_place)) == 0
    thought = Exchange(observation="You see a door.", action="Hm. <action>look</action>", answer="You see a door.")
    assert parts.repetition(moment(look, thought)) == 1  # other thoughts, the same action


def test_sameness_is_the_share_of_actions_said_before():
    """look, take, look, LOOK: two of four are new."""
    turns = said("look", "take key", "look", "LOOK")
    assert parts.sameness(moment(*turns)) == 0
    assert parts.sameness(moment(*turns, truncated=True)) == 0.5
    assert parts.sameness(moment(*said("a", "b"), done=True)) == 0
