"""Importance weights: worked numbers at each level, slow loops, and that nothing learns through them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ragged import EPISODES, check, check_layout_is_nothing, ragged

from jaxmtrl.rl import off_policy

importance_weights = jax.jit(
    off_policy.importance_weights, static_argnames=["num_episodes", "level", "beyond", "cap", "floor"]
)
LEVELS = ["token", "sequence", "sequence_mean"]

# Two episodes in a row; ratios 3 and .25, and 2, 1, .125; masked tokens hold NaN.
RATIOS = np.array([[3, np.nan, 0.25, 2, 1, np.nan, 0.125, np.nan]])
MASK = np.isfinite(RATIOS)
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 1, -1]], np.int32)


def weigh(level, beyond, ratios=RATIOS, **settings):
    behaviour = np.where(MASK, -2.0, np.nan)
    return importance_weights(
        behaviour + np.log(ratios), behaviour, MASK, SEGMENTS, 2, level=level, beyond=beyond, **{"cap": 2.0, **settings}
    )


@pytest.mark.parametrize(
    "level, expected",
    [
        ("token", [2, 0, 0.25, 2, 1, 0, 0.125, 0]),
        ("sequence", [0.75, 0, 0.75, 0.25, 0.25, 0, 0.25, 0]),  # 3 * .25; 2 * 1 * .125
        ("sequence_mean", [0.866025, 0, 0.866025, 0.629961, 0.629961, 0, 0.629961, 0]),  # .75^(1/2); .25^(1/3)
    ],
)
def test_truncated_weights_golden(level, expected):
    weights, kept = weigh(level, "truncate", floor=0.5)  # the floor is for masking
    np.testing.assert_allclose(weights, [expected], atol=1e-6)
    np.testing.assert_array_equal(kept, MASK)


@pytest.mark.parametrize(
    "level, expected",
    [
        ("token", [0, 0, 0.25, 2, 1, 0, 0, 0]),  # 3 is above 2, .125 below .2; 2 itself is kept
        ("sequence", [0.75, 0, 0.75, 0.25, 0.25, 0, 0.25, 0]),
        ("sequence_mean", [0.866025, 0, 0.866025, 0.629961, 0.629961, 0, 0.629961, 0]),
    ],
)
def test_masked_weights_golden(level, expected):
    weights, kept = weigh(level, "mask", cap=2.00001, floor=0.2)
    np.testing.assert_allclose(weights, [expected], atol=1e-6)
    np.testing.assert_array_equal(kept, np.array([expected]) > 0)


def test_episodes_are_left_out_whole():
    # Products .75 and .25: a floor of .5 leaves out the second episode, whose tokens at 2 and 1 are none of them low.
    weights, kept = weigh("sequence", "mask", floor=0.5)
    np.testing.assert_allclose(weights, [[0.75, 0, 0.75, 0, 0, 0, 0, 0]], atol=1e-6)
    np.testing.assert_array_equal(kept, MASK & (SEGMENTS == 0))


def test_log_ratios_are_clamped_before_and_after_the_sum():
    # Episode 0: log-ratios 80 and -20, clamped 20 and -20: product 1, not exp(60). Episode 1: three of 15, 45 in all:
    # exp(20), still finite.
    ratios = np.array([[np.exp(80), np.nan, np.exp(-20), *[np.exp(15)] * 2, np.nan, np.exp(15), np.nan]])
    weights, _ = weigh("sequence", "truncate", ratios=ratios, cap=np.inf)
    np.testing.assert_allclose(weights, [[1, 0, 1, np.exp(20), np.exp(20), 0, np.exp(20), 0]], rtol=1e-5)


@pytest.mark.parametrize("beyond", ["truncate", "mask"])
@pytest.mark.parametrize("level", LEVELS)
def test_weights_equal_a_slow_loop_and_do_not_depend_on_layout(level, beyond):
    settings = {"cap": 1.2, "floor": 0.8, "level": level, "beyond": beyond}

    def weights_of(batch):
        behaviour = np.where(batch.action_mask, -3.0, np.nan).astype(np.float32)
        now = behaviour + 0.9 * batch.values
        return importance_weights(now, behaviour, batch.action_mask, batch.segment_ids, EPISODES, **settings)

    def slow(play, kept=False):
        ratios = np.exp(0.9 * np.array(play.values))
        if level == "sequence":
            ratios[:] = np.prod(ratios)
        elif level == "sequence_mean" and len(ratios):
            ratios[:] = np.prod(ratios) ** (1 / len(ratios))
        inside = (ratios <= 1.2) & (ratios >= 0.8) | (beyond == "truncate")
        return list(inside if kept else np.where(inside, np.minimum(ratios, 1.2), 0.0))

    batch = ragged(2)
    weights, kept = weights_of(batch)
    check(batch, weights, slow)
    check(batch, kept, functools.partial(slow, kept=True))
    assert kept[batch.action_mask].all() == (beyond == "truncate")
    check_layout_is_nothing(lambda batch: weights_of(batch)[0])


@pytest.mark.parametrize("level", LEVELS)
def test_no_gradient_flows_through_weights(level):
    behaviour = jnp.where(MASK, -2.0, jnp.nan)

    def total(logprobs, behaviour):
        settings = {"cap": 5.0, "level": level, "beyond": "truncate"}
        return off_policy.importance_weights(logprobs, behaviour, MASK, SEGMENTS, 2, **settings)[0].sum()

    for slope in jax.jit(jax.grad(total, argnums=(0, 1)))(behaviour + 0.1, behaviour):
        np.testing.assert_array_equal(slope, 0.0)


def test_unknown_levels_are_refused():
    with pytest.raises(ValueError, match="level must be token, sequence or sequence_mean, got 'turn'"):
        weigh("turn", "mask")
    with pytest.raises(ValueError, match="beyond must be truncate or mask, got 'drop'"):
        weigh("token", "drop")
