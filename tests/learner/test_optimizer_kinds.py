"""Optimizers that remember less, and moments that wait on the host: the same update, elsewhere or in fewer bytes."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from bag_network import make_batch, small_decoder

from jaxmtrl.batch import Targets
from jaxmtrl.config.sections import AlgorithmSection, OptimizerSection
from jaxmtrl.learner.device import micro_batch_order, put_batch
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.state import TrainState, abstract_state, init_state, params_shardings, restart
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.parallel.sharding import fetched_from_host, rows_sharding, sent_to_host

ROWS = [[12, 9], [17], [7, 7, 7], [24]]


def made(network, **section):
    return make_optimizer(
        OptimizerSection(eps=0.1, **section),
        network,
        learning_rate=0.1,
        critic_learning_rate=0.1,
        total_steps=9,
        warmup_steps=0,
    )


def updated(shape: tuple[int, int, int], **section) -> tuple[TrainState, TrainState]:
    """The state of abstract shapes and the one after two optimizer steps."""
    network, params = small_decoder()
    mesh = make_mesh(*shape, devices=jax.devices()[: math.prod(shape)])
    optimizer = made(network, **section)
    learner = Learner(
        network,
        mesh,
        optimizers={"policy": optimizer},
        algorithm=AlgorithmSection(name="ppo", minibatches=2),
        temperature=1.0,
    )
    state = restart(jax.device_put(params, params_shardings(network, mesh)), network, optimizer, mesh)
    device = put_batch(make_batch(ROWS), micro_batch_rows=4, max_rows=8, mesh=mesh)
    mask = np.asarray(device.rows.action_mask)

    def drawn(seed: int) -> np.ndarray:
        return np.where(mask, np.random.default_rng(seed).normal(size=mask.shape), 0).astype(np.float32)

    targets = Targets(
        advantages=drawn(1),
        returns=drawn(2),
        old_logprobs=np.where(mask, np.float32(-math.log(64)), np.float32(0)),
        old_values=drawn(3) * 0,
        ref_logprobs=None,
        learn=mask,
    )
    targets = jax.tree.map(lambda x: jax.device_put(x, rows_sharding(mesh)), targets)
    order = micro_batch_order(np.random.default_rng(0), used=1, count=2, epochs=2)
    after, metrics = learner.update("policy", state, device, targets, order)
    assert int(metrics.steps) == 2
    return abstract_state(network, optimizer, mesh), after


@pytest.mark.parametrize("name", ["adamw8", pytest.param("adamw", marks=pytest.mark.slow)])
def test_moments_on_the_host_change_no_number_and_stay_there(name):
    _, here = updated((1, 1, 1), name=name)
    abstract, there = updated((1, 1, 1), name=name, memory="host")
    jax.tree.map(np.testing.assert_array_equal, there.params, here.params)
    jax.tree.map(np.testing.assert_array_equal, there.opt_state, here.opt_state)
    kinds = {leaf.sharding.memory_kind for leaf in jax.tree.leaves(there.opt_state) if leaf.ndim}
    assert kinds == {"pinned_host"}
    assert {leaf.sharding.memory_kind for leaf in jax.tree.leaves(there.params)} == {"device"}
    for want, got in zip(jax.tree.leaves(abstract), jax.tree.leaves(there), strict=True):
        assert (want.shape, want.dtype, want.sharding.memory_kind) == (got.shape, got.dtype, got.sharding.memory_kind)


@pytest.mark.parametrize("name", ["adamw8", pytest.param("adafactor", marks=pytest.mark.slow)])
def test_a_mesh_does_not_change_them(name):
    _, alone = updated((1, 1, 1), name=name)
    _, spread = updated((1, 2, 2), name=name)
    for one, other in zip(jax.tree.leaves(alone.params), jax.tree.leaves(spread.params), strict=True):
        np.testing.assert_allclose(other, one, atol=2e-3)


def test_each_remembers_less_than_the_one_before():
    network, _ = small_decoder()
    mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    sizes = []
    for name in ("adamw", "adamw8", "adafactor"):
        moments = abstract_state(network, made(network, name=name), mesh).opt_state
        sizes.append(sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(moments)))
    assert sizes[1] < sizes[0] and sizes[2] < sizes[0]


def test_a_state_may_be_born_with_its_moments_on_the_host():
    network, _ = small_decoder()
    mesh = make_mesh(1, 2, 2, devices=jax.devices()[:4])
    state = init_state(network, made(network, memory="host"), mesh, jax.random.key(0))
    gate = state.opt_state["policy"][0].mu["layers"]["mlp"]["gate"]
    assert gate.sharding.memory_kind == "pinned_host" and not gate.sharding.is_fully_replicated


def test_what_is_sent_to_the_host_comes_back_the_same():
    mesh = make_mesh(1, 4, 2, devices=jax.devices()[:8])
    network, params = small_decoder()
    placed = jax.device_put(params, params_shardings(network, mesh))
    away = sent_to_host(placed)
    assert {leaf.sharding.memory_kind for leaf in jax.tree.leaves(away)} == {"pinned_host"}
    back = fetched_from_host(away)
    jax.tree.map(np.testing.assert_array_equal, back, params)
    assert [leaf.sharding for leaf in jax.tree.leaves(back)] == [leaf.sharding for leaf in jax.tree.leaves(placed)]
