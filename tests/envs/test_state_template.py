"""The one template of states, and what of a TextWorld game's facts it may tell."""

from __future__ import annotations

import random

import pytest

from jaxmtrl.envs.state_template import Surroundings, feedback_of, state_text, with_feedback
from jaxmtrl.envs.textworld_surroundings import surroundings

# A kitchen with a closed fridge and an open drawer on its floor, a table, two ways out; the pantry is beyond a door.
FACTS = [
    ("at", (("P", "P"), ("kitchen", "r"))),
    ("at", (("fridge", "c"), ("kitchen", "r"))),
    ("at", (("drawer", "c"), ("kitchen", "r"))),
    ("at", (("table", "s"), ("kitchen", "r"))),
    ("at", (("mat", "o"), ("kitchen", "r"))),
    ("at", (("barrel", "o"), ("pantry", "r"))),
    ("closed", (("fridge", "c"),)),
    ("open", (("drawer", "c"),)),
    ("in", (("milk", "f"), ("fridge", "c"))),
    ("in", (("knife", "o"), ("drawer", "c"))),
    ("on", (("apple", "f"), ("table", "s"))),
    ("in", (("key", "k"), ("I", "I"))),
    ("north_of", (("pantry", "r"), ("kitchen", "r"))),
    ("south_of", (("kitchen", "r"), ("pantry", "r"))),
    ("west_of", (("garden", "r"), ("kitchen", "r"))),
    ("east_of", (("kitchen", "r"), ("garden", "r"))),
    ("link", (("kitchen", "r"), ("gate", "d"), ("pantry", "r"))),
    ("link", (("pantry", "r"), ("gate", "d"), ("kitchen", "r"))),
    ("locked", (("gate", "d"),)),
    ("match", (("key", "k"), ("gate", "d"))),
    ("free", (("kitchen", "r"), ("garden", "r"))),
]


def test_a_state_is_a_line_for_every_part():
    around = Surroundings(
        room="kitchen", items=["apple (table)", "fridge (closed)"], inventory=["key"], exits=["north"]
    )
    assert state_text(around, goal="eat the apple", feedback="You\n  take the key.") == (
        "[Room] kitchen\n[Items] apple (table), fridge (closed)\n[Inventory] key\n[Exits] north\n"
        "[Goal] eat the apple\n[Feedback] You take the key."
    )


def test_what_is_empty_is_said_and_feedback_left_out_at_the_start():
    assert state_text(Surroundings(room="cell"), goal="get out") == (
        "[Room] cell\n[Items] nothing\n[Inventory] nothing\n[Exits] none\n[Goal] get out"
    )


@pytest.mark.parametrize("below", ["", "\nYou can: look."])
@pytest.mark.parametrize("before", ["", "It is locked."])
def test_feedback_is_read_and_written_anew(before, below):
    cell = Surroundings(room="cell")
    seen = state_text(cell, goal="get [Feedback] out", feedback=before) + below
    assert feedback_of(seen) == before
    assert with_feedback(seen, "No\nway.") == state_text(cell, goal="get [Feedback] out", feedback="No way.") + below
    assert with_feedback(seen, " ") == state_text(cell, goal="get [Feedback] out") + below


@pytest.mark.parametrize(
    "seen", ["", "[Room]\nA room.", "Goal: x\n[Room] a\n[Items] b\n[Inventory] c\n[Exits] d\n[Goal] e"]
)
def test_other_words_are_no_state(seen):
    assert feedback_of(seen) is None and with_feedback(seen, "No.") is None


def test_facts_tell_the_room_its_things_and_the_ways_out():
    assert surroundings(FACTS) == Surroundings(
        room="kitchen",
        items=["drawer (open)", "fridge (closed)", "mat", "table", "apple (table)", "knife (drawer)"],
        inventory=["key"],
        exits=["north (gate, locked)", "west"],
    )


def test_what_is_hidden_stays_hidden_whatever_the_order_of_facts():
    for seed in range(20):
        shuffled = random.Random(seed).sample(FACTS, len(FACTS))
        assert surroundings(shuffled) == surroundings(FACTS)
    told = str(surroundings(FACTS))
    assert "milk" not in told and "barrel" not in told
    opened = [fact for fact in FACTS if fact[0] != "closed"] + [("open", (("fridge", "c"),))]
    assert "milk (fridge)" in surroundings(opened).items
