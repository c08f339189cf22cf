"""Which verb a command has."""

from __future__ import annotations

import pytest

from jaxmtrl.actions.verbs import plain, verb_of

VERBS = ("go", "go to", "take", "put down")


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        ("go to desk 1", "go to"),
        ("go north", "go"),
        ("go", "go"),
        ("go to", "go to"),
        ("go tower", "go"),  # whole words only
        ("goat", "goat"),
        ("take mug", "take"),
        ("put mug", "put"),  # of no known verb the first word
        ("put down mug", "put down"),
        ("heat mug with stove", "heat"),
        ("", ""),
    ],
)
def test_the_longest_known_verb_counts(command, verb):
    assert verb_of(command, VERBS) == verb


def test_a_command_is_read_without_capitals_and_double_spaces():
    assert plain("  Go   TO\tdesk 1\n") == "go to desk 1"
