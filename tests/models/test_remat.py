"""What is computed again for the backward pass changes no gradient, and less is kept the more is computed again."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmtrl.models.decoder import Network

SECTION = dataclasses.replace(tiny.MODEL, layers=6)


def program(remat: str):
    """The compiled gradient of a sum over hidden states, and its arguments."""
    network = Network.from_section(dataclasses.replace(SECTION, remat=remat), 259, "float32")
    params = network.init(jax.random.key(0))
    tokens = np.random.default_rng(0).integers(0, 256, (4, 128)).astype(np.int32)
    positions = np.tile(np.arange(128, dtype=np.int32), (4, 1))
    weights = jax.random.normal(jax.random.key(1), (4, 128, SECTION.embed))

    def loss(policy):
        hidden = network.hidden({**params, "policy": policy}, tokens, positions, np.zeros_like(tokens))
        return jnp.sum(hidden * weights)

    return jax.jit(jax.grad(loss)).lower(params["policy"]).compile(), params["policy"]


@pytest.mark.parametrize("remat", ["dots", "attention", "block"])
def test_gradients_do_not_depend_on_it(remat):
    (plain, policy), (again, _) = program("none"), program(remat)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), again(policy), plain(policy))


def test_each_keeps_less_than_the_one_before():
    kept = [program(remat)[0].memory_analysis().temp_size_in_bytes for remat in ("none", "dots", "attention", "block")]
    assert kept == sorted(kept, reverse=True) and len(set(kept)) == 4, kept
