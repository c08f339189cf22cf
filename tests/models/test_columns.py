"""Keys and values in eight bits."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxmtrl.models.columns import Int8Columns, empty_columns, read_columns, write_columns

SHAPE = (3, 2, 5, 4)  # [S, K, C, H]


def written(dtype: str, new: np.ndarray) -> np.ndarray:
    columns = write_columns(
        empty_columns(SHAPE, dtype), jnp.asarray([[2], [0]]), jnp.asarray([[1, 4], [0, 5]]), jnp.asarray(new)
    )
    return np.asarray(read_columns(columns, jnp.float32))


def test_columns_go_to_their_row_and_place_and_those_beyond_are_dropped():
    new = np.random.default_rng(0).normal(size=(2, 2, 2, 4)).astype(np.float32)  # [B, T, K, H]
    for dtype, tolerance in (("float32", 0.0), ("bfloat16", 0.02), ("int8", 0.02)):
        got = written(dtype, new)
        np.testing.assert_allclose(got[2, :, 1], new[0, 0], atol=tolerance, err_msg=dtype)
        np.testing.assert_allclose(got[2, :, 4], new[0, 1], atol=tolerance, err_msg=dtype)
        np.testing.assert_allclose(got[0, :, 0], new[1, 0], atol=tolerance, err_msg=dtype)
        assert np.count_nonzero(got) == 3 * 2 * 4, dtype  # position 5 is beyond C


def test_an_error_is_at_most_half_a_step_of_its_own_head():
    """Heads and columns have scales of their own, so a large one costs its neighbours nothing."""
    new = np.random.default_rng(1).normal(size=(2, 2, 2, 4)).astype(np.float32)
    new[0, 0, 0] *= 1000.0
    got = written("int8", new)
    for place, part in (((2, slice(None), 1), new[0, 0]), ((2, slice(None), 4), new[0, 1])):
        step = np.abs(part).max(axis=-1, keepdims=True) / 127
        assert (np.abs(got[place] - part) <= 0.5001 * step).all()


def test_zeros_stay_zeros():
    assert not written("int8", np.zeros((2, 2, 2, 4), np.float32)).any()
    assert isinstance(empty_columns(SHAPE, "int8"), Int8Columns)
