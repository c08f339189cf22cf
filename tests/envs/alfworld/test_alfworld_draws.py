"""Choices are the same for ever, lie in their bounds and are as likely as they should be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.alfworld.draws import Draws


def test_the_stream_of_a_text_never_changes():
    # Python promises this of random.Random.random; a changed list means that every generated game has changed.
    draws = Draws("a game")
    assert [draws.below(100) for _ in range(8)] == [48, 45, 8, 43, 89, 29, 48, 44]
    assert Draws("a game").shuffled(range(5)) != Draws("another game").shuffled(range(5))


@given(st.text(), st.lists(st.integers(), max_size=30))
def test_a_shuffle_keeps_everything(seed, items):
    assert Counter(Draws(seed).shuffled(items)) == Counter(items)


@given(st.text(), st.integers(1, 1000))
def test_below_is_below(seed, bound):
    assert 0 <= Draws(seed).below(bound) < bound


def test_all_orders_are_equally_likely():
    draws = Draws("orders")
    orders = Counter(tuple(draws.shuffled("abc")) for _ in range(6000))
    assert len(orders) == 6
    assert all(abs(count - 1000) < 5 * 29 for count in orders.values())  # sqrt(6000 * 1/6 * 5/6) = 29


@pytest.mark.parametrize("weights", [(1, 3), (0.25, 0.75)])
def test_weights_are_shares(weights):
    draws = Draws("weights")
    counts = Counter(draws.weighted("ab", weights) for _ in range(4000))
    assert abs(counts["b"] - 3000) < 5 * 28  # sqrt(4000 * 1/4 * 3/4) = 27.4


def test_what_weighs_nothing_is_never_drawn():
    draws = Draws("nothing")
    assert {draws.weighted("abc", (0, 1, 0)) for _ in range(200)} == {"b"}


def test_a_draw_that_rounds_up_to_the_sum_takes_the_last_that_weighs_something():
    draws = Draws("rounding")
    draws._random = lambda: 1.0
    assert draws.weighted("abc", (1, 2, 0)) == "b"
