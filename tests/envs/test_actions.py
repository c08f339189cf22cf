"""A command out of a policy's text: tags, one line, a bound on its length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.actions import one_command, tagged_action, with_tags


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>look</action>", "look"),
        ("<think>the mug <action>is</action> here</think>\n<action>\n go to desk 1 \n</action> done", "go to desk 1"),
        ("<action>a</action> or <action>b</action>", "b"),
        ("<action>a <action>b</action>", "b"),
        ("<action>a</action> b</action>", "a</action> b"),  # the last closing tag, and the opening one before it
        ("<action>a</action> and then <action>b", "a"),  # cut by the token limit while it wrote another
        ("<action></action>", ""),
        ("<action>look", None),
        ("look</action>", None),
        ("</action>look<action>", None),
        ("<Action>look</Action>", None),
        ("look", None),
        ("", None),
    ],
)
def test_the_action_stands_in_the_last_whole_pair_of_tags(text, action):
    assert tagged_action(text) == action


@given(thought=st.text(), command=st.text())
def test_tagged_text_is_found_again_behind_any_thought(thought, command):
    command = command.replace("<", "").strip()
    assert tagged_action(thought + with_tags(command)) == command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (" look\n", "look"),
        ("Take  mug 1", "Take  mug 1"),
        ("x" * 200, "x" * 200),
        ("x" * 201, None),
        ("look\ninventory", None),
        ("look\rinventory", None),
        ("look\x0binventory", None),
        ("look\u2028inventory", None),
        (" \n\t", None),
        ("", None),
    ],
)
def test_one_command_is_one_line_of_bounded_length(text, command):
    assert one_command(text) == command
