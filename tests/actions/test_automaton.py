"""The automaton lets through exactly the commands whose verb is allowed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.actions.automaton import _LEADS, Automaton
from jaxmtrl.actions.verbs import plain, verb_of
from jaxmtrl.envs.actions import tagged_action

KNOWN = ("go", "go to", "take", "tap", "put down")
WORDS = st.sampled_from(["go", "to", "tower", "take", "tap", "put", "down", "t", "goat", "mug 1", "x"])


def passes(automaton: Automaton, text: str) -> bool:
    state = automaton.start
    for byte in text.encode():
        state = automaton.after(state, byte)
        if state is None:
            return False
    return automaton.may_stop(state)


@given(words=st.lists(WORDS, min_size=1, max_size=4), allowed=st.sets(st.sampled_from(KNOWN)))
def test_it_agrees_with_the_verb_of_a_command(words, allowed):
    command = " ".join(words)
    assert passes(Automaton.of(allowed, KNOWN, think=False), command) == (verb_of(command, KNOWN) in allowed)


@pytest.mark.parametrize("text", ["", " take mug", "Take mug", "take\nmug", "ta", "take.", "gotake", "heat mug"])
def test_what_is_no_command_of_ours_is_not_let_through(text):
    assert not passes(Automaton.of(KNOWN, KNOWN, think=False), text)


def test_a_longer_verb_that_is_not_allowed_is_not_begun():
    automaton = Automaton.of(["go"], KNOWN, think=False)
    assert passes(automaton, "go") and passes(automaton, "go north") and passes(automaton, "go tower")
    assert (
        not passes(automaton, "go to\nx") and not passes(automaton, "go to") and not passes(automaton, "go to desk 1")
    )


CLIMBING = Automaton.of(["go", "go to"], [*KNOWN, "go to up", "go keep"], think=False)
BLANKS = ["  ", "\t", "\x1c", "\x85", "\u00a0", "\u3000", " \u2003", "\n"]


@pytest.mark.parametrize("blank", BLANKS)
def test_a_longer_verb_is_not_begun_by_other_blanks_or_letters(blank):
    """What the game would read as "go to", and refuse, though "go" is allowed."""
    for text in (f"go{blank}to up", f"go to{blank}up", "go to Up", "go TO up", f"go {blank}to up", f"go to up{blank}x"):
        assert verb_of(plain(text), ["go to up"]) == "go to up" and not passes(CLIMBING, text), text


def test_a_longer_verb_is_begun_by_nothing_but_its_own_letters():
    assert plain("go \u212aeep") == "go keep" and not passes(CLIMBING, "go \u212aeep")
    for text in (
        "go to the TOP",
        "go North",
        "go north\u3000to up",
        "go Über",
        "go k2",
        "go t to up",
        "go to un\u00a0x",
    ):
        assert passes(CLIMBING, text), text


def test_signs_that_read_as_blanks_or_letters_begin_like_this():
    """All of Unicode: what `plain` makes a space or a plain letter of."""
    signs = map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x110000)))
    read = [sign for sign in signs if not sign.split() or sign.lower().isascii()]
    assert {sign.encode()[0] for sign in read} == _LEADS


@pytest.mark.parametrize("allowed", [["go"], ["go", "go to"], ["go to"], ["go", "go keep"]])
def test_whatever_is_let_through_has_an_allowed_verb_to_the_game(allowed):
    """All commands of two words, and what stands between and behind them."""
    known, between = (*KNOWN, "go to up", "go keep"), ["", " ", *BLANKS]
    automaton, passed = Automaton.of(allowed, known, think=False), 0
    words = ["to", "To", "t", "T", "keep", "\u212aeep", "Keep", "é", "up"]
    for parts in itertools.product(["go"], between, words, between, ["", "up", "x"]):
        text = "".join(parts)
        if passes(automaton, text):
            passed += 1
            assert verb_of(plain(text), known) in allowed, text
    assert passed >= 3


def test_after_the_verb_anything_goes():
    automaton = Automaton.of(["take"], KNOWN, think=False)
    assert passes(automaton, "take ") and passes(automaton, "take \x00\xff!\n<action>heat")


@pytest.mark.parametrize(
    ("text", "lets"),
    [
        ("hm, heat it? <action>take mug</action>", True),
        ("<action>take</action>", True),
        ("<action>heat mug</action>", False),
        ("<action>take mug</action> or <action>heat mug</action>", False),
        ("<action>take <action>heat mug</action>", False),
        ("<action><action>take mug</action>", False),
        ("<<action>heat</action>", False),
        ("<act <action>take mug</action> fine", True),
        ("no tags at all, heat mug", True),
        ("<action> take mug</action>", False),
        ("<action>take<b></action>", False),
    ],
)
def test_thought_is_free_and_what_is_tagged_is_not(text, lets):
    assert passes(Automaton.of(["take"], ["take", "heat"], think=True), text) == lets


PIECES = st.sampled_from(["<action>", "</action>", "take", "heat", " ", "mug", "<", "action>", "x"])


@given(pieces=st.lists(PIECES, max_size=10))
def test_whatever_is_let_through_holds_no_forbidden_command(pieces):
    text = "".join(pieces)
    found = tagged_action(text)
    if passes(Automaton.of(["take"], ["take", "heat"], think=True), text) and found:
        assert verb_of(found, ("take", "heat")) == "take"
