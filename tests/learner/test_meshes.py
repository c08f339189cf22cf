"""The same update of the real decoder on one device and on meshes of eight gives the same numbers."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest
from bag_network import BagNetwork, make_batch, small_decoder

from jaxmtrl.batch import Targets
from jaxmtrl.config.sections import AlgorithmSection, OptimizerSection
from jaxmtrl.learner.device import micro_batch_order, put_batch
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.state import TrainState, params_shardings, restart
from jaxmtrl.learner.update import UpdateMetrics
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.parallel.sharding import rows_sharding

ROWS = [[12, 9], [17], [7, 7, 7], [24], [10], [14, 8], [9], [13], [20], [16]]


def one_update(shape: tuple[int, int, int], sequence: int = 1) -> tuple[TrainState, UpdateMetrics]:
    """Two optimizer steps on a mesh; the tied head is split over the vocabulary where the mesh has a tensor axis."""
    network, params = small_decoder()
    mesh = make_mesh(*shape, devices=jax.devices()[: math.prod(shape) * sequence], sequence=sequence)
    network = network.for_learning(mesh, "auto")
    # A large epsilon keeps Adam's step continuous in the gradient, so that rounding is not blown up to a whole step.
    optimizer = make_optimizer(
        OptimizerSection(eps=0.1), network, learning_rate=0.1, critic_learning_rate=0.1, total_steps=9, warmup_steps=0
    )
    learner = Learner(
        network,
        mesh,
        optimizers={"policy": optimizer},
        algorithm=AlgorithmSection(name="ppo", minibatches=2, entropy_coef=0.01),
        temperature=1.0,
    )
    state = restart(jax.device_put(params, params_shardings(network, mesh)), network, optimizer, mesh)
    device = put_batch(make_batch(ROWS), micro_batch_rows=8, max_rows=16, mesh=mesh)
    mask = np.asarray(device.rows.action_mask)
    targets = Targets(
        advantages=np.where(mask, np.random.default_rng(1).normal(size=mask.shape), 0),
        returns=np.where(mask, np.random.default_rng(2).normal(size=mask.shape), 0),
        old_logprobs=np.where(mask, -math.log(64), 0),
        old_values=np.zeros(mask.shape),
        ref_logprobs=None,
        learn=mask,
    )
    targets = jax.tree.map(
        lambda x: jax.device_put(x if x.dtype == bool else x.astype(np.float32), rows_sharding(mesh)), targets
    )
    order = micro_batch_order(np.random.default_rng(0), used=2, count=2, epochs=1)
    return learner.update("policy", state, device, targets, order)


@pytest.fixture(scope="module")
def alone():
    return one_update((1, 1, 1))


@pytest.mark.parametrize(
    ("shape", "sequence"),
    [((8, 1, 1), 1), ((2, 2, 2), 1), ((1, 2, 2), 2), pytest.param((1, 1, 1), 8, marks=pytest.mark.slow)],
)
def test_a_mesh_does_not_change_the_update(alone, shape, sequence):
    (state, metrics), (want_state, want_metrics) = one_update(shape, sequence), alone
    for field in dataclasses.fields(metrics.parts):
        got, want = getattr(metrics.parts, field.name), getattr(want_metrics.parts, field.name)
        np.testing.assert_allclose(got, want, atol=1e-5, err_msg=field.name)
    assert int(metrics.steps) == int(want_metrics.steps) == 2
    moved = 0.0
    _, start = small_decoder()
    for got, want, begun in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(want_state.params), jax.tree.leaves(start), strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-4)
        moved = max(moved, float(np.abs(np.asarray(want) - begun).max()))
    assert moved > 1e-2  # far more than the tolerance: the comparison means something
    if math.prod(shape[1:]) > 1:
        adam = state.opt_state["policy"][0]
        gate = adam.mu["layers"]["mlp"]["gate"]
        assert gate.addressable_shards[0].data.size * math.prod(shape[1:]) == gate.size


SETTINGS = {
    "ppo by both levels": {"name": "ppo", "credit": "bilevel", "gamma": 0.9, "discount_per": "turn"},
    "gspo": {"name": "gspo", "ratio": "sequence", "group_size": 2, "loss_mean": "sequence_token_mean"},
    "gigpo": {"name": "gigpo", "group_size": 2, "gamma": 0.9, "discount_per": "turn", "ratio": "turn"},
}


@pytest.mark.parametrize(
    "settings",
    [pytest.param(its, id=name, marks=[pytest.mark.slow] * (name != "gigpo")) for name, its in SETTINGS.items()],
)
def test_credit_and_pooled_ratios_are_the_same_on_a_mesh(settings):
    """Groups, turns and anchors look across rows that lie on other devices; so does the whole update."""
    network = BagNetwork()
    host = make_batch(ROWS)
    host = dataclasses.replace(host, anchor_ids=np.where(host.action_mask, host.turn_ids % 2, -1).astype(np.int32))
    algorithm = AlgorithmSection(minibatches=1, **settings)
    results = []
    for shape in ((1, 1, 1), (8, 1, 1)):
        mesh = make_mesh(*shape, devices=jax.devices()[: math.prod(shape)])
        optimizer = make_optimizer(
            OptimizerSection(eps=0.1),
            network,
            learning_rate=0.1,
            critic_learning_rate=0.1,
            total_steps=9,
            warmup_steps=0,
        )
        learner = Learner(network, mesh, optimizers={"policy": optimizer}, algorithm=algorithm, temperature=1.0)
        params = jax.tree.map(np.asarray, network.init(jax.random.key(0)))
        state = restart(jax.device_put(params, params_shardings(network, mesh)), network, optimizer, mesh)
        batch = put_batch(host, micro_batch_rows=8, max_rows=16, mesh=mesh)
        targets, _ = learner.targets(batch, learner.score(state.params, batch))
        order = micro_batch_order(np.random.default_rng(0), used=2, count=2, epochs=1)
        advantages = np.asarray(targets.advantages)
        after, metrics = learner.update("policy", state, batch, targets, order)
        results.append((advantages, float(metrics.gradient_norm), jax.tree.leaves(after.params)))
    (one, norm, params), (other, other_norm, other_params) = results
    assert np.abs(one).max() > 0.1 and norm > 1e-3
    np.testing.assert_allclose(other, one, atol=1e-5)
    assert other_norm == pytest.approx(norm, rel=1e-4)
    for a, b in zip(params, other_params, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-5)
