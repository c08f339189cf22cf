"""Names and lists as the official engine forms them, and what a game file's grammar says."""

from __future__ import annotations

import pytest

from jaxmtrl.envs.alfworld.naming import CLASSIC, MODERN, listing, name_things, read_grammar
from jaxmtrl.errors import EnvironmentFailure

GRAMMAR = """grammar :: \"\"\"
  {"task": [{"rhs": "Your task is to: %s."}],
   "GotoLocation.feedback": [{"rhs": "You arrive at {%s.name}. #examineReceptacle.feedback#"}]}
\"\"\";
action PutObject { template :: "%s"; feedback :: "#PutObject.feedback#"; }
"""


def test_numbers_fall_as_ids_rise_within_a_class():
    ids = ["mug_bar_b", "mug_bar_a", "loc_bar_1", "mugtree_bar_a", "mug_bar_c"]
    assert name_things(ids) == ["mug 2", "mug 3", "loc 1", "mugtree 1", "mug 1"]


def test_basins_are_called_after_what_they_are_part_of():
    ids = ["sink_bar_1", "sink_bar_1_bar_sinkbasin", "bathtub_bar_1_bar_bathtubbasin", "agent1"]
    assert name_things(ids) == ["sink 1", "sinkbasin 1", "bathtubbasin 1", "agent1 "]


def test_lists_have_a_comma_before_and():
    assert [listing(["a", "b", "c"][:count]) for count in range(4)] == ["nothing", "a", "a, and b", "a, b, and c"]


def test_a_grammar_tells_task_and_wording():
    task, wording = read_grammar(GRAMMAR % ('put a \\"mug\\" on desk', "r", "move {o} to {r}") + "action help {\n}")
    assert (task, wording) == ('put a "mug" on desk', MODERN)
    assert read_grammar(GRAMMAR % ("look", "lend", "put {o} in/on {r}")) == ("look", CLASSIC)


def test_a_grammar_without_task_or_way_to_put_is_refused():
    with pytest.raises(EnvironmentFailure, match="Your task is to"):
        read_grammar('template :: "move {o} to {r}"')
    with pytest.raises(EnvironmentFailure, match="put {o} in/on"):
        read_grammar(GRAMMAR % ("look", "r", "drop {o}"))
