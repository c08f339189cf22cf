from __future__ import annotations

import jax
import numpy as np
import pytest
from bag_network import BagNetwork

from jaxmtrl.config.sections import ModelSection, OptimizerSection
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.state import abstract_state, init_state, restart
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh


def optimizer_for(network):
    return make_optimizer(
        OptimizerSection(), network, learning_rate=0.1, critic_learning_rate=0.1, total_steps=4, warmup_steps=0
    )


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(2, 2, 2)


@pytest.fixture(scope="module")
def state(mesh):
    return init_state(BagNetwork(), optimizer_for(BagNetwork()), mesh, jax.random.key(0))


def test_parameters_and_moments_are_born_in_the_same_shards(state):
    adam = state.opt_state["policy"][0]
    for tree in (state.params["policy"], adam.mu, adam.nu):
        assert tree["head"].addressable_shards[0].data.shape == (8, 4)  # [16, 8] over tensor and fsdp
    assert adam.count.sharding.is_fully_replicated and state.step.sharding.is_fully_replicated


def test_the_same_key_gives_the_same_parameters_on_every_mesh(state):
    single = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    alone = init_state(BagNetwork(), optimizer_for(BagNetwork()), single, jax.random.key(0))
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_abstract_state_says_what_is_born(state, mesh):
    abstract = abstract_state(BagNetwork(), optimizer_for(BagNetwork()), mesh)
    assert jax.tree.structure(abstract) == jax.tree.structure(state)
    for want, got in zip(jax.tree.leaves(abstract), jax.tree.leaves(state), strict=True):
        assert (want.shape, want.dtype) == (got.shape, got.dtype)
        assert want.sharding.is_equivalent_to(got.sharding, got.ndim)


def test_every_moment_of_the_decoder_lies_where_its_parameter_lies(mesh):
    section = ModelSection(layers=2, embed=32, heads=4, kv_heads=2, head_dim=8, mlp=64)
    network = Network.from_section(section, 64, "float32")
    abstract = abstract_state(network, optimizer_for(network), mesh)
    for half in ("policy", "critic"):
        where = jax.tree.map(lambda leaf: leaf.sharding, abstract.params[half])
        adam = abstract.opt_state[half][0]
        assert jax.tree.map(lambda leaf: leaf.sharding, adam.mu) == where
        assert jax.tree.map(lambda leaf: leaf.sharding, adam.nu) == where
    gate = abstract.params["policy"]["layers"]["mlp"]["gate"]
    assert gate.sharding.shard_shape(gate.shape) == (2, 16, 32)


def test_a_new_stage_keeps_the_parameters_and_forgets_the_moments(state, mesh):
    fresh = restart(state.params, BagNetwork(), optimizer_for(BagNetwork()), mesh)
    assert fresh.params is state.params and int(fresh.step) == 0
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(fresh.opt_state))
