"""Figures over seeds and directions of claims: numbers worked out by hand, and coverage by simulation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from jaxmtrl.evaluation import wilson_interval
from jaxmtrl.studies.grid import Cell, Claim, Run, Smoke, Study, runs_of
from jaxmtrl.studies.table import difference, figures_of, interval, newcombe, verdicts_of


def study(**fields) -> Study:
    cells = fields.pop("cells", {"a": Cell(), "b": Cell()})
    return Study(name="s", about="x", base="b", minutes_per_run=1, smoke=Smoke(cells=["a"]), cells=cells, **fields)


def outcome(success: float | None, n: int = 100, failed: int = 0) -> dict:
    return {"success": success, "n": n, "failed": failed, "turns": 5.0, "invalid_action_rate": 0.25}


def results_of(made: Study, shares: dict[str, list[float | None]], **more) -> dict[Run, dict]:
    """Results in which the policy after RL has the given success, cell by cell and seed by seed."""
    results = {}
    for run in runs_of(made, Path("b"), Path("r")):
        share = dict(enumerate(shares.get(run.cell, []))).get(run.seed, "absent")
        if share != "absent":
            splits = {"heldout": {"untrained": outcome(0.0), "rl": outcome(share, **more)}}
            results[run] = {"splits": splits, "seed": run.seed, "model_params": 7, "wall_s": 60.0}
    return results


def test_one_seed_has_no_spread():
    assert interval([0.6], 100) == wilson_interval(60, 100)


def test_an_interval_reaches_as_far_as_the_wider_of_seeds_and_games():
    # mean .65, deviation .05, t(2, .975) = 4.3027: half a width of 4.3027 * .05 / sqrt(3) = .12421. Wilson's of 65 of
    # 100 is [.553, .736], within that.
    assert interval([0.6, 0.7, 0.65], 100) == pytest.approx((0.52579, 0.77421), abs=1e-5)
    # Seeds that agree say nothing of other games.
    assert interval([0.5, 0.5, 0.5], 100) == wilson_interval(50, 100)
    # More seeds are no more games: as wide for nine that agree as for three.
    assert interval([0.5] * 9, 100) == interval([0.5] * 3, 100)


def test_an_interval_stays_within_0_and_1_and_around_its_mean():
    for shares in ([0.0, 0.0, 0.02], [1.0, 0.99, 1.0], [0.0, 0.5, 1.0]):
        low, high = interval(shares, 100)
        assert 0 <= low <= np.mean(shares) <= high <= 1


def test_a_difference_by_newcombe():
    # .2 - sqrt(.1^2 + .1^2) = .05858, .2 + sqrt(.08^2 + .1^2) = .32806
    assert newcombe(0.7, (0.6, 0.78), 0.5, (0.4, 0.6)) == pytest.approx((0.05858, 0.32806), abs=1e-5)
    # The example of the article: 56 of 70 and 48 of 80 have [.0524, .3339].
    bounds = newcombe(56 / 70, wilson_interval(56, 70), 48 / 80, wilson_interval(48, 80))
    assert bounds == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_a_difference_is_taken_seed_by_seed():
    # Seeds far apart, their differences .2, .2 and .23: half a width is 4.3027 * .01732 / sqrt(3) = .043 by seeds, and
    # that of the games, which have .6 and .39 of 100 by Newcombe, is wider.
    far = difference({0: 0.9, 1: 0.6, 2: 0.3}, 100, {0: 0.7, 1: 0.4, 2: 0.07}, 100)
    assert far is not None and far[0] == pytest.approx(0.21)
    assert far[1] == newcombe(0.6, wilson_interval(60, 100), 0.39, wilson_interval(39, 100))
    # Differences .4, 0 and .23 (deviation .20075): half a width of 4.3027 * .20075 / sqrt(3) = .4987.
    near = difference({0: 0.9, 1: 0.6, 2: 0.3}, 100, {0: 0.5, 1: 0.6, 2: 0.07}, 100)
    assert near is not None and near[1] == pytest.approx((0.21 - 0.4987, 0.21 + 0.4987), abs=1e-4)


def test_a_difference_needs_common_seeds_and_stays_within_its_bounds():
    assert difference({0: 0.5}, 100, {1: 0.5}, 100) is None
    assert difference({0: 0.5, 1: 0.1}, 100, {1: 0.4}, 100) == difference({1: 0.1}, 100, {1: 0.4}, 100)
    wide = difference({0: 1.0, 1: 0.0}, 100, {0: 0.0, 1: 1.0}, 100)
    assert wide == (0.0, (-1.0, 1.0))


def test_a_difference_the_other_way_round_is_mirrored():
    a, b = {0: 0.9, 1: 0.6, 2: 0.3}, {0: 0.5, 1: 0.6, 2: 0.07}
    one, other = difference(a, 100, b, 100), difference(b, 100, a, 100)
    assert one is not None and other is not None
    assert (other[0], *other[1]) == pytest.approx((-one[0], -one[1][1], -one[1][0]))


def test_the_interval_covers_where_the_pooled_one_does_not():
    """Seeds differ, games differ, and every seed plays the same games, as in a study."""
    rng = np.random.default_rng(0)
    seeds, games, tries = 3, 100, 1500
    policies, tasks = rng.normal(0, 0.5, (400, 1)), rng.normal(0, 2, (1, 4000))
    truth = float((1 / (1 + np.exp(-(policies + tasks)))).mean())
    ours = pooled = differences = 0
    for _ in range(tries):
        logits = rng.normal(0, 0.5, (2, seeds, 1)) + rng.normal(0, 2, (1, 1, games))  # of two cells that are alike
        won = rng.random((2, seeds, games)) < 1 / (1 + np.exp(-logits))
        one, other = won.mean(axis=2)
        low, high = interval(list(one), games)
        ours += low <= truth <= high
        low, high = wilson_interval(int(won[0].sum()), seeds * games)
        pooled += low <= truth <= high
        found = difference(dict(enumerate(one)), games, dict(enumerate(other)), games)
        differences += found is not None and found[1][0] <= 0 <= found[1][1]
    assert ours / tries >= 0.95 and differences / tries >= 0.95
    assert pooled / tries < 0.80


def test_figures_are_over_the_seeds_that_ended():
    made = study()
    figures = figures_of(made, results_of(made, {"a": [0.6, 0.7], "b": [0.1, 0.2, 0.3]}))
    rl = {figure.cell: figure for figure in figures if figure.policy == "rl"}
    assert rl["a"].by_seed == {0: 0.6, 1: 0.7} and rl["a"].mean == pytest.approx(0.65)
    assert rl["b"].by_seed == {0: 0.1, 1: 0.2, 2: 0.3}
    assert rl["b"].pooled_ci95 == wilson_interval(60, 300)
    assert [figure.reference for figure in figures][:2] == ["a/heldout/untrained", "a/heldout/rl"]


def test_a_seed_whose_games_all_failed_is_left_out_and_counted():
    made = study()
    figures = figures_of(made, results_of(made, {"a": [0.5, None]}, failed=3))
    figure = next(figure for figure in figures if figure.policy == "rl")
    assert figure.by_seed == {0: 0.5} and figure.failed == 6


def test_a_cell_that_is_not_shown_has_no_figures():
    made = study(cells={"a": Cell(shown=False), "b": Cell()})
    assert {f.cell for f in figures_of(made, results_of(made, {"a": [0.5], "b": [0.5]}))} == {"b"}


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ([0.80, 0.82, 0.81], [0.40, 0.42, 0.41], "agrees"),
        ([0.40, 0.42, 0.41], [0.80, 0.82, 0.81], "disagrees"),
        ([0.50, 0.52, 0.51], [0.47, 0.46, 0.48], "cannot tell"),
        ([0.90, 0.40, 0.60], [0.30, 0.35, 0.32], "cannot tell"),  # seeds too far apart, though the means are not near
        ([0.80, 0.82, 0.81], [], "no figure"),
    ],
)
def test_whether_a_direction_agrees(a, b, word):
    made = study(claims=[Claim(says="x", higher="a/heldout/rl", lower="b/heldout/rl")])
    verdict = verdicts_of(made, figures_of(made, results_of(made, {"a": a, "b": b})))[0]
    assert verdict.word == word


def test_whether_the_source_can_tell_its_own_numbers_apart():
    claim = Claim(says="x", higher="a/heldout/rl", lower="b/heldout/rl")
    far = {"a/heldout/rl": "T1/w2-o3-q4/PPO", "b/heldout/rl": "T1/w8-o3-q4/PPO"}  # .88 and .68
    near = {"a/heldout/rl": "T9/60/SFT+PPO w4-o6-q8", "b/heldout/rl": "T9/100/SFT w4-o6-q8"}  # .59 and .55
    words = [verdicts_of(study(claims=[claim], published=beside), [])[0] for beside in (far, near)]
    assert [verdict.published_word for verdict in words] == ["told apart", "not told apart"]
    assert words[1].published == (0.59, 0.55) and words[1].word == "no figure"


def test_another_persons_claim_is_not_held_against_the_paper():
    claim = Claim(says="x", higher="b/heldout/rl", lower="a/heldout/rl", by="notes")
    beside = {"a/heldout/rl": "T1/w2-o3-q4/PPO", "b/heldout/rl": "T1/w8-o3-q4/PPO"}
    verdict = verdicts_of(study(claims=[claim], published=beside), [])[0]
    assert verdict.published is None and verdict.published_word == "no number"
    assert not math.isnan(verdict.difference or 0.0)
