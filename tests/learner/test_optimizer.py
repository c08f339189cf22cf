from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bag_network import BagNetwork

from jaxmtrl.config.sections import OptimizerSection
from jaxmtrl.learner.optimizer import is_matrix, make_optimizer


def optimizer(*, decay="constant", policy=0.1, critic=0.01, total=10, warmup=0, **section):
    return make_optimizer(
        OptimizerSection(decay=decay, **section),
        BagNetwork(),
        learning_rate=policy,
        critic_learning_rate=critic,
        total_steps=total,
        warmup_steps=warmup,
    )


@pytest.fixture(scope="module")
def params():
    return BagNetwork().init(jax.random.key(0))


def moved(opt, params, grads, steps=1):
    """How far each parameter moved after some steps with the same gradients."""
    state, after = opt.init(params), params
    for _ in range(steps):
        after, state = opt.step(grads, state, after, norm=optax.tree.norm(grads))
    return jax.tree.map(lambda new, old: np.asarray(new - old), after, params)


def test_policy_and_critic_have_their_own_rates(params):
    # Adam's first step is the rate, against the gradient's sign.
    move = moved(optimizer(), params, jax.tree.map(jnp.ones_like, params))
    np.testing.assert_allclose(move["policy"]["head"], -0.1, rtol=1e-4)
    np.testing.assert_allclose(move["critic"]["weight"], -0.01, rtol=1e-4)


def test_a_half_without_gradients_keeps_weights_and_moments(params):
    opt = optimizer(weight_decay=0.5)
    state = opt.init(params)
    grads = {"critic": jax.tree.map(jnp.ones_like, params["critic"])}
    after, new_state = opt.step(grads, state, params, norm=optax.tree.norm(grads))
    assert after["policy"] is params["policy"] and new_state["policy"] is state["policy"]
    assert (after["critic"]["weight"] != params["critic"]["weight"]).all()


@pytest.mark.parametrize(
    ("decay", "steps", "expected"),
    [
        # Warm-up over two steps: rates .05 and .1; then the decay over the remaining 8, floor at 10 %.
        ("constant", 1, 0.05),
        ("constant", 2, 0.15),
        ("linear", 3, 0.25),  # progress 0: the full rate once more
        ("linear", 4, 0.25 + 0.1 * (1 - 0.9 / 8)),
        ("cosine", 4, 0.25 + 0.1 * (0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi / 8)))),
        ("steps", 7, 0.15 + 2 * 0.1 + 2 * 0.09 + 0.081),  # a tenth less after every two steps
    ],
)
def test_schedule(params, decay, steps, expected):
    move = moved(optimizer(decay=decay, warmup=2, decay_every=2), params, jax.tree.map(jnp.ones_like, params), steps)
    np.testing.assert_allclose(-move["policy"]["head"], expected, rtol=1e-4)


def test_a_decay_ends_at_a_tenth_and_stays_there(params):
    opt = optimizer(decay="linear", total=2)
    grads = jax.tree.map(jnp.ones_like, params)
    late = moved(opt, params, grads, 6)["policy"]["head"] - moved(opt, params, grads, 5)["policy"]["head"]
    np.testing.assert_allclose(late, -0.01, rtol=1e-3)


def test_the_global_norm_is_clipped_over_both_halves(params):
    # Adam's step does not see a common factor, its first moment does: (1 - b1) * g.
    opt = optimizer(gradient_clip=1.0, b1=0.9)
    grads = jax.tree.map(lambda leaf: jnp.full_like(leaf, 3.0), params)
    norm = optax.tree.norm(grads)
    _, state = opt.step(grads, opt.init(params), params, norm=norm)
    for half in ("policy", "critic"):
        for moment in jax.tree.leaves(state[half][0].mu):
            np.testing.assert_allclose(moment, 0.1 * 3.0 / norm, rtol=1e-5)


def test_weight_decay_is_for_matrices():
    assert is_matrix(("vocab", "embed")) and is_matrix(("layers", "embed", "heads", "head_dim"))
    assert not is_matrix(("layers", None)) and not is_matrix(("embed",)) and not is_matrix(())


def test_weight_decay_shrinks_matrices_alone(params):
    move = moved(optimizer(weight_decay=0.5), params, jax.tree.map(jnp.zeros_like, params))
    np.testing.assert_allclose(move["policy"]["head"], -0.1 * 0.5 * params["policy"]["head"], rtol=1e-4)
    assert not move["critic"]["weight"].any()


def test_moments_are_f32_for_bf16_parameters(params):
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    opt = optimizer()
    assert all(leaf.dtype != jnp.bfloat16 for leaf in jax.tree.leaves(opt.init(half)))
    grads = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), params)
    after, _ = opt.step(grads, opt.init(half), half, norm=optax.tree.norm(grads))
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(after))
