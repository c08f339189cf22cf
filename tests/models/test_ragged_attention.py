"""The TPU's decode kernel, interpreted: it gives XLA's numbers, and reads nothing beyond a slot's last column."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmtrl.models.attention import CacheAttention, attend_cache
from jaxmtrl.models.columns import empty_columns, write_columns
from jaxmtrl.models.decoder import Network
from jaxmtrl.models.kv_cache import empty_cache
from jaxmtrl.models.ragged_attention import attend_ragged, block_of
from jaxmtrl.parallel.mesh import make_mesh

RAGGED = CacheAttention(decode="ragged", interpret=True)
COLUMNS = 384  # three blocks of 128


def drawn(dtype: str = "float32", *, slots: int = 6, heads: int = 6, kv_heads: int = 2, columns: int = COLUMNS):
    """Query [S, 1, N, H], keys and values [S, K, C, H]."""
    shapes = ((slots, 1, heads, 8), *[(slots, kv_heads, columns, 8)] * 2)
    return [jax.random.normal(jax.random.key(n), shape).astype(dtype) for n, shape in enumerate(shapes)]


# Position of the one query of each slot: the first column, a block's last and the next one's first, the last; closed.
POSITIONS = jnp.array([0, 127, 128, 200, COLUMNS - 1, COLUMNS])[:, None]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_it_gives_the_numbers_of_plain_attention(dtype, tolerance):
    query, keys, values = drawn(dtype)
    plain = attend_cache(query, keys, values, POSITIONS)
    ragged = attend_cache(query, keys, values, POSITIONS, way=RAGGED)
    assert ragged.dtype == plain.dtype
    np.testing.assert_allclose(np.asarray(ragged[:5], np.float32), np.asarray(plain[:5], np.float32), atol=tolerance)
    np.testing.assert_array_equal(ragged[5], np.zeros_like(ragged[5]))  # a closed slot sees nothing


def test_what_lies_beyond_the_last_column_is_not_looked_at():
    """Old columns of an ended episode may hold anything: NaN there reaches no output."""
    query, keys, values = drawn()
    beyond = (jnp.arange(COLUMNS) // 128 > POSITIONS // 128)[:, None, :, None]  # blocks that are not needed
    dirty = [jnp.where(beyond, jnp.nan, part) for part in (keys, values)]
    clean = attend_cache(query, keys, values, POSITIONS, way=RAGGED)
    np.testing.assert_array_equal(attend_cache(query, *dirty, POSITIONS, way=RAGGED), clean)


def test_lengths_it_cannot_divide_are_left_to_plain_attention():
    query, keys, values = drawn(columns=100)
    assert block_of(100) == 0 and block_of(384) == 128 and block_of(1024) == 512
    positions = jnp.full((6, 1), 60)
    np.testing.assert_array_equal(
        attend_cache(query, keys, values, positions, way=RAGGED), attend_cache(query, keys, values, positions)
    )
    with pytest.raises(ValueError, match="multiple of 128"):
        attend_ragged(query[:, 0], keys, values, positions[:, 0], interpret=True)


def test_eight_bits_are_read_by_plain_attention():
    query, keys, values = drawn()
    rows, columns = jnp.arange(6)[:, None], jnp.tile(jnp.arange(COLUMNS), (6, 1))
    eight = [
        write_columns(empty_columns(part.shape, "int8"), rows, columns, part.swapaxes(1, 2)) for part in (keys, values)
    ]
    plain, ragged = (attend_cache(query, *eight, POSITIONS, way=way) for way in (CacheAttention(), RAGGED))
    np.testing.assert_array_equal(ragged, plain)


def test_slots_and_heads_may_be_spread_over_a_mesh():
    """Eight devices: two by two of slots, two of key-value heads."""
    query, keys, values = drawn(slots=8, heads=4)
    positions = jnp.array([3, 383, 128, 127, 9, 250, 384, 0])[:, None]
    spread = dataclasses.replace(RAGGED, mesh=make_mesh(2, 2, 2, jax.devices()[:8]))
    one = attend_cache(query, keys, values, positions, way=RAGGED)
    many = jax.jit(lambda *arrays: attend_cache(*arrays, way=spread))(query, keys, values, positions)
    np.testing.assert_allclose(many, one, atol=1e-6)


def test_a_network_decodes_with_it():
    """A prompt of 130 tokens and one more: the hidden state of plain attention."""
    network = tiny.network()
    params = network.init(jax.random.key(0))
    tokens = np.random.default_rng(0).integers(0, 256, (3, 130)).astype(np.int32)
    positions = np.tile(np.arange(130, dtype=np.int32), (3, 1))

    def decoded(way: CacheAttention) -> jax.Array:
        made = Network(dataclasses.replace(network.config, cache_attention=way))

        @jax.jit
        def run(params):
            cache = empty_cache(made.config, slots=3, length=256, dtype="float32")
            outside, layers = params["policy"]["outside"], made.unstack(params)
            _, cache = made.cached_hidden(outside, layers, tokens, positions, cache)
            return made.cached_hidden(outside, layers, tokens[:, :1], positions[:, :1] + 130, cache)[0]

        return run(params)

    np.testing.assert_allclose(decoded(RAGGED), decoded(CacheAttention()), atol=1e-5)
