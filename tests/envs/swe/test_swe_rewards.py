"""What verdicts are worth: gold is 1, nothing and junk are 0, and nothing else is 1."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
import shop

from jaxmtrl.envs.swe.grade import Grade, Status
from jaxmtrl.envs.swe.rewards import KINDS, junk_worth, most_of_losing, worth


def verdict(status: Status, failing: str = "", passing: str = "") -> Grade:
    """Outcomes as letters: x passes, anything else does not."""
    return Grade(
        status=status,
        fail_to_pass={f"f{n}": letter == "x" for n, letter in enumerate(failing)},
        pass_to_pass={f"p{n}": letter == "x" for n, letter in enumerate(passing)},
    )


@pytest.mark.parametrize(
    ("status", "failing", "passing", "binary", "f2p_gated", "normalized", "study_ratio"),
    [
        ("resolved", "xxx", "xx", 1, 1, 1, 1),
        ("unresolved", "...", "xx", 0, 0, 0, 2 / 5),  # a junk comment
        ("unresolved", "xx.", "xx", 0, 2 / 3, 2 / 3, 4 / 5),
        ("unresolved", "xx.", "x.", 0, 0, 1 / 3, 3 / 5),
        ("unresolved", "xxx", "x.", 0, 0, 2 / 3, 4 / 5),
        ("unresolved", "..", "....", 0, 0, -1, 0),  # everything broke: -4 / 2, cut
        ("no_change", "...", "xx", 0, 0, 0, 0),
        ("patch_too_large", "...", "..", 0, 0, 0, 0),
        ("tampered", "xxx", "xx", 0, 0, -1, 0),
        ("timeout", "...", "..", 0, 0, -1, 0),
    ],
)
def test_worked_values(status, failing, passing, binary, f2p_gated, normalized, study_ratio):
    wanted = {"binary": binary, "f2p_gated": f2p_gated, "normalized": normalized, "study_ratio": study_ratio}
    grade = verdict(status, failing, passing)
    assert {kind: worth(kind, grade) for kind in KINDS} == pytest.approx(wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_only_resolved_is_worth_1_and_no_loss_more_than_is_said(kind):
    instance = shop.INSTANCE  # 3 and 3 tests
    for status in get_args(Status):
        for letters in itertools.product("x.", repeat=6):
            solved = set(letters) == {"x"}
            if (status == "resolved") != solved and status in ("resolved", "unresolved"):
                continue
            earned = worth(kind, verdict(status, "".join(letters[:3]), "".join(letters[3:])))
            assert -1 <= earned <= 1 and (earned == 1) == (status == "resolved")
            assert earned == 1 or earned <= most_of_losing(kind, [instance])


def test_the_share_of_the_study_pays_for_nothing():
    """80 of 81 tests of moto-6226 pass without any repair."""
    assert junk_worth([shop.INSTANCE]) == {shop.INSTANCE.id: 0.5}
    assert most_of_losing("study_ratio", [shop.INSTANCE]) == pytest.approx(5 / 6)
    assert most_of_losing("f2p_gated", [shop.INSTANCE]) == pytest.approx(2 / 3)
