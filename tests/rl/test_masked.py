"""Masked statistics: what is masked out does not exist, in values and in gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmtrl.rl import masked

X = jnp.array([[1.0, 2.0, jnp.nan], [jnp.inf, 4.0, -jnp.inf]])
whiten = jax.jit(masked.masked_whiten)
MASK = jnp.array([[True, True, False], [False, True, False]])


def test_sum_mean_and_variance_are_those_of_the_kept_entries():
    # Kept: 1, 2, 4. Sum 7; mean 7/3; population variance (16/9 + 1/9 + 25/9) / 3 = 14/9.
    assert masked.masked_sum(X, MASK) == pytest.approx(7.0)
    assert masked.masked_mean(X, MASK) == pytest.approx(7 / 3)
    assert masked.masked_variance(X, MASK) == pytest.approx(14 / 9)


@pytest.mark.parametrize("function", [masked.masked_sum, masked.masked_mean, masked.masked_variance])
def test_an_empty_mask_gives_zero_and_a_zero_gradient(function):
    nothing = jnp.zeros_like(MASK)
    assert function(X, nothing) == 0.0
    np.testing.assert_array_equal(jax.grad(lambda x: function(x, nothing))(X), np.zeros((2, 3)))


def test_variance_survives_a_large_mean():
    # The mean of squares minus the squared mean gives 0 or worse here: 1e8 + 1 is no f32 number.
    x = jnp.array([1e4 - 1, 1e4 + 1], jnp.float32)
    assert masked.masked_variance(x, jnp.ones(2, bool)) == pytest.approx(1.0)


def test_whitened_entries_have_mean_zero_and_variance_one():
    white = whiten(X, MASK)
    assert masked.masked_mean(white, MASK) == pytest.approx(0.0, abs=1e-6)
    assert masked.masked_variance(white, MASK) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_array_equal(np.asarray(white)[~np.asarray(MASK)], 0.0)


def test_whitening_does_not_see_padding():
    row = np.random.default_rng(0).normal(size=(1, 5)).astype(np.float32)
    alone = whiten(row, np.ones((1, 5), bool))
    padded = np.concatenate([np.full((1, 3), np.nan, np.float32), row], axis=1)
    mask = np.arange(8)[None] >= 3
    np.testing.assert_allclose(whiten(padded, mask)[:, 3:], alone, rtol=1e-6)


@pytest.mark.parametrize("value, count", [(0.9, 3), (0.3, 7), (0.3, 1), (0.0, 0)])
def test_equal_entries_whiten_to_exactly_zero(value, count):
    # The f32 mean of three .9 is not quite .9; over sqrt(1e-8) the difference would be 6e-4.
    mask = np.arange(9) < count
    np.testing.assert_array_equal(whiten(np.full(9, value, np.float32), mask), np.zeros(9))


def test_log_of_a_masked_zero_poisons_neither_loss_nor_gradient():
    # p = [.5, 0], mask = [1, 0], loss = -sum of kept logs = .693147, gradient [-1 / .5, 0].
    p, mask = jnp.array([0.5, 0.0]), jnp.array([True, False])
    loss, gradient = jax.value_and_grad(lambda p: -jnp.sum(masked.masked_log(p, mask)))(p)
    assert loss == pytest.approx(0.693147, abs=1e-6)
    np.testing.assert_array_equal(gradient, [-2.0, 0.0])
    # A mask on the output alone has the right loss and this gradient, so the check above has teeth.
    faulty = jax.grad(lambda p: -jnp.sum(jnp.where(mask, jnp.log(p), 0.0)))(p)
    assert jnp.isnan(faulty[1])


def test_low_precision_input_is_summed_in_f32():
    # bf16 cannot count past 256 in ones.
    total = masked.masked_sum(jnp.ones(1000, jnp.bfloat16), jnp.ones(1000, bool))
    assert total.dtype == jnp.float32
    assert total == 1000.0


def test_a_mask_of_another_shape_or_type_is_refused():
    with pytest.raises(AssertionError):
        masked.masked_sum(jnp.ones((2, 3)), jnp.ones(3, bool))  # would broadcast
    with pytest.raises(AssertionError):
        masked.masked_sum(jnp.ones(3), jnp.ones(3))


def test_bucket_statistics_are_those_of_each_buckets_kept_entries():
    # Kept: 1 and 4 in bucket 2, 2 in bucket 0; bucket 1 is empty. Ids of masked entries may be anything.
    buckets = jnp.array([[2, 0, -5], [99, 2, 1]])

    @jax.jit
    def statistics(x):
        mean, pull = jax.vjp(lambda x: masked.masked_bucket_mean(x, MASK, buckets, 3), x)
        count = masked.masked_bucket_count(MASK, buckets, 3)
        return masked.masked_bucket_sum(x, MASK, buckets, 3), count, mean, pull(jnp.ones(3))[0]

    total, count, mean, slope = statistics(X)
    np.testing.assert_array_equal(total, [2, 0, 5])
    np.testing.assert_array_equal(count, [1, 0, 2])
    np.testing.assert_array_equal(mean, [2, 0, 2.5])
    np.testing.assert_array_equal(slope, [[0.5, 1, 0], [0, 0.5, 0]])
