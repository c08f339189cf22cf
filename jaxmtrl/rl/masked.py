"""Sums, means and logs over the entries that a mask keeps, all at once or by bucket.

A masked-out entry counts as 0 whatever it holds, NaN and infinity included; an empty mask gives 0. Everything is a
function of whole arrays, so under `jit` the statistics are those of the global array, however it is sharded.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array


def masked_sum(x: Array, mask: Array) -> Array:
    """Sum of `x` where `mask` is True.

    Args:
        x: any shape and float dtype; accumulated in f32.
        mask: bool, same shape.

    Returns:
        f32 scalar; 0 for an empty mask.
    """
    return jnp.sum(_kept(x, mask))


def masked_mean(x: Array, mask: Array) -> Array:
    """Mean of `x` over the entries where `mask` is True; f32 scalar, 0 for an empty mask."""
    return masked_sum(x, mask) / jnp.maximum(jnp.sum(mask), 1)


def masked_variance(x: Array, mask: Array) -> Array:
    """Population variance (ddof 0) of `x` over the entries where `mask` is True; f32 scalar, 0 for an empty mask."""
    # Two passes: the mean of squares minus the squared mean cancels catastrophically in f32.
    return masked_mean(jnp.square(_kept(x, mask) - masked_mean(x, mask)), mask)


def masked_bucket_sum(x: Array, mask: Array, bucket_ids: Array, num_buckets: int) -> Array:
    """Sums of `x` where `mask` is True, by bucket: an episode, a turn, a state.

    Args:
        x: any shape and float dtype; accumulated in f32.
        mask: bool, same shape.
        bucket_ids: i32, same shape, in 0..num_buckets-1 where kept, anything elsewhere.
        num_buckets: fixed when compiled.

    Returns:
        f32 [num_buckets]; 0 for a bucket that no kept entry names.
    """
    kept = _kept(x, mask)
    bucket = jnp.where(mask, bucket_ids, num_buckets)  # one more than there are, for what is in none
    return jax.ops.segment_sum(kept.ravel(), bucket.ravel(), num_segments=num_buckets + 1)[:num_buckets]


def masked_bucket_count(mask: Array, bucket_ids: Array, num_buckets: int) -> Array:
    """How many entries `mask` keeps of each bucket; f32 [num_buckets], exact up to 2^24. Arguments as above."""
    return masked_bucket_sum(jnp.ones(mask.shape), mask, bucket_ids, num_buckets)


def masked_bucket_mean(x: Array, mask: Array, bucket_ids: Array, num_buckets: int) -> Array:
    """Means of `x` where `mask` is True, by bucket; f32 [num_buckets], 0 for an empty one. Arguments as above."""
    count = masked_bucket_count(mask, bucket_ids, num_buckets)
    return masked_bucket_sum(x, mask, bucket_ids, num_buckets) / jnp.maximum(count, 1.0)


def masked_whiten(x: Array, mask: Array, *, eps: float = 1e-8) -> Array:
    """Shifts and scales the masked entries to mean 0 and variance 1: (x - mean) / sqrt(variance + eps).

    Args:
        x: any shape and float dtype.
        mask: bool, same shape; mean and variance are taken over all its True entries at once.
        eps: added to the variance.

    Returns:
        f32, same shape; 0 off the mask, and 0 everywhere if all kept entries are equal (then rounding of the mean,
        blown up by 1 / sqrt(eps), would be the whole signal).
    """
    kept = _kept(x, mask)
    scaled = (kept - masked_mean(x, mask)) / jnp.sqrt(masked_variance(x, mask) + eps)
    largest = jnp.max(kept, initial=-jnp.inf, where=mask)
    smallest = jnp.min(kept, initial=jnp.inf, where=mask)
    return jnp.where(mask & (largest > smallest), scaled, 0.0)


def masked_log(x: Array, mask: Array) -> Array:
    """Natural log of `x` where `mask` is True and 0 elsewhere, with a finite gradient.

    The mask guards the input as well as the output. Guarding the output alone gives the right value and a NaN
    gradient: the derivative of log at a masked 0 is infinite, and 0 * inf is NaN.

    Args:
        x: any shape; positive where kept, anything elsewhere.
        mask: bool, same shape.

    Returns:
        f32, same shape.
    """
    _check(x, mask)
    safe = jnp.where(mask, jnp.asarray(x, jnp.float32), 1.0)
    return jnp.where(mask, jnp.log(safe), 0.0)


def _kept(x: Array, mask: Array) -> Array:
    """`x` in f32 with 0 where `mask` is False."""
    _check(x, mask)
    return jnp.where(mask, jnp.asarray(x, jnp.float32), 0.0)


def _check(x: Array, mask: Array) -> None:
    chex.assert_equal_shape([x, mask])
    chex.assert_type(mask, bool)
