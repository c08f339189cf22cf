"""Small copies keep what decides whether the numbers are right."""

from __future__ import annotations

import pytest
from doctor_bench import TINY

from jaxmtrl.config.loading import load_config
from jaxmtrl.config.rules import broken_rules
from jaxmtrl.diagnosis.shrink import shrink

LARGE = (
    "model.layers=28",
    "model.embed=3584",
    "model.heads=28",
    "model.kv_heads=4",
    "model.head_dim=128",
    "model.mlp=18944",
    "model.param_dtype=bfloat16",
    "sampling.slots=256",
    "sampling.cache_length=8192",
    "sampling.attention_buckets=[1024, 4096, 8192]",
    "sampling.prefill_buckets=[128, 1024]",
    "sampling.max_action_tokens=512",
    "sampling.temperature=0.7",
    "batching.row_length=8192",
)


def test_a_large_model_becomes_small_and_keeps_its_kind():
    small = shrink(load_config(TINY, LARGE), tokens=512).config
    assert (small.model.layers, small.model.embed) == (2, 64)
    assert small.model.heads // small.model.kv_heads == 7  # as 28 / 4
    assert small.model.kv_heads == 2
    assert small.model.mlp == round(18944 * 64 / 3584)
    assert small.sampling.slots == 8 and small.sampling.cache_length == 512
    assert small.sampling.attention_buckets == (256, 512)
    assert small.sampling.temperature == 0.7
    assert small.model.param_dtype == small.model.compute_dtype == "float32"


def test_every_change_is_told():
    shrunk = shrink(load_config(TINY, LARGE), tokens=512)
    assert "model.embed 3584 → 64" in shrunk.changes
    assert "sampling.attention_buckets 1024/4096/8192 → 256/512" in shrunk.changes
    assert not any("temperature" in change for change in shrunk.changes)


@pytest.mark.parametrize("tokens", [64, 200, 100_000])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        LARGE,
        ("algorithm.name=rloo", "algorithm.group_size=8", "model.critic=head"),
        ("sampling.max_action_tokens=300",),
    ],
)
def test_the_small_config_breaks_no_rule(tokens: int, overrides: tuple[str, ...]):
    assert broken_rules(shrink(load_config(TINY, overrides), tokens=tokens).config) == []
