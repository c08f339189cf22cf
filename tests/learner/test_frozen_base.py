"""Updates over a frozen, quantised base: what moves, what has moments, and that a mesh changes nothing."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from bag_network import make_batch

from jaxmtrl.batch import column_fields
from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.config.sections import AlgorithmSection, ModelSection, OptimizerSection
from jaxmtrl.learner.device import micro_batch_order, put_batch
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.state import abstract_base, init_state
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh

SECTION = ModelSection(layers=2, embed=32, heads=4, kv_heads=2, head_dim=8, mlp=64, remat="none")
LORA = LoraSection(rank=4, frozen="nf4", dropout=0.5, targets=("query", "value", "down"))
NETWORK = Network.from_section(SECTION, 64, "float32", LORA)
OPTIMIZER = make_optimizer(
    OptimizerSection(eps=0.1), NETWORK, learning_rate=1.0, critic_learning_rate=0.0, total_steps=9, warmup_steps=0
)
ROWS = [[12, 9], [17], [7, 7, 7], [24], [10], [14, 8], [9], [13]]


@functools.cache  # it keeps what it has compiled
def learner_on(shape: tuple[int, int, int]) -> Learner:
    mesh = make_mesh(*shape, devices=jax.devices()[: math.prod(shape)])
    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_base(NETWORK, mesh))
    return Learner(
        NETWORK,
        mesh,
        optimizers={"sft": OPTIMIZER},
        algorithm=AlgorithmSection(),
        temperature=1.0,
        base=jax.jit(NETWORK.init_base, out_shardings=placed)(jax.random.key(0)),
    )


def imitate(shape: tuple[int, int, int], seed: int | None, epochs: int = 1, *, step: int = 0, copies: int = 1):
    """SFT steps on a mesh; the state before and after, and the base, which stays as it was."""
    mesh = make_mesh(*shape, devices=jax.devices()[: math.prod(shape)])
    learner = learner_on(shape)
    learner.dropout_seed = seed
    base = learner._base
    state = init_state(NETWORK, OPTIMIZER, mesh, jax.random.key(0))
    state = dataclasses.replace(state, step=jax.device_put(np.int32(step), state.step.sharding))
    before = jax.tree.map(np.array, (state, base))
    host = make_batch(ROWS)
    copied = {name: np.concatenate([getattr(host, name)] * copies) for name in column_fields(host)}
    host = dataclasses.replace(host, **copied)
    batch = put_batch(host, micro_batch_rows=8, max_rows=8 * copies, mesh=mesh)
    used = int(batch.used)
    order = micro_batch_order(np.random.default_rng(0), used=used, count=used, epochs=epochs)
    after, metrics = learner.update("sft", state, batch, None, order)
    assert int(metrics.steps) == epochs
    jax.tree.map(np.testing.assert_array_equal, base, before[1])
    return before[0], after, base


@pytest.fixture(scope="module")
def alone():
    return imitate((1, 1, 1), seed=None, epochs=2)


def test_only_adapters_learn_and_only_they_have_moments(alone):
    before, after, _ = alone
    moments = after.opt_state["policy"][0].mu
    assert jax.tree.map(np.shape, moments) == jax.tree.map(np.shape, NETWORK.shapes()["policy"])
    for was, is_ in zip(jax.tree.leaves(before.params["policy"]), jax.tree.leaves(after.params["policy"]), strict=True):
        assert np.abs(is_ - was).max() > 1e-4


def test_a_mesh_does_not_change_them(alone):
    """The base is split over it, the int8 values like their scales."""
    _, wanted, _ = alone
    _, got, base = imitate((2, 2, 2), seed=None, epochs=2)
    for one, other in zip(jax.tree.leaves(got.params), jax.tree.leaves(wanted.params), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    query = base["base"]["layers"]["attention"]["query"]
    assert query.values.dtype == np.uint8  # two four-bit values
    assert query.values.addressable_shards[0].data.size * 4 == query.values.size
    assert query.scales.addressable_shards[0].data.size * 2 == query.scales.size  # one tile: nothing for fsdp to split


@pytest.mark.slow
def test_dropout_follows_its_seed_the_step_and_the_micro_batch():
    def moved(seed: int | None, **changes) -> np.ndarray:
        before, after, _ = imitate((1, 1, 1), seed, **changes)
        name = "down_lora_b"
        return (
            np.asarray(after.params["policy"]["layers"]["mlp"][name]) - before.params["policy"]["layers"]["mlp"][name]
        )

    one = moved(7)
    np.testing.assert_array_equal(one, moved(7))
    for other in (moved(8), moved(None), moved(7, step=1)):
        assert np.abs(one - other).max() > 1e-4
    # The same rows twice, dealt to two micro-batches: draws of their own give another mean than the same draws twice.
    assert np.abs(one - moved(7, copies=2)).max() > 1e-4
    assert np.abs(moved(None) - moved(None, copies=2)).max() < 1e-5


def test_validation_never_drops():
    def loss(seed: int | None) -> float:
        mesh = make_mesh(1, 1, 1, jax.devices()[:1])
        learner = Learner(
            NETWORK,
            mesh,
            optimizers={},
            algorithm=AlgorithmSection(),
            temperature=1.0,
            base=NETWORK.init_base(jax.random.key(0)),
            dropout_seed=seed,
        )
        loud = jax.tree.map(lambda leaf: leaf + 0.1, NETWORK.init(jax.random.key(0)))
        return float(learner.sft_loss(loud, put_batch(make_batch(ROWS), micro_batch_rows=8, max_rows=8, mesh=mesh)))

    assert loss(3) == loss(None)


def test_policy_updates_never_drop():
    """The old log-probs are taken without dropout, so a ratio of 1 at the first step needs none in the update."""
    mesh = make_mesh(1, 1, 1, jax.devices()[:1])
    algorithm = AlgorithmSection(minibatches=1)
    optimizer = make_optimizer(
        OptimizerSection(), NETWORK, learning_rate=0.1, critic_learning_rate=0.1, total_steps=9, warmup_steps=0
    )
    learner = Learner(
        NETWORK,
        mesh,
        optimizers={"policy": optimizer},
        algorithm=algorithm,
        temperature=1.0,
        base=NETWORK.init_base(jax.random.key(0)),
        dropout_seed=3,
    )
    state = init_state(NETWORK, optimizer, mesh, jax.random.key(0))
    loud = jax.tree.map(lambda leaf: jax.device_put(leaf + 0.1, leaf.sharding), state.params)
    state = dataclasses.replace(state, params=loud)
    batch = put_batch(make_batch(ROWS), micro_batch_rows=8, max_rows=8, mesh=mesh)
    targets, _ = learner.targets(batch, learner.score(state.params, batch))
    order = micro_batch_order(np.random.default_rng(0), used=1, count=1, epochs=1)
    _, metrics = learner.update("policy", state, batch, targets, order)
    assert float(metrics.parts.ratio) == pytest.approx(1.0, abs=1e-5) and float(metrics.parts.kl_old) < 1e-9
