"""From logits to a token and its log-probability under the distribution it was drawn from."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmtrl.models.decoder import NO_TOKEN

Array = jax.Array


def tempered_log_softmax(logits: Array, temperature: Array) -> Array:
    """log softmax(logits / temperature) over the last axis in f32; temperature 0 (greedy) is scored at 1.

    Args:
        logits: f32 [..., V].
        temperature: f32 [...], ≥ 0.
    """
    divisor = jnp.where(temperature > 0.0, temperature, 1.0)[..., None]
    return jax.nn.log_softmax(logits.astype(jnp.float32) / divisor, axis=-1)


def sample_allowed(key: Array, logits: Array, temperature: Array, allowed: Array) -> tuple[Array, Array]:
    """As `sample`, of the tokens that are allowed alone, whose probabilities add up to 1.

    By Gumbel numbers: a cumulative sum, added up in parallel, can rise by rounding at a token of probability 0.

    Args:
        allowed: bool [V], one at least.
    """
    logits = jnp.where(allowed, logits, NO_TOKEN)
    logprobs = tempered_log_softmax(logits, temperature)
    token = jnp.where(temperature > 0.0, jax.random.categorical(key, logprobs), jnp.argmax(logits)).astype(jnp.int32)
    return token, logprobs[token]


def sample(key: Array, logits: Array, temperature: Array) -> tuple[Array, Array]:
    """Draws one token from one distribution by inverting its cumulative sum; greedy at temperature 0.

    One uniform number a token is ~8 % cheaper on CPU at V = 49k than V Gumbel numbers.

    Args:
        key: one PRNG key.
        logits: f32 [V].
        temperature: f32 [], ≥ 0.

    Returns:
        token i32 [] and its log-probability f32 [].
    """
    logprobs = tempered_log_softmax(logits, temperature)
    cumulative = jnp.cumsum(jnp.exp(logprobs))
    total = cumulative[-1]
    # The threshold stays below the total, so rounding can never choose a token beyond the last possible one.
    threshold = jnp.minimum(jax.random.uniform(key) * total, jnp.nextafter(total, 0.0))
    drawn = jnp.sum(cumulative <= threshold).astype(jnp.int32)
    token = jnp.where(temperature > 0.0, drawn, jnp.argmax(logits).astype(jnp.int32))
    return token, logprobs[token]
