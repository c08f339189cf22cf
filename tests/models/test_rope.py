"""Rotary positions: worked frequencies of every kind of stretching."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmtrl.models.rope import Rope, rotate

PLAIN = Rope(
    width=8,
    theta=10_000.0,
    scaling="none",
    factor=1.0,
    original_length=8192,
    low_frequency=1.0,
    high_frequency=4.0,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=True,
    attention_factor=None,
)


def test_rotation_depends_on_distance_alone():
    x = jax.random.normal(jax.random.key(1), (1, 2, 1, 8))
    near = rotate(x, PLAIN.turns(jnp.array([[3, 5]])))
    far = rotate(x, PLAIN.turns(jnp.array([[103, 105]])))
    product = [float(jnp.vdot(r[0, 0, 0], r[0, 1, 0])) for r in (near, far)]
    assert product[0] == pytest.approx(product[1], abs=1e-4)
    np.testing.assert_array_equal(rotate(x, PLAIN.turns(jnp.zeros((1, 2), int))), x)


def test_amplitude_scales_the_turned_vector():
    x = jax.random.normal(jax.random.key(1), (1, 2, 1, 8))
    positions = jnp.array([[3, 5]])
    yarn = dataclasses.replace(PLAIN, scaling="yarn", attention_factor=2.0)
    plain = dataclasses.replace(yarn, attention_factor=1.0)
    doubled = rotate(x, yarn.turns(positions))
    np.testing.assert_allclose(doubled, 2 * rotate(x, plain.turns(positions)), rtol=1e-6)


def test_plain_frequencies_fall_by_equal_factors():
    # 10000^(-i/4) for i = 0..3.
    np.testing.assert_allclose(PLAIN.frequencies(), [1, 0.1, 0.01, 0.001], rtol=1e-6)


def test_linear_divides_every_frequency():
    linear = dataclasses.replace(PLAIN, scaling="linear", factor=4.0)
    np.testing.assert_allclose(linear.frequencies(), [0.25, 0.025, 0.0025, 0.00025], rtol=1e-6)


def test_linear_by_one_is_the_plain_frequency_to_the_last_places():
    linear = dataclasses.replace(PLAIN, scaling="linear", width=128)
    np.testing.assert_allclose(linear.frequencies(), dataclasses.replace(PLAIN, width=128).frequencies(), rtol=3e-7)


def test_llama3_stretches_slow_pairs_only():
    """Original length 64 pi: a pair turns 32 f times in it, so 32, 3.2, .32 and .032 times.

    32 > 4 turns: kept. 3.2 lies between 1 and 4: blend (3.2 - 1) / 3 = .7333 of the plain frequency and .2667 of an
    eighth, .1 * (.7333 + .2667 / 8) = .076667. The others turn less than once: an eighth.
    """
    llama3 = dataclasses.replace(PLAIN, scaling="llama3", factor=8.0, original_length=64 * math.pi)
    np.testing.assert_allclose(llama3.frequencies(), [1, 0.0766667, 0.00125, 0.000125], rtol=1e-5)


def test_yarn_blends_between_its_bounds():
    """Pair of n turns: 8 ln(1024 / 2 pi n) / (2 ln 10000) = .4343 ln(162.97 / n): 32 turns .707, 1 turn 2.212.

    Rounded outwards 0 and 3: ramps 0, 1/3, 2/3, 1 of the stretched (a quarter) frequency.
    """
    yarn = dataclasses.replace(PLAIN, scaling="yarn", factor=4.0, original_length=1024)
    expected = [1, 0.1 * (2 / 3 + 1 / 12), 0.01 * (1 / 3 + 2 / 12), 0.00025]
    np.testing.assert_allclose(yarn.frequencies(), expected, rtol=1e-5)
    # Not rounded: (1 - .707) / 1.505 = .1946 and (2 - .707) / 1.505 = .859 of it.
    exact = dataclasses.replace(yarn, truncate=False).frequencies()
    np.testing.assert_allclose(exact[1:3], [0.1 * (1 - 0.75 * 0.1946), 0.01 * (1 - 0.75 * 0.8592)], rtol=1e-3)


def test_yarn_amplitude():
    """0.1 ln 4 + 1 = 1.138629 unless it is given."""
    yarn = dataclasses.replace(PLAIN, scaling="yarn", factor=4.0)
    assert yarn.amplitude() == pytest.approx(1.138629, abs=1e-6)
    assert dataclasses.replace(yarn, attention_factor=1.5).amplitude() == 1.5
    assert PLAIN.amplitude() == 1.0
