"""Which policy the KL is measured against, and when an adapter drops inputs: what the trainer makes of the config."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiny

from jaxmtrl.assembly import make_learner, make_optimizers
from jaxmtrl.checkpoint import Checkpoints
from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.config.sections import AlgorithmSection, Config, EnvSection, RunSection
from jaxmtrl.learner.state import init_state
from jaxmtrl.models.decoder import Network
from jaxmtrl.stages import STAGES
from jaxmtrl.training import Trainer

PLAIN = Config(run=RunSection(name="r", seed=5), env=EnvSection(factory="jaxmtrl.envs.toy:make"), model=tiny.MODEL)
ADAPTED = dataclasses.replace(PLAIN, lora=LoraSection(rank=2, dropout=0.1))


def parts_of(config: Config) -> SimpleNamespace:
    network = Network.from_section(config.model, 40, "float32", config.lora)
    return SimpleNamespace(network=network, optimizers=make_optimizers(config, network), mesh=tiny.one_device())


@pytest.mark.parametrize(
    ("config", "kind", "wanted"),
    [
        (PLAIN, None, "sft"),
        (PLAIN, "before_rl", "sft"),
        (PLAIN, "base", "untrained"),
        (ADAPTED, None, "off"),
        (ADAPTED, "base", "off"),
        (ADAPTED, "before_rl", "sft"),
    ],
)
def test_the_reference_of_the_kl(tmp_path, config, kind, wanted):
    parts = parts_of(config)
    state = init_state(parts.network, parts.optimizers["sft"], parts.mesh, jax.random.key(0))
    trainer = object.__new__(Trainer)  # what a run of minutes would have left behind
    trainer.config = dataclasses.replace(config, algorithm=AlgorithmSection(kl_coef=0.1, kl_reference=kind))
    trainer.parts, trainer.state = parts, state
    trainer.stage_ends = Checkpoints(tmp_path / "stages", keep=None)
    kept = {}
    for amount, stage in enumerate(("untrained", "pretrain", "sft"), start=1):
        kept[stage] = jax.tree.map(lambda leaf, more=amount: leaf + more, state.params)
        trainer.stage_ends.save(STAGES.index(stage), {"params": kept[stage]}, {"stage": stage})
    kept["off"] = {"policy": jax.tree.map(np.zeros_like, state.params["policy"])}
    got = trainer._reference_policy()
    trainer.stage_ends.close()
    jax.tree.map(np.testing.assert_array_equal, got, kept[wanted]["policy"])


@pytest.mark.parametrize(("config", "seed"), [(PLAIN, None), (ADAPTED, 5)])
def test_dropout_is_drawn_from_the_runs_seed(config, seed):
    parts = parts_of(config)
    assert make_learner(config, parts.network, parts.mesh, {}, parts.optimizers).dropout_seed == seed
