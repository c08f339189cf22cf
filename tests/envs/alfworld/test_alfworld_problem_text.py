"""A problem's text has the sections, predicates and names of the published games."""

from __future__ import annotations

import re

from jaxmtrl.envs.alfworld.problem import CONTAINER, COOL, PICKUPABLE, read_problem
from jaxmtrl.envs.alfworld.problem_text import pddl_name, write_problem
from jaxmtrl.envs.alfworld.room import Room, Thing
from jaxmtrl.envs.alfworld.tables import Location, Receptacle, tables

GOAL = "(:goal (exists (?o - object) (objectType ?o MugType)))"
AT_FRIDGE, AT_SHELF, START = Location(1, -2, 3, 60), Location(0, 0, 0, 30), Location(4, 4, 1, 30)
FRIDGE = Receptacle("Fridge", (97, 0, 125), AT_FRIDGE)
SHELF = Receptacle("Shelf", (-169, 16, 272), AT_SHELF)
MUG = Thing("Mug", (100, 50, 120), FRIDGE, AT_FRIDGE, cool=True)
BOWL = Thing("Bowl", (-170, 20, 270), SHELF, AT_SHELF)
PEN = Thing("Pen", (-171, 20, 270), SHELF, AT_SHELF)
CHAIR = Thing("Chair", (0, 0, 0), None, Location(9, 9, 0, 30))
ROOM = Room(1, (FRIDGE, SHELF), (BOWL, CHAIR, MUG, PEN), ((PEN, BOWL),), START)
# (facts of the room worked out by hand); a pen does not go into a fridge
FACTS = """
receptacleType Fridge_bar__plus_00_dot_97_bar__plus_00_dot_00_bar__plus_01_dot_25 FridgeType
canContain FridgeType MugType
canContain FridgeType BowlType
canContain ShelfType PenType
openable Fridge_bar__plus_00_dot_97_bar__plus_00_dot_00_bar__plus_01_dot_25
atLocation agent1 loc_bar_4_bar_4_bar_1_bar_30
inReceptacle Mug_bar__plus_01_dot_00_bar__plus_00_dot_50_bar__plus_01_dot_20 \
Fridge_bar__plus_00_dot_97_bar__plus_00_dot_00_bar__plus_01_dot_25
isCool Mug_bar__plus_01_dot_00_bar__plus_00_dot_50_bar__plus_01_dot_20
heatable Mug_bar__plus_01_dot_00_bar__plus_00_dot_50_bar__plus_01_dot_20
receptacleAtLocation Shelf_bar__minus_01_dot_69_bar__plus_00_dot_16_bar__plus_02_dot_72 loc_bar_0_bar_0_bar_0_bar_30
objectAtLocation Chair_bar__plus_00_dot_00_bar__plus_00_dot_00_bar__plus_00_dot_00 loc_bar_9_bar_9_bar_0_bar_30
inReceptacleObject Pen_bar__minus_01_dot_71_bar__plus_00_dot_20_bar__plus_02_dot_70 \
Bowl_bar__minus_01_dot_70_bar__plus_00_dot_20_bar__plus_02_dot_70
"""


def test_a_name_without_signs():
    assert pddl_name("Mug|+00.68|-00.91") == "Mug_bar__plus_00_dot_68_bar__minus_00_dot_91"
    assert pddl_name("loc|3|-2|1|60") == "loc_bar_3_bar__minus_2_bar_1_bar_60"


def test_facts_worked_out_by_hand():
    text = write_problem("plan_a", ROOM, GOAL)
    facts = set(re.findall(r"\(([^()]+)\)", text[text.index("(:init") : text.index("(:goal")]))
    assert set(FACTS.strip().splitlines()) <= facts
    assert not [fact for fact in facts if fact.startswith(("canContain FridgeType Pen", "inReceptacle Chair"))]
    assert not [fact for fact in facts if fact.startswith(("pickupable Chair", "openable Shelf", "heatable Bowl"))]
    assert text.startswith("\n(define (problem plan_a)\n(:domain alfred)\n(:objects\nagent1 - agent\n")
    assert text.count("(") == text.count(")")


def test_every_class_is_declared_once():
    text = write_problem("plan_a", ROOM, GOAL)
    declared = re.findall(r"^ *(\S+) - (?:object|otype|rtype|receptacle|location|agent)$", text, re.M)
    assert len(declared) == len(set(declared))
    assert {f"{kind}Type" for kind in (*tables().object_classes, *tables().receptacle_classes)} <= set(declared)


def test_what_is_written_is_what_is_read():
    problem = read_problem(write_problem("plan_a", ROOM, GOAL))
    assert problem.object_classes == ("bowl", "chair", "mug", "pen")
    assert problem.receptacle_classes == ("fridge", "shelf") and problem.openable == (True, False)
    assert problem.contents == ((2,), (0, 3)) and problem.nested == ((3, 0),)
    assert [bool(traits & PICKUPABLE) for traits in problem.traits] == [True, False, True, True]
    assert [bool(traits & CONTAINER) for traits in problem.traits] == [True, False, True, False]
    assert problem.states == (0, 0, COOL, 0)
    assert problem.locations[problem.start] == "loc_bar_4_bar_4_bar_1_bar_30"
    assert problem.fits == {
        ("fridge", "mug"),
        ("fridge", "bowl"),
        ("shelf", "mug"),
        ("shelf", "bowl"),
        ("shelf", "pen"),
    }
