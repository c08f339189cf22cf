"""Attention within packed rows: every way gives the numbers and gradients of a slow one, whatever the segments."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmtrl.models.attention import attend_fused
from jaxmtrl.models.row_attention import RowAttention, attend_rows
from jaxmtrl.parallel.mesh import make_mesh

SPLASH = RowAttention(kind="splash", interpret=True)
FLASH = RowAttention(kind="flash")
TOKENS = 256


def packed(rows: int = 2, *, tokens: int = TOKENS, heads: int = 4, kv_heads: int = 2):
    """Query, keys and values [B, T, ·, 8], and segments of different lengths that end in padding."""
    shapes = ((rows, tokens, heads, 8), *[(rows, tokens, kv_heads, 8)] * 2)
    arrays = [jax.random.normal(jax.random.key(n), shape) for n, shape in enumerate(shapes)]
    ends = np.array([[100, 130, 200], [1, 128, 256], [256, 256, 256], [0, 0, 0]])[np.arange(rows) % 4]
    columns = np.arange(tokens)
    segments = (columns[None, :, None] >= ends[:, None]).sum(axis=2)
    segments = np.where(columns < ends[:, -1:], segments + 10 * np.arange(rows)[:, None], -1)
    return *arrays, jnp.asarray(segments, jnp.int32)


@functools.cache
def by_hand() -> np.ndarray:
    """Of `packed`, one token and head at a time, in f64; every third token, as it is slow."""
    *parts, segments = packed()
    query, keys, values = (np.asarray(part, np.float64) for part in parts)
    segments = np.asarray(segments)
    rows, tokens, heads, width = query.shape
    group, mixed = heads // keys.shape[2], np.zeros(query.shape)
    for row in range(rows):
        for token in range(0, tokens, 3):
            seen = np.flatnonzero(segments[row, : token + 1] == segments[row, token])
            for head in range(heads):
                scores = keys[row, seen, head // group] @ query[row, token, head] * width**-0.5
                shares = np.exp(scores - scores.max())
                mixed[row, token, head] = shares @ values[row, seen, head // group] / shares.sum()
    return mixed


@pytest.mark.parametrize("way", [RowAttention(), FLASH, SPLASH], ids=["blocks", "flash", "splash"])
def test_each_token_sees_its_own_segment_up_to_itself(way):
    np.testing.assert_allclose(attend_rows(*packed(), way)[:, ::3], by_hand()[:, ::3], atol=2e-5)


def gradients(way: RowAttention, arrays, weights):
    *parts, segments = arrays
    real = (segments >= 0)[:, :, None, None]

    def loss(*parts):
        return jnp.sum(jnp.where(real, attend_rows(*parts, segments, way) * weights, 0))

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*parts)


@pytest.mark.parametrize("way", [FLASH, SPLASH], ids=["flash", "splash"])
def test_it_has_the_gradients_of_the_blocks(way):
    arrays = packed()
    weights = jax.random.normal(jax.random.key(9), arrays[0].shape)
    for found, expected in zip(gradients(way, arrays, weights), gradients(RowAttention(), arrays, weights)):
        np.testing.assert_allclose(found, expected, atol=5e-5)


@pytest.mark.parametrize("way", [FLASH, SPLASH], ids=["flash", "splash"])
@pytest.mark.parametrize(("tensor", "kv_heads"), [(2, 2), (4, 2), (4, 1)])
def test_rows_and_heads_may_be_spread_over_a_mesh(tensor, kv_heads, way):
    """Two key-value heads on two devices, on four (each copied), one on four."""
    arrays = packed(4, heads=8, kv_heads=kv_heads)
    spread = dataclasses.replace(way, mesh=make_mesh(1, 8 // tensor, tensor, jax.devices()[:8]))
    found = jax.jit(lambda *arrays: attend_rows(*arrays, spread))(*arrays)
    np.testing.assert_allclose(found, attend_rows(*arrays), atol=2e-5)


@pytest.mark.parametrize(("sequence", "tensor", "kv_heads"), [(8, 1, 2), (4, 2, 2), (2, 4, 2), (2, 2, 1)])
def test_the_tokens_of_a_row_may_be_split(sequence, tensor, kv_heads):
    """The same numbers and gradients, heads split beside them or copied."""
    arrays = packed(4, heads=8, kv_heads=kv_heads)
    mesh = make_mesh(1, 8 // sequence // tensor, tensor, jax.devices()[:8], sequence=sequence)
    split = RowAttention(mesh=mesh)
    found = jax.jit(lambda *arrays: attend_rows(*arrays, split))(*arrays)
    np.testing.assert_allclose(found, attend_rows(*arrays), atol=2e-5)
    weights = jax.random.normal(jax.random.key(9), arrays[0].shape)
    for one, other in zip(gradients(split, arrays, weights), gradients(RowAttention(), arrays, weights)):
        np.testing.assert_allclose(one, other, atol=5e-5)


def test_rows_that_the_kernel_cannot_divide_are_taken_in_blocks():
    query, keys, values, segments = (part[:, :100] for part in packed())
    np.testing.assert_array_equal(
        attend_rows(query, keys, values, segments, SPLASH), attend_rows(query, keys, values, segments)
    )


def test_the_gpu_kernel_gets_the_same_mask(monkeypatch):
    """cuDNN wants a GPU; all but its name is tried with jax.nn's plain way."""
    from jaxmtrl.models import row_attention

    monkeypatch.setattr(row_attention, "attend_fused", lambda *arrays: attend_fused(*arrays, implementation="xla"))
    arrays = packed()
    np.testing.assert_allclose(attend_rows(*arrays, RowAttention(kind="cudnn")), attend_rows(*arrays), atol=2e-5)


def test_the_learner_takes_what_is_named_and_what_suits_the_device():
    network, mesh = tiny.network(), tiny.one_device()
    kinds = {name: network.for_learning(mesh, name).config.row_attention.kind for name in ("auto", "xla", "splash")}
    assert kinds == {"auto": "flash", "xla": "blocks", "splash": "splash"}


@pytest.mark.parametrize(
    "tokens", [5, pytest.param(65, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.slow)]
)
def test_blocks_need_not_divide_a_row(tokens):
    """One block of 5 tokens, two of 33, four of 75; numbers and gradients."""
    *parts, _ = packed(3, tokens=tokens)
    arrays = (*parts, jnp.asarray(np.arange(tokens) * 7 // tokens + np.zeros((3, 1)), jnp.int32))
    np.testing.assert_allclose(attend_rows(*arrays, FLASH), attend_rows(*arrays), atol=2e-5)
    weights = jax.random.normal(jax.random.key(9), arrays[0].shape)
    for found, expected in zip(gradients(FLASH, arrays, weights), gradients(RowAttention(), arrays, weights)):
        np.testing.assert_allclose(found, expected, atol=5e-5)


def test_blocks_before_a_segment_are_not_looked_at():
    """Values that are NaN in one segment reach nothing of the blocks that begin in the next."""
    *parts, _ = packed(1, tokens=512)  # blocks of 128
    segments = jnp.where(jnp.arange(512) < 256, 0, 1)[None]
    values = parts[2].at[:, :256].set(jnp.nan)
    mixed = attend_rows(parts[0], parts[1], values, segments, FLASH)
    assert np.isnan(mixed[:, :256]).all() and np.isfinite(mixed[:, 256:]).all()
