"""The network: cached decode equals the full forward, segments do not see each other, nor the past the future."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.models.attention import attend_cache
from jaxmtrl.models.decoder import Network, parameter_count
from jaxmtrl.models.kv_cache import empty_cache

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


@pytest.mark.parametrize(
    "changes",
    [
        {"qkv_bias": True, "rope_scaling": "yarn", "rope_factor": 4.0, "rope_original_length": 16},
        {"qk_norm": True, "rope_scaling": "llama3", "rope_factor": 8.0, "rope_original_length": 16},
        {"vocab_multiple": 64, "tied_head": False, "rope_scaling": "linear", "rope_factor": 2.0},
    ],
)
def test_cached_pieces_equal_the_full_forward_in_every_family(changes):
    """Case D1, with biases and norms away from their start."""
    network = Network.from_section(dataclasses.replace(tiny.MODEL, **changes), 259, "float32")
    params = network.init(jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 100))
    params = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(next(keys), leaf.shape), params)
    full = network.logits(params, network.hidden(params, TOKENS, POSITIONS, ONE_SEGMENT))
    cache = empty_cache(network.config, slots=2, length=16, dtype="float32")
    outside, layers = params["policy"]["outside"], network.unstack(params)
    for start, stop in ((0, 5), (5, 12)):
        hidden, cache = network.cached_hidden(outside, layers, TOKENS[:, start:stop], POSITIONS[:, start:stop], cache)
        np.testing.assert_allclose(network.cached_logits(outside, hidden), full[:, start:stop], atol=1e-4)


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


def test_padding_rows_of_the_vocabulary_have_no_probability_and_no_gradient():
    """259 tokens in rows of 64 make a table of 320; 61 of them pad."""
    padded = Network.from_section(dataclasses.replace(tiny.MODEL, vocab_multiple=64), 259, "float32")
    params = padded.init(jax.random.key(0))
    table = params["policy"]["outside"]["embedding"]
    assert table.shape == (320, 32)
    same = {
        **params,
        "policy": {**params["policy"], "outside": {**params["policy"]["outside"], "embedding": table[:259]}},
    }
    hidden = padded.hidden(params, TOKENS, POSITIONS, ONE_SEGMENT)
    plain = NETWORK.logits(same, hidden)
    np.testing.assert_allclose(padded.logits(params, hidden)[..., :259], plain, atol=1e-5)
    for temperature in (1.0, 1e-3, 100.0):
        logprobs = jax.nn.log_softmax(padded.logits(params, hidden) / temperature)
        np.testing.assert_array_equal(jnp.exp(logprobs[..., 259:]), 0.0)
        entropy = -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)
        kept = jax.nn.log_softmax(plain / temperature)
        np.testing.assert_allclose(entropy, -jnp.sum(jnp.exp(kept) * kept, axis=-1), atol=1e-4)

    def loss(params):
        return jax.nn.log_softmax(padded.logits(params, hidden))[..., 3].sum()

    gradient = jax.grad(loss)(params)["policy"]["outside"]["embedding"]
    np.testing.assert_array_equal(gradient[259:], 0.0)
    assert float(jnp.abs(gradient[:259]).min(axis=1).max()) > 0


def test_biases_start_at_zero_and_head_norms_at_one():
    """Qwen2.5's and Qwen3's extra parameters: 4 query heads and 2 of keys and values, 8 wide; two scales of 8."""
    section = dataclasses.replace(tiny.MODEL, qkv_bias=True, qk_norm=True)
    attention = Network.from_section(section, 259, "float32").init(jax.random.key(0))["policy"]["layers"]["attention"]
    for name, heads in (("query_bias", 4), ("key_bias", 2), ("value_bias", 2)):
        np.testing.assert_array_equal(attention[name], np.zeros((2, heads, 8)))
    for name in ("query_norm", "key_norm"):
        np.testing.assert_array_equal(attention[name]["scale"], np.ones((2, 8)))


@pytest.mark.parametrize(("rows", "tokens"), [(2, 3), pytest.param(9, 12, marks=pytest.mark.slow)])
def test_the_layout_for_one_cpu_changes_no_number(rows, tokens):
    """Fewer and more rows than 64 take different products; the output of one token alone is that of all."""
    network = NETWORK.for_sampling(tiny.one_device())
    assert network.config.cpu_layout
    tokens_in = np.random.default_rng(0).integers(0, 256, (rows, tokens)).astype(np.int32)
    positions = np.tile(np.arange(tokens, dtype=np.int32), (rows, 1))
    outside, last = PARAMS["policy"]["outside"], np.arange(rows) % tokens
    cache = empty_cache(network.config, slots=rows, length=16, dtype="float32")
    plain, _ = NETWORK.cached_hidden(outside, NETWORK.unstack(PARAMS), tokens_in, positions, cache)
    laid_out = network.unstack(PARAMS)
    whole, written = network.cached_hidden(outside, laid_out, tokens_in, positions, cache)
    only, same = network.cached_hidden(outside, laid_out, tokens_in, positions, cache, last=last)
    np.testing.assert_allclose(whole, plain, atol=1e-5)
    np.testing.assert_allclose(only[:, 0], plain[np.arange(rows), last], atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, written, same)
    np.testing.assert_allclose(
        network.cached_logits(outside, only[:, 0]), NETWORK.cached_logits(outside, only[:, 0]), atol=1e-5
    )


def test_a_quantised_base_is_left_as_it_lies():
    lora = LoraSection(rank=2, frozen="nf4")
    adapted = Network(dataclasses.replace(NETWORK.config, lora=lora))
    assert not adapted.for_sampling(tiny.one_device()).config.cpu_layout
