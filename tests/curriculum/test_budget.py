"""Steps of a training game: twice the expert's way at first, a quarter more or less by success, between caps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.curriculum.budget import adapted_factor, steps_for

RULE = {"change": 0.25, "tighten_above": 0.75, "loosen_below": 0.4, "least": 1.25, "most": 4.0}


@pytest.mark.parametrize(
    ("optimal", "factor", "own", "steps"),
    [
        (4, 2.0, 12, 8),
        (4, 2.0, 7, 7),  # the game's own limit
        (4, 1.25, 12, 5),
        (4, 1.3, 12, 6),  # 5.2
        (25, 2.2, 60, 55),  # 55.00000000000001 to a computer
        (4, 1.0, 12, 4),
        (4, 4.0, 12, 12),
        (9, 2.0, 8, 8),  # an expert who does not get there in time
        (1, 1.0, 1, 1),
    ],
)
def test_steps_worked_by_hand(optimal, factor, own, steps):
    assert steps_for(optimal, factor, own) == steps


@given(st.integers(1, 60), st.floats(1, 8), st.floats(1, 8), st.integers(1, 100))
def test_a_game_can_be_won_within_its_budget(optimal, one, other, own):
    low, high = sorted((one, other))
    assert min(optimal, own) <= steps_for(optimal, low, own) <= steps_for(optimal, high, own) <= own


def test_the_factor_follows_success_to_its_caps():
    def path(success: float) -> list[float]:
        factors = [2.0]
        for _ in range(5):
            factors.append(adapted_factor(factors[-1], success, **RULE))
        return factors

    assert path(0.9) == [2.0, 1.5, 1.25, 1.25, 1.25, 1.25]  # 1.125 is below the cap
    assert path(0.1) == [2.0, 2.5, 3.125, 3.90625, 4.0, 4.0]
    assert path(0.5) == path(0.75) == path(0.4) == [2.0] * 6


@given(st.floats(1.25, 4), st.floats(0, 1))
def test_a_change_is_a_quarter_at_most_and_within_the_caps(factor, success):
    after = adapted_factor(factor, success, **RULE)
    assert 1.25 <= after <= 4 and 0.75 * factor <= after <= 1.25 * factor
