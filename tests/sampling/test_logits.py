"""Sampling maths: temperature, frequencies, impossible tokens, greedy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmtrl.sampling.logits import sample, tempered_log_softmax

drawn = jax.jit(jax.vmap(sample, in_axes=(0, None, None)))


def test_logprob_is_taken_at_the_sampling_temperature():
    """Case D2: logits [1, 0] at T = 0.5 are [2, 0]: log p(0) = -log(1 + e^-2) = -0.126928; forgetting T: -0.313262."""
    logprobs = tempered_log_softmax(jnp.array([1.0, 0.0]), jnp.float32(0.5))
    assert float(logprobs[0]) == pytest.approx(-0.126928, abs=1e-6)
    assert float(tempered_log_softmax(jnp.array([1.0, 0.0]), jnp.float32(1.0))[0]) == pytest.approx(-0.313262, abs=1e-6)


def test_frequencies_are_the_probabilities():
    probabilities = np.array([0.1, 0.0, 0.6, 0.3])
    keys = jax.random.split(jax.random.key(0), 20_000)
    tokens, logprobs = drawn(keys, jnp.log(probabilities), jnp.float32(1.0))
    shares = np.bincount(np.asarray(tokens), minlength=4) / len(keys)
    np.testing.assert_allclose(shares, probabilities, atol=0.015)  # three standard deviations are 0.0104
    assert shares[1] == 0.0, "a token of probability 0 was drawn"
    np.testing.assert_allclose(logprobs, np.log(probabilities)[np.asarray(tokens)], atol=1e-6)


def test_the_last_token_can_be_impossible():
    """The threshold never reaches the total, so rounding cannot step past the last possible token."""
    logits = jnp.array([0.0, 0.0, -jnp.inf, -jnp.inf])
    tokens, _ = drawn(jax.random.split(jax.random.key(1), 5_000), logits, jnp.float32(1.0))
    assert int(tokens.max()) == 1


def test_temperature_zero_is_greedy_and_scored_at_one():
    tokens, logprobs = drawn(jax.random.split(jax.random.key(2), 8), jnp.array([0.0, 2.0, 1.0]), jnp.float32(0.0))
    assert set(np.asarray(tokens).tolist()) == {1}
    assert float(logprobs[0]) == pytest.approx(2.0 - np.log(1 + np.e**2 + np.e), abs=1e-6)
