from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bag_network import BagNetwork, make_batch

from jaxmtrl.batch import TokenBatch, column_fields
from jaxmtrl.config.sections import AlgorithmSection, OptimizerSection
from jaxmtrl.learner.device import DeviceBatch, micro_batch_order, put_batch
from jaxmtrl.learner.objective import Objective
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner, named
from jaxmtrl.learner.state import TrainState, restart
from jaxmtrl.parallel.mesh import make_mesh

# Every term of the loss is on, so that each of them is tested.
ALGORITHM = AlgorithmSection(
    name="ppo",
    loss_mean="sequence_token_mean",
    entropy_coef=0.1,
    kl_coef=0.1,
    kl_place="loss",
    minibatches=2,
    gamma=0.9,
)
ROWS = [[12, 9], [17], [7, 7, 7], [24], [10], [14, 8], [9], [13]]
MICRO_BATCHES, MICRO_ROWS, LENGTH = 4, 8, 24
KINDS = ("sft", "critic", "policy")


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(1, 1, 1, devices=jax.devices()[:1])


@pytest.fixture(scope="module")
def optimizer():
    # Without Adam's normalisation in the way a wrong gradient scale shows: with a large epsilon a step is linear in it.
    section = OptimizerSection(eps=1.0, weight_decay=0.1, gradient_clip=1e9)
    return make_optimizer(
        section, BagNetwork(), learning_rate=0.5, critic_learning_rate=0.5, total_steps=9, warmup_steps=0
    )


@pytest.fixture(scope="module")
def learner(mesh, optimizer):
    optimizers = dict.fromkeys(KINDS, optimizer)
    return Learner(BagNetwork(), mesh, optimizers=optimizers, algorithm=ALGORITHM, temperature=0.8)


@pytest.fixture
def state(mesh, optimizer) -> TrainState:
    params = jax.device_put(BagNetwork().init(jax.random.key(0)), jax.devices()[0])
    shardings = jax.tree.map(lambda _: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()), params)
    return restart(jax.device_put(params, shardings), BagNetwork(), optimizer, mesh)


def cut(batch: TokenBatch, pieces: int, mesh) -> DeviceBatch:
    """Eight rows as 1, 2 or 4 used micro-batches of one and the same compiled shape."""
    per_piece = len(batch.tokens) // pieces
    blank = {"segment_ids": -1, "turn_ids": -1}

    def spread(name: str, array: np.ndarray) -> np.ndarray:
        out = np.full((MICRO_BATCHES, MICRO_ROWS, LENGTH), blank.get(name, 0), array.dtype)
        out[:pieces, :per_piece] = array.reshape(pieces, per_piece, LENGTH)
        return out

    fields = {name: getattr(batch, name) for name in column_fields(batch)}
    whole = put_batch(batch, micro_batch_rows=MICRO_ROWS, max_rows=MICRO_BATCHES * MICRO_ROWS, mesh=mesh)
    rows = {name: jax.device_put(spread(name, x), whole.rows.tokens.sharding) for name, x in fields.items()}
    used = jax.device_put(np.int32(pieces), whole.used.sharding)
    return DeviceBatch(rows=dataclasses.replace(whole.rows, **rows), used=used)


def learn(learner: Learner, kind, state, batch: DeviceBatch, order=None):
    """One update against a reference that differs from the policy; returns (state, metrics)."""
    targets = None
    if kind != "sft":
        scores = learner.score(state.params, batch)
        ref = jnp.where(batch.rows.action_mask, scores.logprobs - 0.3, 0.0)
        targets, _ = learner.targets(batch, scores, jax.device_put(ref, scores.logprobs.sharding))
    if order is None:
        order = np.arange(MICRO_BATCHES, dtype=np.int32)[None]
    return learner.update(kind, state, batch, targets, order)


def host(tree):
    return jax.tree.map(np.asarray, jax.device_get(tree))


def assert_same(one, other, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if tolerance:
            np.testing.assert_allclose(a, b, **tolerance)
        else:
            np.testing.assert_array_equal(a, b)


def test_five_tokens_in_two_micro_batches_have_the_mean_of_five():
    # Losses [1, 1, 1, 1] and [5]: 9 / 5 = 1.8. The mean of the two means would be 3, their sum 6.
    mask = np.asarray([[[1, 1, 1, 1]], [[1, 0, 0, 0]]], bool)
    rows = make_batch([[4], [4]], length=4)
    rows = jax.tree.map(lambda x: x.reshape(2, 1, 4) if x.ndim == 2 else x, rows)
    objective = Objective(kind="policy", algorithm=AlgorithmSection(), temperature=1.0)
    weights = objective.weights(dataclasses.replace(rows, action_mask=mask), None, jnp.ones(2, bool))
    losses = np.asarray([[[1, 1, 1, 1]], [[5, 0, 0, 0]]])
    np.testing.assert_allclose([jnp.sum(weights.policy * losses), jnp.sum(weights.token * losses)], 1.8, rtol=1e-6)


@pytest.mark.parametrize(("kind", "splits"), [("sft", (1, 2, 4)), ("critic", (2, 4)), ("policy", (2, 4))])
def test_the_split_into_micro_batches_changes_nothing(learner, mesh, state, kind, splits):
    # The same eight rows in so many micro-batches. sft takes them in one step, the others rows 0-3 and then 4-7, as
    # 1 + 1 or 2 + 2 micro-batches. In row 5 the environment failed before any action.
    batch = make_batch(ROWS)
    batch = dataclasses.replace(batch, action_mask=batch.action_mask & (np.arange(8) != 5)[:, None])
    results = [host(learn(learner, kind, jax.tree.map(jnp.copy, state), cut(batch, pieces, mesh))) for pieces in splits]
    assert results[0][1].steps == (1 if kind == "sft" else 2)
    for other in results[1:]:
        assert_same(results[0], other, atol=2e-6, rtol=1e-6)


def test_an_update_equals_a_slow_loop(learner, optimizer, mesh, state):
    # Two epochs of two minibatches over four micro-batches in the given order; each step by jax.grad of the whole
    # minibatch at once, rows side by side.
    device = cut(make_batch(ROWS), 4, mesh)
    order = np.asarray([[2, 0, 3, 1], [1, 2, 0, 3]], np.int32)
    scores = learner.score(state.params, device)
    ref = jax.device_put(jnp.where(device.rows.action_mask, scores.logprobs - 0.3, 0.0), scores.logprobs.sharding)
    targets, _ = learner.targets(device, scores, ref)
    objective = Objective(kind="policy", algorithm=ALGORITHM, temperature=0.8)

    @jax.jit
    def step(params, opt_state, pair):
        rows = jax.tree.map(lambda x: x[pair].reshape(-1, LENGTH) if x.ndim == 3 else x, device.rows)
        credit = jax.tree.map(lambda x: x[pair].reshape(-1, LENGTH), targets)
        stacked = jax.tree.map(lambda x: x[None] if x.ndim == 2 else x, rows)
        weights = jax.tree.map(lambda x: x[0], objective.weights(stacked, None, jnp.ones(1, bool)))
        grads = jax.grad(lambda p: objective.loss(BagNetwork(), p, rows, credit, weights)[0])(params)
        return optimizer.step(grads, opt_state, params, norm=optax.tree.norm(grads))

    params, opt_state = state.params, state.opt_state
    for pair in ([2, 0], [3, 1], [1, 2], [0, 3]):
        params, opt_state = step(params, opt_state, np.asarray(pair))
    expected = host((params, opt_state))
    after, metrics = learner.update("policy", state, device, targets, order)
    assert metrics.steps == 4 and int(after.step) == 4
    assert_same((after.params, after.opt_state), expected, atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_without_action_tokens_changes_nothing(learner, mesh, state, kind):
    batch = make_batch(ROWS)
    device = cut(dataclasses.replace(batch, action_mask=np.zeros_like(batch.action_mask)), 4, mesh)
    before = host(state)
    after, metrics = learn(learner, kind, state, device)
    assert_same(before, after)
    assert metrics.steps == 0 and metrics.nonfinite == 0 and metrics.bad_micro_batch == -1
    assert named(metrics, kind, ALGORITHM) == {}


def test_critic_warm_up_leaves_the_policy_bit_equal(learner, mesh, state):
    before = host(state)
    after, metrics = learn(learner, "critic", state, cut(make_batch(ROWS), 4, mesh))
    assert_same(before.params["policy"], after.params["policy"])
    assert_same(before.opt_state["policy"], after.opt_state["policy"])
    assert (before.params["critic"]["weight"] != np.asarray(after.params["critic"]["weight"])).all()
    assert set(named(metrics, "critic", ALGORITHM)) >= {"loss/value", "update/gradient_norm"}


def test_imitation_leaves_the_critic_bit_equal_and_lowers_its_loss(learner, mesh, state):
    before, device = host(state), cut(make_batch(ROWS), 4, mesh)
    losses = [float(learner.sft_loss(state.params, device))]
    for _ in range(3):
        state, metrics = learn(learner, "sft", state, device)
        np.testing.assert_allclose(metrics.parts.policy_loss, losses[-1], rtol=1e-5)  # the same number, by both ways
        losses.append(float(learner.sft_loss(state.params, device)))
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert_same(before.params["critic"], state.params["critic"])


def test_the_first_step_clips_nothing_and_its_ratio_is_one(learner, mesh, state):
    # The old log-probs are the learner's own. One used micro-batch: one step.
    _, metrics = learn(learner, "policy", state, cut(make_batch(ROWS), 1, mesh))
    numbers = named(metrics, "policy", ALGORITHM)
    assert numbers["update/steps"] == 1 and numbers["policy/first_clip_fraction"] == 0.0
    np.testing.assert_allclose(numbers["policy/ratio_mean"], 1.0, atol=1e-5)
    np.testing.assert_allclose(numbers["kl/old_nats"], 0.0, atol=1e-6)


def test_a_step_that_is_not_finite_is_left_out_and_its_micro_batch_named(learner, mesh, state):
    # The advantage of one token in micro-batch 2 is NaN; the order makes it part of the first minibatch. The second
    # minibatch (0 and 1) is sound and moves the parameters exactly as it would have alone.
    device = cut(make_batch(ROWS), 4, mesh)
    scores = learner.score(state.params, device)
    ref = jax.device_put(scores.logprobs, scores.logprobs.sharding)
    targets, _ = learner.targets(device, scores, ref)
    spoilt = np.array(targets.advantages)
    row, column = np.argwhere(np.asarray(device.rows.action_mask)[2])[0]
    spoilt[2, row, column] = np.nan
    spoilt = dataclasses.replace(targets, advantages=jax.device_put(spoilt, scores.logprobs.sharding))

    after, metrics = learner.update("policy", state, device, spoilt, np.asarray([[3, 2, 0, 1]], np.int32))
    assert metrics.nonfinite == 1 and metrics.bad_micro_batch == 2 and metrics.steps == 1
    assert int(after.step) == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(host(after)))
    assert all(np.isfinite(number) for number in named(metrics, "policy", ALGORITHM).values())


def test_other_numbers_compile_nothing_and_other_shapes_are_not_run(learner, mesh, state):
    for seed, rows in ((1, ROWS), (2, ROWS[:4])):
        batch = make_batch(rows, seed=seed)
        device = put_batch(batch, micro_batch_rows=MICRO_ROWS, max_rows=MICRO_BATCHES * MICRO_ROWS, mesh=mesh)
        order = micro_batch_order(np.random.default_rng(seed), used=int(device.used), count=MICRO_BATCHES, epochs=1)
        state, _ = learn(learner, "policy", state, device, order)
        if seed == 1:
            before = learner.compilations.copy()
    assert learner.compilations == before


def test_named_target_metrics_leave_out_what_an_algorithm_has_not(learner, mesh, state):
    device = cut(make_batch(ROWS), 4, mesh)
    scores = learner.score(state.params, device)
    ref = jax.device_put(scores.logprobs, scores.logprobs.sharding)
    _, metrics = learner.targets(device, scores, ref)
    numbers = named(metrics, "policy", ALGORITHM)
    assert numbers["kl/reference_nats"] == 0.0 and "value/explained_variance" in numbers
    assert "value/explained_variance" not in named(metrics, "policy", AlgorithmSection(name="rloo", group_size=2))
