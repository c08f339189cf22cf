"""The real TPU compiler on kernels and on whole plans; wants libtpu, no TPU: `bash scripts/test_tpu.sh`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmtrl.config.loading import load_config
from jaxmtrl.models.ragged_attention import attend_ragged
from jaxmtrl.models.row_attention import RowAttention, attend_rows
from jaxmtrl.planning.plan_of import SPARE, make_plan
from jaxmtrl.planning.sizes import with_sizes
from jaxmtrl.planning.topology import parse_topology, tpu_devices

pytestmark = [
    pytest.mark.tpu_compile,
    pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place() -> NamedSharding:
    """On one chip of a slice."""
    return NamedSharding(Mesh(np.array(tpu_devices(parse_topology("v5e:2x4"))[:1]), ("x",)), PartitionSpec())


@pytest.mark.parametrize(
    ("slots", "heads", "kv_heads", "columns", "width", "dtype"),
    [
        (64, 12, 2, 4096, 128, "bfloat16"),  # Qwen2.5-1.5B
        (64, 28, 4, 8192, 128, "bfloat16"),  # Qwen2.5-7B
        (32, 9, 3, 640, 64, "float32"),  # SmolLM2-135M
    ],
)
def test_the_decode_kernel_compiles(place, slots, heads, kv_heads, columns, width, dtype):
    def shape(*sides: int, of: str = dtype) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sides, jnp.dtype(of), sharding=place)

    cache = shape(slots, kv_heads, columns, width)
    program = jax.jit(attend_ragged).lower(shape(slots, heads, width), cache, cache, shape(slots, of="int32")).compile()
    assert program.memory_analysis().temp_size_in_bytes < 2**20  # no copy of the cache


def test_splash_attention_compiles_forward_and_backward(place):
    def shape(*sides: int, of: str = "bfloat16") -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sides, jnp.dtype(of), sharding=place)

    def loss(query, keys, values, segments):
        return jnp.sum(attend_rows(query, keys, values, segments, RowAttention(kind="splash")).astype(jnp.float32))

    parts = (shape(2, 4096, 12, 128), shape(2, 4096, 2, 128), shape(2, 4096, 2, 128), shape(2, 4096, of="int32"))
    program = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(*parts).compile()
    square = 2 * 12 * 4096 * 4096 * 2  # bytes of the scores that it never holds
    assert program.memory_analysis().temp_size_in_bytes < square / 4


def planned(name: str, topology: str, *overrides: str):
    config = with_sizes(load_config(ROOT / "configs" / "tpu" / f"{name}.yaml", overrides))
    return make_plan(config, parse_topology(topology), source=name, formula=False, action_share=0.1)


def small_plan(*overrides: str):
    """A small model in place of Qwen2.5-1.5B on v5e:2x4, slots, mesh and algorithm as configured."""
    sizes = {"layers": 2, "embed": 512, "heads": 4, "kv_heads": 2, "head_dim": 128, "mlp": 1024}
    small = [f"model.{name}={size}" for name, size in sizes.items()]
    sizes_of_text = ("text.vocab_size=8192", "batching.row_length=1024")
    made = planned("qwen2.5_1.5b_v5e-8", "v5e:2x4", 'model.from_pretrained=""', *small, *sizes_of_text, *overrides)
    assert made.memory is not None and made.fits, made
    return made.memory


def test_a_small_plan_compiles_and_fits():
    memory = small_plan()
    assert memory.update.traffic, "FSDP gathers weights"
    assert not memory.decode.traffic or memory.decode.received < memory.sampler, "decode gathers none"


@pytest.mark.slow
def test_offloaded_block_inputs_leave_the_chip():
    """Two layers of [rows, 1024, 512] in bf16 a micro-batch wait in the host's memory, and no longer on the chip."""
    kept, sent = (small_plan(f"model.remat={remat}").update for remat in ("block", "offload"))
    assert kept.host == 0
    assert sent.host >= 2 * 1024 * 512 * 2
    assert sent.temporaries <= kept.temporaries


@pytest.mark.slow
def test_moments_of_eight_bits_and_moments_on_the_host_take_less_of_a_chip():
    """Of 8 bytes a parameter for two moments in f32, eight bits leave about 2 and the host none."""
    whole, eight, away = (
        small_plan(f"optimizer.{setting}").update.arguments for setting in ("name=adamw", "name=adamw8", "memory=host")
    )
    assert eight < whole and away < whole
    assert (whole - eight) / (whole - away) == pytest.approx(0.74, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("qwen2.5_1.5b_v5e-8", "v5e:2x4"),
        ("qwen2.5_1.5b_v6e-4", "v6e:2x2"),
        ("qwen2.5_7b_v5e-16", "v5e:4x4"),
        ("qwen2.5_7b_v5p-8", "v5p:2x2x2"),
        ("qwen2.5_7b_v6e-8", "v6e:2x4"),
    ],
)
def test_every_config_fits_with_some_to_spare(name, topology):
    made = planned(name, topology)
    assert made.spare >= SPARE, (made.peak / 2**30, made.memory)
