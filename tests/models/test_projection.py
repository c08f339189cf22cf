"""Adapters and quantised matrices: what they compute, what they leave alone, and what they begin as."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qwix
import tiny
from flax import nnx

from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.models.adapters import merged
from jaxmtrl.models.decoder import Network, Outside, _bind
from jaxmtrl.models.layers import Block
from jaxmtrl.models.projection import INPUTS, Projections, quantised
from jaxmtrl.models.quantised import dequantise

TOKENS = np.arange(24, dtype=np.int32).reshape(2, 12) % 19
POSITIONS = np.tile(np.arange(12, dtype=np.int32), (2, 1))
SEGMENTS = np.zeros_like(TOKENS)
KEY = jax.random.key(0)


def network(section=tiny.MODEL, **lora) -> Network:
    return Network.from_section(section, 19, "float32", LoraSection(**({"rank": 4} | lora)))


def params_of(net: Network, stirred: bool = True):
    """The network's parameters joined, B away from its zeros."""
    trained = net.init(KEY)
    if stirred:
        rng = np.random.default_rng(3)
        trained["policy"] = jax.tree.map(
            lambda leaf: leaf + jnp.asarray(0.1 * rng.normal(size=leaf.shape), jnp.float32), trained["policy"]
        )
    return trained | net.init_base(KEY)


def logits(net: Network, params, *noise) -> np.ndarray:
    return np.asarray(net.logits(params, net.hidden(params, TOKENS, POSITIONS, SEGMENTS, *noise)))


def test_adapters_begin_as_nothing():
    """The base is the decoder that the same key makes, and an untrained adapter adds exactly 0."""
    whole = network().whole
    np.testing.assert_array_equal(
        logits(network(), params_of(network(), stirred=False)), logits(whole, whole.init(KEY))
    )


def test_adapters_add_what_qwix_adds():
    """Held against qwix's own provider, on a matrix with two input dimensions and one with two output dimensions."""

    first, second = jax.random.normal(jax.random.key(1), (6, 2, 4)), jax.random.normal(jax.random.key(2), (2, 4, 6))
    equations = ("btd,dnh->btnh", "btnh,nhd->btd")

    class Theirs(nnx.Module):
        def __init__(self):
            self.query, self.out = nnx.Param(first), nnx.Param(second)

        def __call__(self, x):
            return jnp.einsum(equations[1], jnp.einsum(equations[0], x, self.query[...]), self.out[...])

    x = jax.random.normal(jax.random.key(3), (2, 5, 6))
    provider = qwix.LoraProvider(module_path=".*", rank=3, alpha=12.0)
    theirs = qwix.apply_lora_to_model(Theirs(), provider, x, rngs=nnx.Rngs(0))
    ours = Projections()
    ours.query, ours.out = nnx.Param(first, axes=(None,) * 3), nnx.Param(second, axes=(None,) * 3)
    ours.adapt(LoraSection(rank=3, alpha=12.0), KEY, ("query", "out"))
    rng = np.random.default_rng(0)
    for name in ("query_lora_a", "query_lora_b", "out_lora_a", "out_lora_b"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape, name
        drawn = jnp.asarray(rng.normal(size=getattr(ours, name).shape), jnp.float32)
        setattr(ours, name, nnx.Param(drawn))
        setattr(theirs, name, nnx.LoRAParam(drawn))
    got = ours.through("out", equations[1], ours.through("query", equations[0], x))
    np.testing.assert_allclose(got, theirs(x), rtol=1e-5, atol=1e-5)
    assert np.abs(np.asarray(got) - np.asarray(Theirs()(x))).max() > 1


@pytest.mark.parametrize("frozen", ["whole", "int8", "int4", "nf4"])
def test_merged_weights_play_as_base_and_adapters(frozen: str):
    net = network(frozen=frozen, alpha=2.0)
    params = params_of(net)
    one = merged(net, params["base"], params["policy"])
    expected = logits(net, params)
    np.testing.assert_allclose(logits(net.whole, params | {"policy": one}), expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected - logits(net, params_of(net, stirred=False))).max() > 0.1


def test_only_targets_have_adapters():
    net = network(targets=("query", "down"))
    layers = net.shapes()["policy"]["layers"]
    assert sorted(layers["attention"]) == ["query_lora_a", "query_lora_b"]
    assert sorted(layers["mlp"]) == ["down_lora_a", "down_lora_b"]
    assert layers["attention"]["query_lora_a"].shape == (2, 32, 4)  # [L, D, r]
    assert layers["attention"]["query_lora_b"].shape == (2, 4, 4, 8)  # [L, r, N, H]
    assert list(net.shapes()["policy"]) == ["layers"]


def test_decode_reads_the_adapters_too():
    """A cache filled token by token gives the states of the whole row."""
    net = network(frozen="int8")
    params = params_of(net)
    hidden = net.hidden(params, TOKENS, POSITIONS, SEGMENTS)
    shape = (2, 2, 12, 8)  # [B, K, C, H]
    cache = tuple((jnp.zeros(shape), jnp.zeros(shape)) for _ in range(2))
    outside, layers = net.trunk(params)["outside"], net.unstack(params)
    for column in range(12):
        at = slice(column, column + 1)
        state, cache = net.cached_hidden(outside, layers, TOKENS[:, at], POSITIONS[:, at], cache)
        np.testing.assert_allclose(state[:, 0], hidden[:, column], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("frozen", "worst"), [("int8", 0.004), ("int4", 0.072), ("nf4", 0.16)])
def test_quantisation_stays_within_half_a_step(frozen: str, worst: float):
    """Of the largest of 32 inputs that share a scale: 1/254 in int8, 1/14 in int4, half nf4's widest gap."""
    weight = jax.random.normal(jax.random.key(5), (4, 64, 4))
    lora = LoraSection(rank=1, frozen=frozen, tile=32)
    error = np.abs(dequantise(quantised(weight, 2, lora)) - weight).reshape(4, 2, 32, 4)
    largest = np.abs(np.asarray(weight)).reshape(4, 2, 32, 4).max(axis=2, keepdims=True)
    assert 0 < (error / largest).max() <= worst


def test_a_tile_that_does_not_fit_is_cut():
    scales = quantised(jnp.ones((48, 6)), 1, LoraSection(rank=1, frozen="int4", tile=32)).scales
    assert scales.shape == (2, 6)  # 24 is the largest up to 32 that divides 48
    with pytest.raises(ValueError, match="odd"):
        quantised(jnp.ones((48, 5)), 1, LoraSection(rank=1, frozen="nf4"))


def part_of(layers, name: str) -> str:
    return "attention" if name in layers["attention"] else "mlp"


def test_a_quantised_base_is_small():
    """int4 matrices are an eighth of f32, two values a byte; their scales a 16th to a 32nd of the count."""
    net = network(dataclasses.replace(tiny.MODEL, embed=64, mlp=128, head_dim=16), frozen="int4")
    layers = jax.eval_shape(net.init_base, KEY)["base"]["layers"]
    for name in INPUTS:
        array = layers[part_of(layers, name)][name]
        count = net.whole.shapes()["policy"]["layers"][part_of(layers, name)][name].size
        assert array.values.dtype == jnp.uint8 and 2 * array.values.size == count, name
        assert 16 <= count / array.scales.size <= 32, name


def test_adapters_stay_f32_over_a_bfloat16_base():
    net = network(dataclasses.replace(tiny.MODEL, param_dtype="bfloat16"))
    assert {leaf.dtype for leaf in jax.tree.leaves(net.shapes()["policy"])} == {jnp.dtype("float32")}
    base = jax.eval_shape(net.init_base, KEY)
    assert {leaf.dtype for leaf in jax.tree.leaves(base)} == {jnp.dtype("bfloat16")}


def test_dropout_leaves_out_its_share_of_an_adapters_input():
    """Its mean over many keys is the output without it; the base's own part never drops."""
    net = network(dropout=0.25)
    params = params_of(net)
    without = logits(net, params)
    one, other = logits(net, params, jax.random.key(1)), logits(net, params, jax.random.key(2))
    assert np.abs(one - without).max() > 0.01 and np.abs(one - other).max() > 0.01
    np.testing.assert_array_equal(one, logits(net, params, jax.random.key(1)))
    fresh = params_of(net, stirred=False)
    np.testing.assert_array_equal(logits(net, fresh, jax.random.key(1)), logits(net, fresh))

    # Every layer draws by a key of its own.
    key = jax.random.key(3)
    x = net.trunk(params)["outside"]["embedding"][TOKENS]
    for layer, drawn in zip(net.unstack(params), jax.random.split(key, 2)):
        x = _bind(Block, net.config, layer)(x, net.config.rope.turns(POSITIONS), SEGMENTS, drawn)
    wanted = _bind(Outside, net.config, net.trunk(params)["outside"]).final_norm(x)
    np.testing.assert_allclose(net.hidden(params, TOKENS, POSITIONS, SEGMENTS, key), wanted, rtol=1e-5, atol=1e-5)

    block = Projections()
    block.gate = nnx.Param(jnp.zeros((50, 1)), axes=("embed", "mlp"))
    block.adapt(LoraSection(rank=1, alpha=1.0, dropout=0.25), KEY, ("gate",))
    block.gate_lora_a, block.gate_lora_b = nnx.Param(jnp.ones((50, 1))), nnx.Param(jnp.ones((1, 1)))
    kept = jax.vmap(lambda key: block.through("gate", "btd,df->btf", jnp.ones((1, 1, 50)), key))(
        jax.random.split(KEY, 400)
    )
    # 50 inputs of 4/3 each with chance 3/4: mean 50, deviation (50 * 3/16)**.5 * 4/3 = 4.1, of the mean of 400: .2
    assert abs(float(kept.mean()) - 50) < 0.8 and 3.5 < float(kept.std()) < 4.7


def test_a_separate_critic_reads_with_adapters_of_its_own():
    """It starts as the policy does, shares the base, and the policy's adapters do not move it."""
    net = network(dataclasses.replace(tiny.MODEL, critic="separate"))
    params = net.critic_from_policy(params_of(net))
    assert sorted(params["critic"]) == ["head", "layers"]
    read = (TOKENS, POSITIONS, SEGMENTS)
    hidden = net.hidden(params, *read)
    np.testing.assert_array_equal(net.critic_hidden(params, hidden, *read), hidden)
    moved = params | {"policy": jax.tree.map(lambda leaf: leaf + 0.1, params["policy"])}
    np.testing.assert_array_equal(net.critic_hidden(moved, net.hidden(moved, *read), *read), hidden)
    assert np.abs(net.hidden(moved, *read) - hidden).max() > 0.1
