"""Moments in eight bits: how near they are, that they are right on average, and that Adam learns as well with them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxmtrl.learner import eight_bit
from jaxmtrl.learner.eight_bit import block_of, scale_by_adam8

SHAPE = (64, 256)  # two blocks a row


def numbers(*, signed: bool) -> jax.Array:
    """Of very different sizes, as moments are: over six decades."""
    rng = np.random.default_rng(0)
    drawn = np.exp(rng.uniform(-14, 0, SHAPE)) * (rng.choice([-1, 1], SHAPE) if signed else 1)
    return jnp.asarray(drawn, jnp.float32)


def read_back(x: jax.Array, seed: int, *, signed: bool) -> np.ndarray:
    return np.asarray(eight_bit._unpacked(eight_bit._packed(x, seed, signed=signed)))


@pytest.mark.parametrize(("signed", "top"), [(True, 127), (False, 255)])
def test_a_number_comes_back_within_a_step_of_its_code(signed, top):
    """With code c of `top`, a step is (2c + 1) / top² of the block's largest: 1.6 % and .8 % at the top."""
    x = numbers(signed=signed)
    largest = jnp.max(jnp.abs(x.reshape(64, 2, 128)), axis=-1, keepdims=True)
    code = jnp.floor(jnp.sqrt(jnp.abs(x.reshape(64, 2, 128)) / largest) * top)
    step = ((2 * code + 1) / top**2 * largest).reshape(SHAPE)
    back = read_back(x, 3, signed=signed)
    assert (np.abs(back - x) <= np.asarray(step) * 1.001).all()
    assert (np.sign(back[back != 0]) == np.sign(x)[back != 0]).all()
    at = jnp.argmax(jnp.abs(x).reshape(-1, 128), axis=-1)
    np.testing.assert_allclose(back.reshape(-1, 128)[np.arange(128), at], x.reshape(-1, 128)[np.arange(128), at])


@pytest.mark.parametrize("signed", [True, False])
def test_rounding_is_right_on_average(signed):
    x = numbers(signed=signed)
    mean = np.mean([read_back(x, seed, signed=signed) for seed in range(400)], axis=0)
    large = np.abs(np.asarray(x)) > 0.05  # whose step is at most a tenth of them: 400 draws leave under 1 %
    np.testing.assert_allclose(mean[large], np.asarray(x)[large], rtol=0.02)


def test_a_divisor_that_was_not_zero_stays_above_it():
    back = read_back(numbers(signed=False), 0, signed=False)
    assert back.min() > 0
    zeros = read_back(jnp.zeros(SHAPE), 0, signed=False)
    np.testing.assert_array_equal(zeros, 0.0)


def test_a_mean_decays_though_each_change_is_less_than_a_step():
    """b2 = .999 moves a second moment by a tenth of a per cent a step; its codes are .8 % apart and more."""
    transform = scale_by_adam8(0.9, 0.999, 1e-8)
    state = transform.init({"w": jnp.zeros(SHAPE)})
    update = jax.jit(transform.update)
    varied = jnp.linspace(0.1, 1.0, SHAPE[0] * SHAPE[1]).reshape(SHAPE)
    _, state = update({"w": varied}, state)
    first = eight_bit._unpacked(state.nu["w"])
    for _ in range(400):
        _, state = update({"w": jnp.zeros(SHAPE)}, state)
    left = np.asarray(eight_bit._unpacked(state.nu["w"]) / first)
    assert np.mean(left) == pytest.approx(0.999 ** (400 / 2), abs=0.01)  # roots: .819


def test_the_first_step_is_adams():
    params = {"w": jnp.zeros(SHAPE), "norm": jnp.zeros(7)}
    grads = {"w": numbers(signed=True), "norm": jnp.arange(7.0)}
    exact, ours = optax.scale_by_adam(0.9, 0.95, 1e-8), scale_by_adam8(0.9, 0.95, 1e-8)
    expected, _ = exact.update(grads, exact.init(params))
    found, _ = ours.update(grads, ours.init(params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, expected)


def test_small_and_odd_arrays_keep_f32_moments_and_are_adams_to_the_end():
    assert block_of((4095,)) == 0 and block_of((2, 64)) == 0 and block_of((64, 99)) == 0
    assert block_of((64, 96)) == 32 and block_of((30, 576, 1536)) == 128
    params = {"norm": jnp.zeros(7)}
    exact, ours = optax.scale_by_adam(0.9, 0.95, 1e-8), scale_by_adam8(0.9, 0.95, 1e-8)
    one, other = exact.init(params), ours.init(params)
    for step in range(5):
        grads = {"norm": jnp.sin(jnp.arange(7.0) + step)}
        expected, one = exact.update(grads, one)
        found, other = ours.update(grads, other)
        np.testing.assert_allclose(found["norm"], expected["norm"], rtol=1e-5)


def test_moments_take_at_most_three_tenths_of_adams_bytes():
    """SmolLM2-135M's matrices, shapes only."""
    shapes = {
        "table": jax.ShapeDtypeStruct((49152, 576), jnp.float32),
        "gate": jax.ShapeDtypeStruct((30, 576, 1536), jnp.float32),
        "query": jax.ShapeDtypeStruct((30, 576, 9, 64), jnp.float32),
        "norm": jax.ShapeDtypeStruct((30, 576), jnp.float32),
    }

    def size(transform) -> int:
        state = jax.eval_shape(transform.init, shapes)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))

    assert size(scale_by_adam8(0.9, 0.95, 1e-8)) <= 0.3 * size(optax.scale_by_adam())


def curves(transform: optax.GradientTransformation) -> np.ndarray:
    """Losses [5, 300] of five seeds: a two-layer network learns a random one's outputs."""
    optimizer = optax.chain(transform, optax.scale(-2e-3))

    def curve(seed: jax.Array) -> jax.Array:
        keys = jax.random.split(jax.random.key(seed), 6)
        inputs = jax.random.normal(keys[0], (512, 64))
        teacher, params = (
            (jax.random.normal(one, (64, 128)) / 8, jax.random.normal(other, (128, 64)) / 11)
            for one, other in (keys[1:3], keys[3:5])
        )
        outputs = jnp.tanh(inputs @ teacher[0]) @ teacher[1]

        def loss(params, batch):
            return jnp.mean(jnp.square(jnp.tanh(inputs[batch] @ params[0]) @ params[1] - outputs[batch]))

        def step(carry, key):
            params, state = carry
            value, grads = jax.value_and_grad(loss)(params, jax.random.randint(key, (64,), 0, 512))
            updates, state = optimizer.update(grads, state)
            return (optax.apply_updates(params, updates), state), value

        return jax.lax.scan(step, (params, optimizer.init(params)), jax.random.split(keys[5], 300))[1]

    return np.asarray(jax.jit(jax.vmap(curve))(jnp.arange(5)))


def test_it_learns_as_adam_does():
    """Mean of the last 50 losses, five seeds: within what Adam's own seeds differ by."""
    assert all(block_of(shape) == block for shape, block in (((64, 128), 128), ((128, 64), 64)))  # both in eight bits
    adam, ours = curves(optax.scale_by_adam(0.9, 0.95, 1e-8)), curves(scale_by_adam8(0.9, 0.95, 1e-8))
    ends, our_ends = (losses[:, -50:].mean(axis=1) for losses in (adam, ours))
    assert (ends < 0.2 * adam[:, 0]).all()  # there was something to learn
    assert abs(our_ends.mean() - ends.mean()) <= ends.std(ddof=1), (ends, our_ends)
