"""Attention over a cache: one row after the other gives what all at once give, for any rows of the cache."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmtrl.models.attention import CacheAttention, attend, attend_cache, attend_fused

KEYS, VALUES = (jax.random.normal(jax.random.key(n), (5, 2, 64, 8)) for n in (0, 1))
POSITIONS = jnp.arange(20) + jnp.array([[0], [30], [7]])
QUERY = jax.random.normal(jax.random.key(2), (3, 20, 4, 8))


def by_hand(row: int, cache_row: int, token: int, head: int) -> np.ndarray:
    """One token's mix: the columns up to its position, heads 0 and 1 over kv head 0, 2 and 3 over 1."""
    stop = int(POSITIONS[row, token]) + 1
    keys, values = (np.asarray(part[cache_row, head // 2, :stop], np.float64) for part in (KEYS, VALUES))
    scores = keys @ np.asarray(QUERY[row, token, head], np.float64) * 8**-0.5
    shares = np.exp(scores - scores.max())
    return shares @ values / shares.sum()


@pytest.mark.parametrize("prefill", ["together", "one_by_one"])
def test_rows_of_the_cache_are_read_where_they_lie(prefill):
    rows = jnp.array([4, 0, 2])
    mixed = attend_cache(QUERY, KEYS, VALUES, POSITIONS, rows, CacheAttention(prefill=prefill))
    for row, token, head in ((0, 0, 0), (0, 19, 3), (1, 5, 1), (2, 11, 2)):
        np.testing.assert_allclose(mixed[row, token, head], by_hand(row, int(rows[row]), token, head), atol=1e-5)


@pytest.mark.parametrize("prefill", ["together", "one_by_one"])
def test_an_empty_row_reads_the_last_one_and_disturbs_nobody(prefill):
    """Row numbers ≥ S mark rows of padding."""
    whole = attend_cache(QUERY, KEYS, VALUES, POSITIONS, jnp.array([4, 0, 2]), CacheAttention(prefill=prefill))
    some = attend_cache(QUERY, KEYS, VALUES, POSITIONS, jnp.array([4, 9, 2]), CacheAttention(prefill=prefill))
    np.testing.assert_allclose(some[jnp.array([0, 2])], whole[jnp.array([0, 2])], atol=1e-6)
    assert np.isfinite(some).all()


@pytest.mark.parametrize("tokens", [1, 20])
def test_without_rows_row_b_is_cache_row_b(tokens):
    query, positions = QUERY[:, :tokens], POSITIONS[:, :tokens]
    plain = attend_cache(query, KEYS[:3], VALUES[:3], positions)
    for prefill in ("together", "one_by_one"):
        again = attend_cache(query, KEYS, VALUES, positions, jnp.arange(3), CacheAttention(prefill=prefill))
        np.testing.assert_allclose(again, plain, atol=1e-6)


SEEN = jnp.arange(64) <= POSITIONS[:3, :, None]


def test_the_fused_kernel_takes_the_same_arguments():
    """The GPU's own needs a GPU; what is handed to it, and in which order, is the same for jax.nn's plain one."""
    plain = attend(QUERY, KEYS[:3], VALUES[:3], SEEN)
    fused = attend_fused(QUERY, KEYS[:3], VALUES[:3], SEEN, implementation="xla")
    np.testing.assert_allclose(fused, plain, atol=1e-5)
