"""A critic with a decoder of its own: it begins as the policy, and neither ever moves the other."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmtrl.config.sections import ModelSection
from jaxmtrl.models.decoder import Network

SECTION = ModelSection(layers=2, embed=16, heads=2, kv_heads=1, head_dim=8, mlp=32, tied_head=False, critic="separate")
TOKENS = np.random.default_rng(0).integers(0, 40, (2, 6)).astype(np.int32)
POSITIONS, SEGMENTS = np.tile(np.arange(6, dtype=np.int32), (2, 1)), np.zeros((2, 6), np.int32)


@pytest.fixture(scope="module")
def network() -> Network:
    return Network.from_section(SECTION, 40, "float32")


@pytest.fixture(scope="module")
def params(network):
    params = jax.jit(network.init)(jax.random.key(0))
    rng = np.random.default_rng(1)  # its head starts at zero, and would hide what it reads
    params["critic"]["head"] = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), params["critic"]["head"]
    )
    return params


def hidden_states(network, params):
    hidden = network.hidden(params, TOKENS, POSITIONS, SEGMENTS)
    return hidden, network.critic_hidden(params, hidden, TOKENS, POSITIONS, SEGMENTS)


def test_it_begins_as_a_copy_of_the_policy(network, params):
    hidden, own = hidden_states(network, params)
    assert not np.allclose(hidden, own)
    copied = network.critic_from_policy(params)
    hidden, own = hidden_states(network, copied)
    np.testing.assert_array_equal(hidden, own)
    assert copied["critic"]["head"] is params["critic"]["head"]
    shared = {id(leaf) for leaf in jax.tree.leaves(copied["policy"])} & {
        id(leaf) for leaf in jax.tree.leaves(copied["critic"])
    }
    assert not shared, "an update gives its buffers up, and would give up the same one twice"


def test_values_move_the_critic_alone_and_log_probs_the_policy_alone(network, params):
    def value(params):
        _, own = hidden_states(network, params)
        return jnp.sum(network.values(params, own))

    def logit(params):
        hidden, _ = hidden_states(network, params)
        return jnp.sum(network.logits(params, hidden)[..., 3])

    for function, moved, still in ((value, "critic", "policy"), (logit, "policy", "critic")):
        grads = jax.grad(function)(params)
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(grads[still]))
        assert np.any(jax.tree.leaves(grads[moved]["layers"])[0])


def test_axes_have_the_shape_of_the_parameters_and_a_critic_has_no_output_head(network, params):
    axes = jax.tree.map(lambda names: len(names), network.axes(), is_leaf=lambda node: isinstance(node, tuple))
    assert axes == jax.tree.map(lambda leaf: leaf.ndim, params)
    assert "head" in params["policy"]["outside"] and "head" not in params["critic"]["outside"]


def test_a_head_on_the_trunk_reads_the_policys_states():
    network = Network.from_section(dataclasses.replace(SECTION, critic="head"), 40, "float32")
    params = jax.jit(network.init)(jax.random.key(0))
    hidden, own = hidden_states(network, params)
    assert own is hidden and network.critic_from_policy(params) is params
