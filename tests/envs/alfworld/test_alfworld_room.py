"""A furnished room is legal, large enough for its task and no larger than asked."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.alfworld.draws import Draws
from jaxmtrl.envs.alfworld.room import STANDS, Need, Room, can_lie, furnish
from jaxmtrl.envs.alfworld.tables import tables

KITCHEN, BEDROOM = 7, 301
HEAT = Need("Mug", 1, ("CoffeeMachine", "Microwave"), (("CoffeeMachine",), ("Microwave",)))
LIGHT = Need("Pillow", 1, (), (STANDS["DeskLamp"],))


def room_of(number: int, need: Need, seed: object = 0, receptacles=64, distractors=64, colocated=False) -> Room:
    draws = Draws(str(seed))
    scene = tables().scenes[number]
    return furnish(scene, need, draws, receptacles=receptacles, distractors=distractors, colocated=colocated)


@given(seed=st.integers(0, 10**6), receptacles=st.integers(4, 40), distractors=st.integers(0, 40))
def test_no_more_than_asked_and_all_that_is_needed(seed, receptacles, distractors):
    room = room_of(KITCHEN, HEAT, seed, receptacles, distractors)
    kinds = {receptacle.kind for receptacle in room.receptacles}
    assert {"Microwave", "CoffeeMachine"} <= kinds and len(room.receptacles) == min(
        receptacles, len(tables().scenes[KITCHEN].receptacles)
    )
    targets = [thing for thing in room.things if thing.kind == "Mug"]
    assert 1 <= len(targets) <= 4 and not {thing.holder.kind for thing in targets} & {"CoffeeMachine", "Microwave"}
    loose = [thing for thing in room.things if thing.holder is not None and thing.kind not in ("Mug", *STANDS)]
    assert len(loose) <= distractors
    assert len({thing.id for thing in room.things}) == len(room.things)
    for thing in room.things:
        if thing.holder is not None:
            assert can_lie(thing.kind, thing.holder.kind) and thing.holder in room.receptacles
            assert thing.location == thing.holder.stand


def test_a_location_for_each_unless_they_may_share():
    # 301 has two pairs of drawers, and shelves too, that are reached from one spot
    apart = Counter(receptacle.stand for receptacle in room_of(BEDROOM, LIGHT).receptacles)
    assert set(apart.values()) == {1}
    shared = Counter(receptacle.stand for receptacle in room_of(BEDROOM, LIGHT, colocated=True).receptacles)
    assert max(shared.values()) > 1


def test_nothing_is_where_the_agent_begins():
    for seed in range(50):
        room = room_of(BEDROOM, LIGHT, seed)
        assert room.start not in {receptacle.stand for receptacle in room.receptacles}
        assert room.start not in {thing.location for thing in room.things}


def test_one_of_every_class_comes_before_a_second_one():
    scene = Counter(receptacle.kind for receptacle in tables().scenes[KITCHEN].receptacles)
    few = Counter(receptacle.kind for receptacle in room_of(KITCHEN, HEAT, receptacles=len(scene)).receptacles)
    assert few == dict.fromkeys(scene, 1)


def test_a_lamp_stands_where_it_can_be_used_in_the_smallest_room():
    for seed in range(50):
        room = room_of(BEDROOM, LIGHT, seed, receptacles=4, distractors=0)
        (lamp,) = [thing for thing in room.things if thing.kind == "DeskLamp"]
        assert lamp.holder is not None and lamp.holder.kind in STANDS["DeskLamp"]


def test_a_target_is_cool_exactly_if_it_comes_out_of_the_fridge():
    things = [thing for seed in range(60) for thing in room_of(KITCHEN, HEAT, seed).things]
    cool = {thing for thing in things if thing.cool}
    assert cool and cool == {t for t in things if t.kind == "Mug" and t.holder and t.holder.kind == "Fridge"}


def test_what_lies_within_another_thing_lies_beside_it_too():
    nested = [pair for seed in range(100) for pair in room_of(KITCHEN, HEAT, seed).nested]
    assert 5 < len(nested) < 35  # 17 of 100; four standard deviations are 15
    for inner, outer in nested:
        assert inner.holder is outer.holder and inner.kind in tables().can_contain[outer.kind]


def test_rooms_are_as_full_as_the_published_ones():
    """Things that can be taken and lie in something, and how many of all lie behind doors, on average."""
    for scenes, need, usual, hidden in ((range(1, 21), HEAT, 44, 0.29), (range(301, 321), LIGHT, 23, 0.12)):
        rooms = [room_of(number, need, seed) for number in scenes for seed in range(3) if fits(number, need)]
        inside = [thing for room in rooms for thing in room.things if thing.holder is not None]
        taken = [thing for thing in inside if thing.kind in tables().pickupable]
        closed = [thing for thing in inside if thing.holder.kind in tables().openable]
        assert len(rooms) > 20 and 0.75 * usual < len(taken) / len(rooms) < 1.25 * usual
        assert 0.4 * hidden < len(closed) / len(inside) < 2 * hidden


def test_there_are_as_many_of_a_kind_as_in_the_published_ones():
    """Of what a task is about 1 to 4, in shares of .40, .28, .17 and .14; of others .42, .33 and .25."""
    about, others = Counter(), Counter()
    for number in (number for number in range(1, 21) if fits(number, HEAT)):
        for seed in range(20):
            found = Counter(thing.kind for thing in room_of(number, HEAT, seed).things)
            about[found.pop("Mug")] += 1
            others.update(number for kind, number in found.items() if kind in tables().pickupable)
    for found, shares in ((about, (0.40, 0.28, 0.17, 0.14)), (others, (0.42, 0.33, 0.25))):
        for number, share in enumerate(shares, start=1):
            assert abs(found[number] / found.total() - share) < 0.08


def fits(number: int, need: Need) -> bool:
    there = {receptacle.kind for receptacle in tables().scenes[number].receptacles}
    return need.target in tables().scenes[number].objects and all(there & set(kinds) for kinds in need.present)
