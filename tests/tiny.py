"""The smallest real parts that tests share: a two-layer network, the byte tokenizer, one device."""

from __future__ import annotations

import functools

import jax

from jaxmtrl.config.sections import ModelSection, SamplingSection
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.sampling.engine import Engine
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import byte_tokenizer

MODEL = ModelSection(layers=2, embed=32, heads=4, kv_heads=2, head_dim=8, mlp=64)
SAMPLING = SamplingSection(
    slots=4,
    cache_length=256,
    attention_buckets=(128, 256),
    prefill_rows=3,
    prefill_buckets=(16, 64),
    decode_chunk=4,
    max_action_tokens=6,
)


def one_device():
    return make_mesh(1, 1, 1, jax.devices()[:1])


@functools.cache
def network(vocab: int = 259) -> Network:
    return Network.from_section(MODEL, vocab, "float32")


@functools.cache
def params(seed: int = 0, vocab: int = 259):
    return jax.jit(network(vocab).init)(jax.random.key(seed))


@functools.cache
def engine() -> Engine:
    """One engine for all tests of a file; every test closes the slots it opens."""
    made = Engine(network(), SAMPLING, sorted(chatml(byte_tokenizer()).stop_ids), one_device())
    made.load(params(), 0)
    return made
