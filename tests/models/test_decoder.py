"""The network: cached decode equals the full forward, segments do not see each other, nor the past the future."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmtrl.models.decoder import parameter_count
from jaxmtrl.models.kv_cache import empty_cache
from jaxmtrl.models.layers import attend_cache, rotate

NETWORK, PARAMS = tiny.network(), tiny.params()
TOKENS = np.random.default_rng(0).integers(0, 256, (2, 12)).astype(np.int32)
POSITIONS = np.broadcast_to(np.arange(12, dtype=np.int32), (2, 12))
ONE_SEGMENT = np.zeros((2, 12), np.int32)
forward = jax.jit(NETWORK.hidden)


def test_cached_pieces_equal_the_full_forward():
    full = forward(PARAMS, TOKENS, POSITIONS, ONE_SEGMENT)
    cache = empty_cache(NETWORK.config, slots=2, length=16, dtype="float32")
    outside, layers = PARAMS["policy"]["outside"], NETWORK.unstack(PARAMS)
    pieces = []
    for start, stop in ((0, 5), (5, 6), (6, 12)):
        hidden, cache = NETWORK.cached_hidden(outside, layers, TOKENS[:, start:stop], POSITIONS[:, start:stop], cache)
        pieces.append(hidden)
    np.testing.assert_allclose(jnp.concatenate(pieces, axis=1), full, atol=1e-5)


def test_a_later_token_changes_nothing_before_it():
    changed = TOKENS.copy()
    changed[:, 7] = (changed[:, 7] + 1) % 256
    before = forward(PARAMS, TOKENS, POSITIONS, ONE_SEGMENT)
    after = forward(PARAMS, changed, POSITIONS, ONE_SEGMENT)
    np.testing.assert_array_equal(before[:, :7], after[:, :7])
    assert float(jnp.abs(before[:, 7:] - after[:, 7:]).min(axis=(0, 2)).max()) > 0


def test_packed_segments_equal_separate_rows():
    """Case E3: [A A A B B] in one row; B's numbers are those of B alone, whatever A says."""
    a, b = TOKENS[:1, :3], TOKENS[:1, 3:8]
    packed = np.concatenate([a, b], axis=1)
    segments = np.array([[0, 0, 0, 1, 1, 1, 1, 1]], np.int32)
    positions = np.array([[0, 1, 2, 0, 1, 2, 3, 4]], np.int32)
    together = forward(PARAMS, packed, positions, segments)
    alone = forward(PARAMS, b, positions[:, 3:], segments[:, 3:] * 0)
    np.testing.assert_allclose(together[:, 3:], alone, atol=1e-5)
    other = packed.copy()
    other[:, 1] = (other[:, 1] + 1) % 256
    np.testing.assert_array_equal(forward(PARAMS, other, positions, segments)[:, 3:], together[:, 3:])


def test_a_fully_masked_row_has_finite_gradients():
    """Case B8: padding may attend to padding only; nothing of it reaches the loss and nothing is NaN."""
    segments = np.array([[0] * 6 + [-1] * 6, [-1] * 12], np.int32)

    def loss(params):
        hidden = NETWORK.hidden(params, TOKENS, POSITIONS, segments)
        return jnp.where((segments >= 0)[..., None], hidden, 0.0).sum()

    gradients = jax.grad(loss)(PARAMS)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradients))


def test_rotation_depends_on_distance_alone():
    x = jax.random.normal(jax.random.key(1), (1, 2, 1, 8))
    near = rotate(x, jnp.array([[3, 5]]), 10_000.0)
    far = rotate(x, jnp.array([[103, 105]]), 10_000.0)
    product = [float(jnp.vdot(r[0, 0, 0], r[0, 1, 0])) for r in (near, far)]
    assert product[0] == pytest.approx(product[1], abs=1e-4)
    np.testing.assert_array_equal(rotate(x, jnp.zeros((1, 2), int), 10_000.0), x)


def test_cache_columns_beyond_the_position_are_never_read():
    query = jax.random.normal(jax.random.key(2), (1, 1, 2, 8))
    keys = jax.random.normal(jax.random.key(3), (1, 1, 6, 8))
    values = jax.random.normal(jax.random.key(4), (1, 1, 6, 8))
    position = jnp.array([[2]])
    junk = (keys.at[:, :, 3:].set(1e9), values.at[:, :, 3:].set(-1e9))
    np.testing.assert_array_equal(attend_cache(query, keys, values, position), attend_cache(query, *junk, position))


def test_parameter_count_is_worked_out():
    # embedding 259*32, per layer: query 32*4*8, key and value 32*2*8 each, out 4*8*32, MLP 3*32*64, two norms of 32;
    # final norm 32; critic 32*32 + 32 + 1.
    per_layer = 1024 + 512 + 512 + 1024 + 6144 + 64
    assert parameter_count(PARAMS) == 259 * 32 + 2 * per_layer + 32 + 1024 + 32 + 1


def test_axes_name_every_dimension():
    for names, leaf in zip(
        jax.tree.leaves(NETWORK.axes(), is_leaf=lambda node: isinstance(node, tuple)),
        jax.tree.leaves(PARAMS),
        strict=True,
    ):
        assert len(names) == leaf.ndim


def test_a_token_weighs_as_much_at_the_start_as_what_blocks_add_to_it():
    """A table of much smaller numbers would be drowned, and copying a name would have to wait until it has grown."""
    table = tiny.params()["policy"]["outside"]["embedding"]  # [259, 32]
    np.testing.assert_allclose(np.std(table), 32**-0.5, rtol=0.05)
