"""Elastic weight consolidation: importance by squared gradients, a pull back to where the weights were."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bag_network import BagNetwork, make_batch

from jaxmtrl.config.sections import AlgorithmSection, OptimizerSection
from jaxmtrl.learner.device import put_batch, take_micro_batch
from jaxmtrl.learner.elastic import Anchor, consolidated, fisher_diagonal, pull
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner, named
from jaxmtrl.learner.score import score
from jaxmtrl.learner.state import restart
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.parallel.sharding import replicated

ROWS = [[12, 9], [17], [7, 7, 7], [24], [10]]
TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(1, 1, 1, devices=jax.devices()[:1])


@pytest.fixture(scope="module")
def params(mesh):
    return jax.device_put(BagNetwork().init(jax.random.key(0)), replicated(mesh))


@pytest.fixture(scope="module")
def batch(mesh):
    return put_batch(make_batch(ROWS), micro_batch_rows=2, max_rows=8, mesh=mesh)


def test_the_pull_is_the_gradient_of_the_penalty(params):
    policy = params["policy"]
    leaves, tree = jax.tree.flatten(policy)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    fisher = tree.unflatten([jax.random.uniform(key, leaf.shape) for key, leaf in zip(keys, leaves)])
    anchor = Anchor(params=jax.tree.map(lambda leaf: leaf - 0.3, policy), fisher=fisher)
    grads, penalty = pull(anchor, policy, 5.0)

    def by_hand(policy):
        parts = zip(*(jax.tree.leaves(tree) for tree in (fisher, policy, anchor.params)), strict=True)
        return 5.0 / 2 * sum(jnp.sum(f * (now - then) ** 2) for f, now, then in parts)

    np.testing.assert_allclose(penalty, by_hand(policy), rtol=1e-5)
    np.testing.assert_allclose(penalty, 5 / 2 * 0.09 * sum(jnp.sum(f) for f in jax.tree.leaves(fisher)), rtol=1e-4)
    for one, other in zip(jax.tree.leaves(grads), jax.tree.leaves(jax.grad(by_hand)(policy)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_importance_is_the_squared_gradient_of_what_was_done_a_token(params, batch):
    network = BagNetwork()
    fisher = fisher_diagonal(network, params, batch, temperature=TEMPERATURE)
    used, tokens = int(batch.used), int(np.sum(batch.rows.action_mask))
    assert used == 3 < batch.rows.tokens.shape[0] and tokens > 10

    def log_likelihood(policy, rows):
        scores = score(network, {**params, "policy": policy}, rows, temperature=TEMPERATURE)
        return jnp.sum(jnp.where(rows.action_mask, scores.logprobs, 0.0))

    total = jax.tree.map(np.zeros_like, jax.device_get(params["policy"]))
    for index in range(used):
        grads = jax.grad(log_likelihood)(params["policy"], take_micro_batch(batch.rows, jnp.int32(index)))
        total = jax.tree.map(lambda sum_, grad: sum_ + np.asarray(grad) ** 2, total, grads)
    assert max(leaf.max() for leaf in jax.tree.leaves(total)) > 0
    for one, other in zip(jax.tree.leaves(fisher), jax.tree.leaves(total), strict=True):
        np.testing.assert_allclose(one, other / tokens, rtol=1e-4, atol=1e-7)


def test_a_square_of_a_sum_is_the_sum_of_squares_where_the_policy_itself_has_sampled():
    """What lets packed episodes stay together: Fisher of a softmax over three choices is diag(p) - p pT."""
    logits = jnp.array([0.3, -0.5, 1.1])
    shares = np.asarray(jax.nn.softmax(logits))
    draws = np.random.default_rng(0).choice(3, p=shares, size=(20_000, 8))
    scores = np.eye(3)[draws] - shares  # gradient of each draw's log-probability
    squares = np.mean(np.sum(scores, axis=1) ** 2, axis=0) / 8
    np.testing.assert_allclose(squares, shares * (1 - shares), rtol=0.03)


def test_importance_of_levels_adds_up_with_a_decay_and_holds_the_last_weights():
    first = consolidated(None, {"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([5.0, 5.0])}, decay=0.5)
    second = consolidated(first, {"w": jnp.array([1.0, 0.0])}, {"w": jnp.array([7.0, 8.0])}, decay=0.5)
    np.testing.assert_allclose(second.fisher["w"], [1.5, 1.0])
    np.testing.assert_allclose(second.params["w"], [7.0, 8.0])


@pytest.mark.parametrize("coef", [0.0, 1e6])
def test_an_update_holds_what_counts_by_its_weight(mesh, params, batch, coef):
    algorithm = AlgorithmSection(name="rloo", group_size=2, minibatches=1, ewc_coef=coef)
    network = BagNetwork()
    section = OptimizerSection(eps=1.0, weight_decay=0.0, gradient_clip=1e9)
    rates = {"learning_rate": 1e-3, "critic_learning_rate": 1e-3, "total_steps": 9, "warmup_steps": 0}
    optimizer = make_optimizer(section, network, **rates)
    learner = Learner(network, mesh, optimizers={"policy": optimizer}, algorithm=algorithm, temperature=TEMPERATURE)
    targets, _ = learner.targets(batch, learner.score(params, batch))
    order = np.arange(batch.rows.tokens.shape[0], dtype=np.int32)[None]
    fisher = jax.tree.map(jnp.ones_like, learner.fisher(params, batch))
    away = jax.tree.map(lambda leaf: leaf + 0.1, params["policy"])
    anchor = jax.device_put(consolidated(None, fisher, away, decay=1.0), replicated(mesh))

    def learnt(anchor):
        state = restart(jax.tree.map(jnp.copy, params), network, optimizer, mesh)
        return learner.update("policy", state, batch, targets, order, None, anchor)

    free, _ = learnt(None)
    held, metrics = learnt(anchor)
    values = named(metrics, "policy", dataclasses.replace(algorithm, ewc_coef=max(coef, 1.0)))
    same = [
        np.array_equal(one, other)
        for one, other in zip(jax.tree.leaves(free.params), jax.tree.leaves(held.params), strict=True)
    ]
    if coef == 0:
        assert all(same) and values["loss/elastic"] == 0
    else:
        numbers = sum(leaf.size for leaf in jax.tree.leaves(away))
        assert values["loss/elastic"] == pytest.approx(1e6 / 2 * 0.01 * numbers, rel=1e-3)
        for before, now in zip(jax.tree.leaves(params["policy"]), jax.tree.leaves(held.params["policy"]), strict=True):
            assert np.all(np.asarray(now) > np.asarray(before))  # every weight goes towards the anchor
