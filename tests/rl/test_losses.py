"""Losses per token: worked numbers, independence of how the batch is cut, and silence of what is masked out."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmtrl.rl import losses

loss_weights = jax.jit(losses.loss_weights, static_argnames=["num_episodes", "mean"])
CLIP = {"clip_low": 0.2, "clip_high": 0.2}
ONE = np.ones((1, 1), bool)


def cell(x):
    return jnp.array([[x]], jnp.float32)


@functools.partial(jax.jit, static_argnames=["clip_low", "clip_high", "dual_clip"])
@jax.value_and_grad
def one_policy_loss(logprob, advantage, **settings):
    return losses.clipped_policy_loss(logprob, cell(-1.0), advantage, ONE, **settings)[0, 0]


def policy_loss(ratio, advantage, **settings):
    """Loss and its gradient with respect to the log-prob, of one token with the given ratio."""

    settings = {**CLIP, "dual_clip": 0.0, **settings}
    value, gradient = one_policy_loss(cell(-1.0 + np.log(ratio)), cell(advantage), **settings)
    return float(value), float(gradient[0, 0])


# --- ratio and clip --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ratio, advantage, loss, gradient",
    [
        (1.0, 2.0, -2.0, -2.0),  # at the old policy: the plain policy gradient
        (1.1, 2.0, -2.2, -2.2),  # inside the range
        (1.5, 2.0, -2.4, 0.0),  # good token, already likelier: 1.2 * 2 and no more push
        (1.5, -2.0, 3.0, 3.0),  # bad token, likelier: pushed back in full
        (0.5, -2.0, 1.6, 0.0),  # bad token, already rarer: -(.8 * -2), no more push
        (0.5, 2.0, -1.0, -1.0),  # good token, rarer: pulled back in full
    ],
)
def test_clipped_loss_in_all_six_places(ratio, advantage, loss, gradient):
    assert policy_loss(ratio, advantage) == pytest.approx((loss, gradient), abs=1e-5)


def test_bounds_below_and_above_are_separate():
    assert policy_loss(1.25, 1.0, clip_high=0.28)[0] == pytest.approx(-1.25, abs=1e-5)
    assert policy_loss(1.4, 1.0, clip_high=0.28)[0] == pytest.approx(-1.28, abs=1e-5)
    assert policy_loss(0.5, -1.0, clip_low=0.4)[0] == pytest.approx(0.6, abs=1e-5)


def test_a_range_of_nothing_still_leaves_the_policy_gradient_at_ratio_one():
    assert policy_loss(1.0, 1.0, clip_low=0.0, clip_high=0.0) == pytest.approx((-1.0, -1.0))


def test_dual_clip_bounds_the_loss_of_bad_tokens_only():
    # A = -2 at ratio 5: loss 10, with c = 3 at most 6 and without gradient; A > 0 is as before.
    assert policy_loss(5.0, -2.0) == pytest.approx((10.0, 10.0), rel=1e-5)
    assert policy_loss(5.0, -2.0, dual_clip=3.0) == pytest.approx((6.0, 0.0), rel=1e-5)
    assert policy_loss(2.0, -2.0, dual_clip=3.0) == pytest.approx((4.0, 4.0), rel=1e-5)
    assert policy_loss(0.5, 2.0, dual_clip=3.0) == pytest.approx((-1.0, -1.0), rel=1e-5)


def test_ratio_is_clamped_and_masked():
    mask = np.array([[True, True, True, False]])
    ratio = losses.policy_ratio(jnp.array([[-1.0, -0.1, -90.0, jnp.nan]]), jnp.array([[-1.0, -90.0, -0.1, -1.0]]), mask)
    np.testing.assert_allclose(ratio, [[1.0, np.exp(20.0), np.exp(-20.0), 0.0]], rtol=1e-5)


def test_temperature_forgotten_in_the_ratio():
    # Logits [1, 0], token 0: log-prob -.126928 at temperature .5, -.313262 at 1. The ratio of a fresh policy is 1 at
    # the sampling temperature, and .829997 if the learner forgets it.
    ratio = losses.policy_ratio(cell(-0.313262), cell(-0.126928), ONE)
    assert float(ratio[0, 0]) == pytest.approx(0.829997, abs=1e-5)


def test_clip_fraction_counts_tokens_whose_gradient_the_clip_removed():
    ratios = np.array([[1.5, 1.5, 0.5, 0.5, 1.0, 1.5]])
    advantages = np.array([[1.0, -1.0, 1.0, -1.0, 1.0, 1.0]])
    mask = np.array([[1, 1, 1, 1, 1, 0]], bool)
    clipped = losses.clip_fraction(np.log(ratios), np.zeros((1, 6)), advantages, mask, **CLIP)
    np.testing.assert_array_equal(clipped, [[1, 0, 0, 1, 0, 0]])
    fresh = losses.clip_fraction(np.full((1, 6), -3.3), np.full((1, 6), -3.3), advantages, mask, **CLIP)
    assert float(fresh.sum()) == 0.0  # exactly


# --- critic ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, old, target, value_clip, loss, gradient",
    [
        (1.0, 0.0, 2.0, 0.0, 0.5, -1.0),  # no clip: (1 - 2)^2 / 2
        (1.0, 0.0, 2.0, 0.5, 1.125, 0.0),  # moved past the range towards the target: (.5 - 2)^2 / 2, no more push
        (1.0, 0.0, -1.0, 0.5, 2.0, 2.0),  # moved past it away from the target: (1 + 1)^2 / 2, pulled back
        (0.3, 0.0, 2.0, 0.5, 1.445, -1.7),  # inside the range both agree, and the gradient is whole
    ],
)
def test_value_loss_golden(value, old, target, value_clip, loss, gradient):
    def one(v):
        return losses.clipped_value_loss(v, cell(old), cell(target), ONE, value_clip=value_clip)[0, 0]

    got, slope = jax.value_and_grad(one)(cell(value))
    assert (float(got), float(slope[0, 0])) == pytest.approx((loss, gradient), abs=1e-5)


# --- KL --------------------------------------------------------------------------------------------------------------


def test_kl_golden_values_and_signs():
    # Two tokens, reference [.5, .5], logits [1, 0], token 0: lp -.313262, ref -.693147, d = .379885.
    # k3 = exp(-d) - 1 + d = .063825 with slope 1 - exp(-d) = .316060; k1 = d; k2 = d^2 / 2 = .072156 with slope d.
    logprob = jax.nn.log_softmax(jnp.array([1.0, 0.0]))[0]
    expected = {"k1": (0.379885, 1.0), "k2": (0.072156, 0.379885), "k3": (0.063825, 0.316060)}
    for kind, (value, slope) in expected.items():
        estimate = jax.value_and_grad(
            lambda lp, kind=kind: losses.kl_estimate(lp, cell(-0.693147), ONE, kind=kind)[0, 0]
        )
        got, gradient = estimate(cell(logprob))
        assert (float(got), float(gradient[0, 0])) == pytest.approx((value, slope), abs=1e-5), kind


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_kl_is_exactly_zero_where_policy_and_reference_agree(kind):
    value, gradient = jax.value_and_grad(lambda lp: losses.kl_estimate(lp, cell(-0.7), ONE, kind=kind)[0, 0])(
        cell(-0.7)
    )
    assert value == 0.0
    assert gradient[0, 0] == 0.0


def test_k1_and_k3_average_to_the_kl():
    policy, reference = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.3, 0.4])
    exact = np.sum(policy * np.log(policy / reference))
    for kind in ("k1", "k3"):
        each = losses.kl_estimate(np.log(policy)[None], np.log(reference)[None], np.ones((1, 3), bool), kind=kind)
        assert float(np.sum(policy * np.asarray(each[0]))) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_a_kl_loss_has_the_gradient_of_the_kl_on_average(kind):
    # The mean over tokens of the loss's slope equals that of KL(policy || reference), both by the logits.
    logits, reference = jnp.array([0.5, -0.2, 0.1]), jnp.log(jnp.array([0.3, 0.3, 0.4]))
    policy = jax.nn.softmax(logits)  # the distribution the tokens come from, held fixed
    mask = np.ones((1, 3), bool)

    def exact(z):
        return jnp.sum(jax.nn.softmax(z) * (jax.nn.log_softmax(z) - reference))

    def average(estimate, z):
        return jnp.sum(policy * estimate(jax.nn.log_softmax(z)[None], reference[None], mask, kind=kind)[0])

    @jax.jit
    def slopes(z):
        estimated = (jax.grad(functools.partial(average, f))(z) for f in (losses.kl_loss, losses.kl_estimate))
        return jax.grad(exact)(z), *estimated

    expected, of_loss, of_estimate = slopes(logits)
    np.testing.assert_allclose(of_loss, expected, atol=1e-6)
    # The estimates themselves have it for k2 only; k1's slope is 0.
    assert np.allclose(of_estimate, expected, atol=1e-3) == (kind == "k2")
    assert np.allclose(of_estimate, 0.0, atol=1e-6) == (kind == "k1")


@pytest.mark.parametrize("kind, value", [("k1", 0.379885), ("k2", 0.072156), ("k3", 0.063825)])
def test_a_kl_loss_of_any_kind_pulls_towards_the_reference(kind, value):
    # As above; d = .379885 is the slope by the log-prob. By the logit of token 0 it is d (1 - p) = .379885 * .268941 =
    # .102167, so that descent takes from the token that has too much; by the logit of token 1 it is the negative.
    def loss(logits):
        return losses.kl_loss(cell(jax.nn.log_softmax(logits)[0]), cell(-0.693147), ONE, kind=kind)[0, 0]

    got, slope = jax.value_and_grad(loss)(jnp.array([1.0, 0.0]))
    assert float(got) == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(slope, [0.102167, -0.102167], atol=1e-5)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_a_kl_loss_is_nothing_where_policy_and_reference_agree(kind):
    value, slope = jax.value_and_grad(lambda lp: losses.kl_loss(lp, cell(-0.7), ONE, kind=kind)[0, 0])(cell(-0.7))
    assert value == 0.0
    assert slope[0, 0] == 0.0


def test_an_unknown_kl_is_refused():
    with pytest.raises(ValueError, match="k4"):
        losses.kl_estimate(cell(0), cell(0), ONE, kind="k4")  # pyright: ignore[reportArgumentType]


def test_kl_in_the_reward_is_taken_on_action_tokens_without_a_gradient():
    mask = np.array([[True, True, False]])
    rewards, logprobs = np.array([[0.0, 1.0, np.nan]]), jnp.array([[-1.0, -2.0, jnp.nan]])

    def penalised(lp):
        return losses.kl_penalised_rewards(rewards, lp, np.array([[-1.5, -1.0, 0.0]]), mask, kl_coef=0.1)

    # d = .5 and -1: a penalty of .05 and a bonus of .1.
    np.testing.assert_allclose(penalised(logprobs), [[-0.05, 1.1, 0.0]], atol=1e-6)
    np.testing.assert_array_equal(jax.grad(lambda lp: penalised(lp).sum())(logprobs), np.zeros((1, 3)))


@pytest.mark.parametrize(
    "kind, penalties", [("k1", [0.05, -0.1]), ("k2", [0.0125, 0.05]), ("k3", [0.0106531, 0.0718282])]
)
def test_kl_in_the_reward_of_any_kind_and_with_a_weight_that_changes(kind, penalties):
    # d = .5 and -1, weight .1: k2 = .125 and .5; k3 = exp(-.5) - .5 = .106531 and e - 2 = .718282.
    logprobs, reference = np.array([[-1.0, -2.0]]), np.array([[-1.5, -1.0]])
    mask = np.ones((1, 2), bool)

    @jax.jit
    def penalised(coefficient):
        return losses.kl_penalised_rewards(np.ones((1, 2)), logprobs, reference, mask, kl_coef=coefficient, kind=kind)

    np.testing.assert_allclose(penalised(jnp.float32(0.1)), 1 - np.array([penalties]), atol=1e-6)
    np.testing.assert_allclose(penalised(jnp.float32(0.0)), [[1, 1]])


# --- what the loss is averaged over ----------------------------------------------------------------------------------

# Two episodes in row 0 (2 and 1 action tokens), one in row 1 (4 action tokens); episode 3 does not exist.
SEGMENTS = np.array([[0, 0, 0, 1, 1, -1], [2, 2, 2, 2, 2, 2]], np.int32)
MASK = np.array([[0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 1, 1]], bool)


@pytest.mark.parametrize(
    "mean, first, second, third",
    [
        ("token", 1 / 7, 1 / 7, 1 / 7),
        ("sequence_token_mean", 1 / 6, 1 / 3, 1 / 12),
        ("sequence_token_sum", 1 / 3, 1 / 3, 1 / 3),
        ("constant", 1 / 30, 1 / 30, 1 / 30),
    ],
)
def test_loss_weights_golden(mean, first, second, third):
    weights = loss_weights(MASK, SEGMENTS, num_episodes=4, mean=mean, constant=10)
    expected = np.where(MASK, np.array([first, second, third, 0])[np.maximum(SEGMENTS, 0)], 0)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    if mean in ("token", "sequence_token_mean"):
        assert float(weights.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("mean", ["token", "sequence_token_mean", "sequence_token_sum", "constant"])
def test_weights_of_nothing_are_zero(mean):
    weights = loss_weights(np.zeros_like(MASK), SEGMENTS, num_episodes=4, mean=mean)
    np.testing.assert_array_equal(weights, np.zeros(MASK.shape))


def test_an_unknown_mean_is_refused():
    with pytest.raises(ValueError, match="batch"):
        losses.loss_weights(MASK, SEGMENTS, num_episodes=4, mean="batch")  # pyright: ignore[reportArgumentType]


def test_token_mean_over_uneven_micro_batches():
    # Per-token losses 1 1 1 1 and 5: 9 / 5 = 1.8; the mean of means would be 3, their sum 6.
    per_token = np.array([[1.0, 1, 1, 1], [5, 0, 0, 0]])
    mask = per_token > 0
    segments = np.array([[0] * 4, [1] * 4], np.int32)
    weights = np.asarray(loss_weights(mask, segments, num_episodes=2, mean="token"))
    micro = [float(np.sum(weights[row] * per_token[row])) for row in range(2)]
    assert sum(micro) == pytest.approx(1.8)


def toy_loss(params, rows, batch, weights):
    """Policy, critic, KL and entropy terms of a linear model of [B, T, 3] features, over some rows of a batch."""
    features, tokens, old, advantages, old_values, returns, reference, mask = (array[rows] for array in batch)
    logits = features @ params["policy"]  # [b, T, 4]
    every = jax.nn.log_softmax(logits)
    logprobs = jnp.take_along_axis(every, tokens[..., None], axis=-1)[..., 0]
    values = features @ params["critic"]
    entropy = jnp.where(mask, -jnp.sum(jnp.exp(every) * every, axis=-1), 0.0)
    per_token = (
        losses.clipped_policy_loss(logprobs, old, advantages, mask, clip_low=0.2, clip_high=0.3, dual_clip=3.0)
        + 0.5 * losses.clipped_value_loss(values, old_values, returns, mask, value_clip=0.5)
        + 0.1 * losses.kl_estimate(logprobs, reference, mask, kind="k3")
        - 0.01 * entropy
    )
    return jnp.sum(weights[rows] * per_token)


STEP = jax.jit(jax.value_and_grad(toy_loss))


def toy_batch(mask, seed=0):
    random = np.random.default_rng(seed)
    shape = mask.shape
    normal = functools.partial(random.normal, size=shape)
    arrays = [
        random.normal(size=(*shape, 3)),
        random.integers(0, 4, shape),
        normal() - 1.5,
        normal(),
        normal(),
        normal(),
        normal() - 1.5,
    ]
    batch = tuple(a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays)
    params = {"policy": random.normal(size=(3, 4)), "critic": random.normal(size=3)}
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), params), (*batch, mask)


@pytest.mark.parametrize("mean", ["token", "sequence_token_mean", "sequence_token_sum", "constant"])
def test_loss_and_gradient_do_not_depend_on_the_micro_batches(mean):
    mask = np.random.default_rng(1).random((4, 8)) < [[0.9], [0.2], [0.5], [0.0]]
    segments = np.repeat(np.array([[0, 1], [2, 2], [3, 4], [5, 5]], np.int32), 4, axis=1)
    params, batch = toy_batch(mask)
    weights = loss_weights(mask, segments, num_episodes=6, mean=mean)
    whole = STEP(params, np.arange(4), batch, weights)
    for micro in (2, 1):
        parts = [STEP(params, np.arange(at, at + micro), batch, weights) for at in range(0, 4, micro)]
        added = jax.tree.map(lambda *pieces: sum(pieces), *parts)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), added, whole)


def test_a_row_without_action_tokens_is_as_if_it_were_not_there():
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0]], bool)
    segments = np.array([[0] * 4, [1] * 4], np.int32)
    params, batch = toy_batch(mask)
    weights = loss_weights(mask, segments, num_episodes=2, mean="sequence_token_mean")
    alone = loss_weights(mask[:1], segments[:1], num_episodes=2, mean="sequence_token_mean")
    # Everything in the dead row that a loss may read is NaN, the features aside: those belong to the model.
    dead = tuple(
        np.where(np.arange(2)[:, None] == 1, np.nan, a) if a.dtype == np.float32 and a.ndim == 2 else a for a in batch
    )
    with_dead, without = STEP(params, np.arange(2), dead, weights), STEP(params, np.arange(1), batch, alone)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), with_dead, without)


def test_a_batch_without_action_tokens_has_loss_zero_and_gradient_zero():
    mask = np.zeros((2, 4), bool)
    params, batch = toy_batch(mask)
    weights = loss_weights(mask, np.zeros((2, 4), np.int32), num_episodes=1, mean="token")
    loss, gradients = STEP(params, np.arange(2), batch, weights)
    assert float(loss) == 0.0
    jax.tree.map(lambda g: np.testing.assert_array_equal(g, np.zeros(g.shape)), gradients)


def with_slopes(function, seed, *arrays):
    values, pull = jax.vjp(function, *arrays)
    return values, pull(seed)


JUNK = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, z, mask: losses.policy_ratio(x, y, mask),
        lambda x, y, z, mask: losses.clipped_policy_loss(x, y, z, mask, **CLIP, dual_clip=3.0),
        lambda x, y, z, mask: losses.clipped_value_loss(x, y, z, mask, value_clip=0.5),
        lambda x, y, z, mask: losses.kl_estimate(x, y, mask, kind="k1"),
        lambda x, y, z, mask: losses.kl_estimate(x, y, mask, kind="k2"),
        lambda x, y, z, mask: losses.kl_estimate(x, y, mask, kind="k3"),
        lambda x, y, z, mask: losses.kl_loss(x, y, mask, kind="k3"),
        lambda x, y, z, mask: losses.pooled_logprobs(x, y, mask, jnp.zeros((1, 5), jnp.int32), 1),
    ],
    ids=["ratio", "policy", "value", "k1", "k2", "k3", "kl loss", "pooled"],
)
def test_masked_junk_reaches_neither_values_nor_gradients_and_only_the_first_argument_learns(function):
    mask = np.array([[True, False, False, False, True]])
    x, y, z = (jnp.array([[first, *JUNK, last]]) for first, last in [(-1.0, -0.4), (-1.1, -0.5), (0.5, -0.5)])
    ones = jnp.ones((1, 5))
    values, slopes = jax.jit(lambda *arrays: with_slopes(lambda *a: function(*a, mask), ones, *arrays))(x, y, z)
    np.testing.assert_array_equal(values[~mask], 0.0)
    assert np.all(np.isfinite(values))
    of_x, of_y, of_z = slopes
    assert np.all(np.isfinite(of_x))
    assert np.all(of_x[mask] != 0)
    np.testing.assert_array_equal(of_x[~mask], 0.0)
    np.testing.assert_array_equal(of_y, jnp.zeros_like(y))  # old and reference numbers are held fixed
    np.testing.assert_array_equal(of_z, jnp.zeros_like(z))  # so are advantages and returns
