"""Bytes by hand for a small model, and a config that no machine can hold."""

from __future__ import annotations

import dataclasses

import jax
from doctor_bench import TINY, bench, episodes, sound_gauge

from jaxmtrl.config.loading import load_config
from jaxmtrl.diagnosis.material import longest, one_a_row
from jaxmtrl.diagnosis.memory import check_memory
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.planning.formula import memory_parts


def one_device():
    return make_mesh(1, 1, 1, jax.devices()[:1])


def test_parameters_moments_and_cache_are_counted_exactly():
    config = load_config(
        TINY, ["model.compute_dtype=bfloat16", "model.critic=head", "algorithm.kl_coef=0", "algorithm.kl_target=0"]
    )
    plan = memory_parts(config, 259, "bfloat16", one_device())
    # 259 * 32 embedding; a block: q 32*2*16, k and v 32*1*16 each, out 2*16*32, MLP 3*32*64, two norms 32; twice;
    # final norm 32; critic 32*32 + 32 + 1.
    block = 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 64 + 64
    policy, critic = 259 * 32 + 2 * block + 32, 32 * 32 + 33
    # Adam: two moments a number, and one i32 count for each half of the optimizer and of its schedule.
    assert plan.state - 4 * 3 * (policy + critic) in range(65)
    # The sampler's, its five norms in f32, and its table of sines and cosines [512, 8] each; no reference.
    assert plan.copies == 2 * policy + 2 * 5 * 32 + 4 * 2 * 512 * 8
    assert plan.cache == 2 * 2 * (4 * 1 * 512 * 16) * 2  # layers, keys and values, [S, K, C, H], bf16


def test_a_mesh_takes_its_share():
    config = load_config(TINY, ["model.embed=64", "batching.micro_batch_rows=4"])
    whole = memory_parts(config, 259, "float32", one_device())
    split = memory_parts(config, 259, "float32", make_mesh(1, 4, 1, jax.devices()[:4]))
    assert split.state < 0.3 * whole.state
    assert split.cache == whole.cache // 4


def test_a_model_that_cannot_fit_is_told_with_the_field_to_change():
    cache = ("slots=100000", "cache_length=100000", "attention_buckets=[100000]")
    config = load_config(TINY, [f"sampling.{field}" for field in cache])
    (finding,) = check_memory(config, 259, one_device())
    assert not finding.passed
    assert "sampling.slots" in finding.cure
    (finding,) = check_memory(load_config(TINY), 259, one_device())
    assert finding.passed


def test_the_estimate_of_an_update_is_about_what_the_compiler_says():
    config, rows = bench().config, 4
    gauge, batch = sound_gauge(), one_a_row(episodes(), row_length=longest(episodes()), pad_id=0)
    placed = gauge.place(batch, micro_batch_rows=rows)
    gauge.measure(bench().params, placed, reference=bench().reference)
    compiled = next(program for key, program in gauge._learner._programs.items() if key[0] == "update_policy")
    same = dataclasses.replace(
        config, batching=dataclasses.replace(config.batching, row_length=batch.tokens.shape[1], micro_batch_rows=rows)
    )
    estimate = memory_parts(same, 259, "float32", one_device()).update
    measured = compiled.memory_analysis().temp_size_in_bytes
    assert 0.5 < estimate / measured < 3, (estimate, measured)
