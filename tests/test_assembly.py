"""Which parts a config asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny

from jaxmtrl.assembly import check, make_optimizers, resolved
from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import ConfigError
from jaxmtrl.pools import make_pool
from jaxmtrl.rollout.pool import MultiprocessPool
from jaxmtrl.types import Task

TOY = Path(__file__).parents[1] / "configs" / "toy.yaml"


def test_the_backend_is_processes_unless_the_config_says_otherwise():
    with make_pool(load_config(TOY, ["rollout.workers=1"])) as pool:
        assert type(pool) is MultiprocessPool


def test_workers_pay_what_the_config_composes():
    """Four commands of the toy: .2 * .25 for each of three, .8 - .2 * .75 for the win."""
    config = load_config(TOY, ["rollout.workers=1", "reward.preset=hybrid_text"])
    environment = check(config)
    task = environment.split("train").tasks[0]
    results = []
    with make_pool(config) as pool:
        pool.reset(0, task)
        pool.receive(60.0)
        for action in environment.expert_actions(task) or ():
            pool.step(0, action)
            results.append(pool.receive(60.0)[0].step)
    assert [result.reward for result in results if result] == pytest.approx([0.05, 0.05, 0.05, 0.65])
    assert results[-1] is not None and results[-1].metrics["reward/progress"] == -0.75


def test_a_model_is_looked_for_only_when_the_tasks_are_there():
    """A path of two parts may be a hub id, and without a network the hub's tries take a minute."""
    asked = ["model.from_pretrained=models/not-there", "sft.demonstrations=100000"]
    with pytest.raises(ConfigError, match=r"sft\.demonstrations: .*100000"):
        resolved(load_config(TOY, asked))


def test_a_rate_that_falls_in_steps_falls_in_rl_alone():
    """Adam's step is the rate where gradients do not change: .1 + .05 + .025 if it halves after each, .3 if not."""
    steps = ["optimizer.decay=steps", "optimizer.decay_factor=0.5", "optimizer.decay_every=1"]
    rates = ["optimizer.warmup_steps=0", "optimizer.learning_rate=0.1", "sft.learning_rate=0.1"]
    optimizers = make_optimizers(load_config(TOY, [*steps, *rates]), tiny.network())
    begun = tiny.params()["policy"]
    grads = {"policy": jax.tree.map(jnp.ones_like, begun)}
    for kind, expected in (("policy", 0.175), ("sft", 0.3)):
        params, state = dict(tiny.params()), optimizers[kind].init(tiny.params())
        for _ in range(3):
            params, state = optimizers[kind].step(grads, state, params, norm=optax.tree.norm(grads))
        first, last = jax.tree.leaves(begun)[0], jax.tree.leaves(params["policy"])[0]
        np.testing.assert_allclose(first - last, expected, rtol=1e-3)


def test_ray_that_is_not_installed_is_named_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # how Python itself says that a module shall not be found
    monkeypatch.delitem(sys.modules, "jaxmtrl.rollout.ray_pool", raising=False)
    with pytest.raises(ConfigError, match=r"rollout.backend:\n  - got ray, .* not installed; .*\.\[ray\]"):
        make_pool(load_config(TOY, ["rollout.backend=ray"]))


@pytest.mark.ray
def test_the_ray_backend_plays_what_the_config_names():
    from backends import start_cluster

    start_cluster()
    config = load_config(TOY, ["rollout.backend=ray", "rollout.workers=1", "rollout.ray_cpus=0.5"])
    with make_pool(config) as pool:
        pool.reset(0, Task(id="unknown", seed=0))
        assert pool.receive(60.0)[0].kind in ("observation", "failure")
