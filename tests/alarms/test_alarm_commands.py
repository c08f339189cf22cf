"""Commands are counted as a game reads them, and a repeat is in vain if it changed nothing."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from alarm_plays import episode, turn
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.alarms.commands import (
    LONGEST_VERB,
    MOST_VERBS,
    command_of,
    commands,
    entropy,
    repeats_in_vain,
    verb_of,
    verbs,
    verbs_understood,
    with_verbs,
)


@pytest.mark.parametrize(
    ("said", "command", "verb"),
    [
        ("  Take  the KEY \n", "take the key", "take"),
        ("I should look. <action> Open door</action>", "open door", "open"),
        ("<action>look</action> or <action>go north</action>", "go north", "go"),
        ("<action>look", "<action>look", "<action>look"),
        ("", "", ""),
        (" \n ", "", ""),
        ("x" * 90 + " y", "x" * 90 + " y", "x" * LONGEST_VERB),
    ],
)
def test_a_command_is_what_the_game_would_read(said, command, verb):
    assert command_of(turn(said)) == command and verb_of(command) == verb


def test_entropy_of_shares():
    """One of four things: ln 4. Shares 1/2, 1/4, 1/4: 1.5 ln 2 = 1.0397. One thing only: 0. Nothing: not known."""
    assert entropy(Counter("abcd")) == pytest.approx(math.log(4))
    assert entropy(Counter("aabc")) == pytest.approx(1.5 * math.log(2))
    assert entropy(Counter({"a": 7})) == 0 and math.isnan(entropy(Counter()))


@given(st.lists(st.text(max_size=4), min_size=1), st.integers(2, 5), st.randoms())
def test_entropy_knows_neither_order_nor_names_nor_how_often_all_was_said(said, times, random):
    """At most ln(different); the same for a shuffled list, for all of it several times over, and under other names."""
    counts = Counter(said)
    shuffled = random.sample(said, len(said))
    assert 0 <= entropy(counts) <= math.log(len(counts)) + 1e-9
    assert entropy(Counter(shuffled * times)) == pytest.approx(entropy(counts), abs=1e-9)
    assert entropy(Counter({f"{word}!": n for word, n in counts.items()})) == pytest.approx(entropy(counts), abs=1e-9)


def test_verbs_are_counted_as_often_as_they_were_said_and_failed_episodes_are_not():
    episodes = [
        episode(turn("go north"), turn("go  North"), turn("look")),
        episode(turn("dance"), failed=True),
    ]
    assert commands(episodes) == {"go north": 2, "look": 1}
    assert verbs(commands(episodes)) == {"go": 2, "look": 1}


def test_a_verb_is_understood_if_the_environment_took_it_or_does_not_say():
    said = [turn("go north", invalid=False), turn("fly", invalid=True), turn("sing")]
    broken = episode(turn("dance", invalid=False), failed=True)
    assert verbs_understood([episode(*said), broken]) == {"go", "sing"}


def test_remembered_verbs_keep_their_order_and_are_bounded():
    assert with_verbs(("look", "go"), {"take", "go", "eat"}) == ("look", "go", "eat", "take")
    many = with_verbs((), {f"{n:05}" for n in range(2 * MOST_VERBS)})
    assert len(many) == MOST_VERBS and with_verbs(many, {"new"}) == many


def test_a_repeat_with_the_same_answer_is_in_vain():
    """Of five turns four answers are kept. "look" again, answered the same: in vain. "look" answered otherwise: not."""
    turns = [
        turn("look", observation="start"),
        turn("LOOK", observation="a hall"),
        turn("open door", observation="a hall"),
        turn("look", observation="it opens"),
        turn("look", observation="a garden"),  # the answer to this one nobody kept
    ]
    assert repeats_in_vain(episode(*turns)) == (1, 4)


def test_a_repeat_that_earns_or_begins_elsewhere_is_not_in_vain():
    """Two coins are taken in the same words, both paid; a door is opened in each of two states."""
    coins = [turn("take coin", reward=0.5, observation="coins"), turn("take coin", reward=0.5, observation="taken")]
    assert repeats_in_vain(episode(*coins, turn("look", observation="taken"))) == (0, 2)
    doors = [turn("open", state="1", observation=""), turn("open", state="2", observation="open!")]
    assert repeats_in_vain(episode(*doors, turn("look", observation="open!"))) == (0, 2)
    assert repeats_in_vain(episode(*[turn("open", state="1", observation="open!")] * 3)) == (1, 2)


@pytest.mark.parametrize("count", [0, 1])
def test_without_an_answer_nothing_is_known(count):
    assert repeats_in_vain(episode(*[turn("look")] * count)) == (0, 0)


def test_walking_in_circles_is_in_vain_from_the_second_round():
    """go east, go west, go east, go west, look: the third and fourth do what the first and second did."""
    rooms = ["A", "B", "A", "B", "A"]
    turns = [turn(word, observation=room) for word, room in zip(["go east", "go west"] * 2 + ["look"], rooms)]
    assert repeats_in_vain(episode(*turns)) == (2, 4)
