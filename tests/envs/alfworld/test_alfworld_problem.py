"""A problem's text becomes numbers and bits; damaged text is refused with a sentence that says where."""

from __future__ import annotations

import pickle
import re

import pytest
from small_room import kitchen, location, place_goal

from jaxmtrl.envs.alfworld.pddl import And, Atom, Exists, Not, read_goal
from jaxmtrl.envs.alfworld.problem import (
    CLEANABLE,
    CONTAINER,
    COOLABLE,
    HEATABLE,
    PICKUPABLE,
    SLICEABLE,
    TOGGLEABLE,
    read_problem,
)
from jaxmtrl.errors import EnvironmentFailure


def test_a_problem_lists_what_there_is_by_sorted_id():
    problem = read_problem(kitchen())
    assert problem.objects == ("apple_bar_a1", "apple_bar_a2", "desklamp_bar_l", "knife_bar_k", "mug_bar_mug")
    assert problem.object_classes == ("apple", "apple", "desklamp", "knife", "mug")
    assert problem.receptacles[-1] == "sink_bar_s_bar_sinkbasin" and problem.receptacle_classes[-1] == "sinkbasin"
    assert problem.locations == tuple(location(number) for number in range(7))
    # cabinet c1, cabinet c2, counter top, fridge, microwave (with the counter top), side table, sink basin
    assert problem.receptacle_locations == (1, 2, 3, 4, 3, 6, 5)
    assert problem.openable == (True, True, False, True, True, False, False) and not any(problem.opened)
    assert problem.contents == ((3,), (), (1, 4), (0,), (4,), (2,), ())  # the mug, 4, is in two receptacles
    assert problem.start == 0 and problem.held == -1
    apple = PICKUPABLE | CLEANABLE | HEATABLE | COOLABLE | SLICEABLE
    mug = PICKUPABLE | CLEANABLE | HEATABLE | COOLABLE | CONTAINER
    assert problem.traits == (apple, apple, TOGGLEABLE, PICKUPABLE | CLEANABLE, mug)
    assert problem.states == (0,) * 5
    assert ("cabinet", "knife") in problem.fits and ("sidetable", "knife") not in problem.fits


def test_classes_that_no_fact_is_about_are_no_objects():
    assert "(:objects\n        agent1 - agent\n        Apple - object" in kitchen()
    assert "apple" not in read_problem(kitchen()).objects


def test_comments_numbers_and_capitals_make_no_difference():
    text = kitchen()
    decorated = text.replace(
        "(:init", "(:init ; the beginning (of all)\n (= (total-cost) 0) (= (distance a b) 3)"
    ).upper()
    assert read_problem(decorated) == read_problem(text)


def test_problems_are_values():
    one, other = read_problem(kitchen()), read_problem(kitchen())
    assert one == other and hash(one) == hash(other) and one is not other
    assert pickle.loads(pickle.dumps(one)) == one
    assert read_problem(kitchen(place_goal("Mug", "Fridge"))) != one


def test_a_goal_is_a_tree():
    tree = read_goal("(and (exists (?a - object ?b - object) (not (= ?a ?b))))")
    assert tree == And((Exists((("?a", "object"), ("?b", "object")), Not(Atom("=", ("?a", "?b")))),))


@pytest.mark.parametrize(
    ("change", "into", "said"),
    [
        ("(:goal", "(:gaol", "no section (:goal"),
        ("(:objects", "(:things", "no section (:objects"),
        ("(atLocation agent1 loc_bar_0_bar_0_bar_0_bar_45)", "", "puts the agent in 0 locations"),
        ("(pickupable Knife_bar_k)", "(pickable Knife_bar_k)", "pickable is no predicate"),
        ("(pickupable Knife_bar_k)", "(pickupable Knife_bar_k Mug_bar_mug)", "pickupable takes 1 arguments"),
        ("(pickupable Knife_bar_k)", "(pickupable Knife_bar_q)", "do not declare 'knife_bar_q'"),
        ("(pickupable Knife_bar_k)", "(pickupable Fridge_bar_f)", "'fridge_bar_f' is no object"),
        ("(pickupable Knife_bar_k)", "pickupable", "'pickupable' between its facts"),
        ("(pickupable Knife_bar_k)", "(objectType Knife_bar_k MugType)", "two facts (objecttype knife_bar_k"),
        ("(pickupable Knife_bar_k)", "(holds agent1 Knife_bar_k)", "must say (holds ..) once"),
        ("MugType - otype", "MugType - kind", "'kind', which is no type"),
        ("(isHot ?o)", "(isHot ?o", "a part ['ishot', '?o', "),
        ("(:goal (and", "(:goal (and) (and", "goes on after its formula"),
    ],
)
def test_damage_is_told(change, into, said):
    text = kitchen()
    assert change in text
    with pytest.raises(EnvironmentFailure, match=re.escape(said)):
        read_problem(text.replace(change, into))


def test_a_cut_text_is_refused_wherever_it_is_cut():
    """Never read as if it were whole: the goal comes last."""
    text = kitchen().rstrip().removesuffix(")").rstrip()
    for end in range(0, len(text) - 1, 61):
        with pytest.raises(EnvironmentFailure):
            read_problem(text[:end])
