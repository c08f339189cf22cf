"""Collectives are read off a program's text with their bytes, as often as loops run them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmtrl.planning.hlo import collectives, largest_array

TEXT = """HloModule jit_f

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%body (carry: (s32[], f32[8])) -> (s32[], f32[8]) {
  %carry = (s32[], f32[8]{0}) parameter(0)
  %x = f32[8]{0} get-tuple-element(%carry), index=1
  %reduced = f32[8]{0} all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %next = (s32[], f32[8]{0}) tuple(%x, %reduced)
}

%inside (carry: (s32[], f32[8])) -> (s32[], f32[8]) {
  %carry = (s32[], f32[8]{0}) parameter(0)
  ROOT %again = (s32[], f32[8]{0}) while(%carry), condition=%add, body=%body
}

ENTRY %main (p: bf16[16,4]) -> f32[8] {
  %p = bf16[16,4]{1,0} parameter(0)
  %gathered = (bf16[16,4]{1,0}, bf16[64,4]{1,0}) all-gather-start(%p), replica_groups=[2,4]<=[8], dimensions={0}
  %done = bf16[64,4]{1,0} all-gather-done(%gathered)
  %looped = (s32[], f32[8]{0}) while(%p), condition=%add, body=%inside, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %x = f32[8]{0} get-tuple-element(%looped), index=1
}
"""


def test_loops_count_as_often_as_they_run_and_starts_once():
    """A gather of 64·4 bf16 by four: 3/4 of 512 bytes. A reduction of 8 f32 by four, 5·7 times: 35 · 2 · 3/4 · 32."""
    found = collectives(TEXT, dynamic_trips=7)
    assert (found["all-gather"].count, found["all-gather"].received) == (1, 384)
    assert (found["all-reduce"].count, found["all-reduce"].received) == (35, 35 * 48)
    assert set(found) == {"all-gather", "all-reduce"}


def test_a_real_program_says_what_it_gathers():
    """A product with weights split over eight devices in a loop of three: 3 gathers of [64, 64] f32."""
    mesh = Mesh(np.array(jax.devices()[:8]), ("fsdp",))
    split = NamedSharding(mesh, PartitionSpec("fsdp", None))
    whole = NamedSharding(mesh, PartitionSpec())

    def run(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ jax.lax.with_sharding_constraint(w, whole)), None), x, weights)[
            0
        ]

    stacked = NamedSharding(mesh, PartitionSpec(None, "fsdp", None))
    shapes = (
        jax.ShapeDtypeStruct((16, 64), jnp.float32, sharding=split),
        jax.ShapeDtypeStruct((3, 64, 64), jnp.float32, sharding=stacked),
    )
    found = collectives(jax.jit(run, out_shardings=split).lower(*shapes).compile().as_text())
    assert found["all-gather"].received == 3 * 64 * 64 * 4 * 7 // 8


@pytest.mark.parametrize(
    ("groups", "members"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", 4),
        ("[2,4]<=[8]", 4),
        ("mesh['a'=2,'b'=8] {'b'}", 8),
        ("mesh['a'=2,'b'=8] {'a','b'}", 16),
        ("mesh['a'=2,'b'=8] {'b':(2)4}", 4),
    ],
)
def test_groups_are_read_in_every_spelling(groups, members):
    """All of a gathered [64] but a chip's own part comes from others."""
    line = f"  %g = u8[64]{{0}} all-gather(%p), replica_groups={groups}, dimensions={{0}}"
    text = f"ENTRY %main (p: u8[8]) -> u8[64] {{\n{line}\n}}\n"
    assert collectives(text)["all-gather"].received == 64 * (members - 1) // members


def test_the_largest_array_is_found_by_bytes():
    assert largest_array(TEXT) == (512, "bf16[64,4]")
