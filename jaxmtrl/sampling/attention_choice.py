"""Which attention the sampler uses on a TPU or GPU: XLA's, or a kernel where that proves right and faster there.

Nobody knows beforehand which wins for a model, a cache and a chip, so each candidate is tried as the engine starts: on
one layer's cache, half full, its numbers are compared with XLA's and both are timed. What does not compile, gives
other numbers or is slower is left alone, and the engine's plan says so.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmtrl.config.sections import SamplingSection
from jaxmtrl.models.attention import CacheAttention, attend_cache
from jaxmtrl.models.columns import empty_columns
from jaxmtrl.models.decoder import DecoderConfig
from jaxmtrl.parallel.slots import cache_sharding

TOLERANCE = (
    2e-2  # of outputs whose values are drawn from a unit normal: products in bfloat16, as accelerators take them
)
_CALLS = 10  # timed, of which the fastest counts

Run = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen, and one sentence on why."""

    name: str
    why: str


def choose(usual: tuple[str, Run], candidates: Mapping[str, Run]) -> Choice:
    """The fastest of the ways that give the usual one's numbers.

    Args:
        usual: name and a call that returns its output.
        candidates: the same of the others; one that raises is passed over.
    """
    name, run = usual
    reference = np.asarray(run(), np.float32)
    best, said = (name, _seconds(run)), []
    usual_s = best[1]
    for other, call in candidates.items():
        try:
            gap = float(np.max(np.abs(np.asarray(call(), np.float32) - reference)))
            if not gap <= TOLERANCE:  # NaN is not
                said.append(f"{other} differs by {gap:.2g}")
                continue
            taken = _seconds(call)
        except Exception as error:  # whatever a compiler or driver makes of a kernel that it cannot run
            reason = str(error).strip() or type(error).__name__
            said.append(f"{other} does not run: {reason.splitlines()[0][:120]}")
            continue
        said.append(f"{other} {usual_s / taken:.2f} times as fast as {name}")
        if taken < best[1]:
            best = (other, taken)
    return Choice(best[0], f"{best[0]} ({'; '.join(said)})" if said else best[0])


def _seconds(run: Run) -> float:
    times = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - began)
    return min(times)


def choose_attention(config: DecoderConfig, section: SamplingSection, mesh: Mesh) -> tuple[CacheAttention | None, str]:
    """What to give `Network.for_sampling`, and a sentence for the log, empty where there is nothing to choose.

    Several hosts would have to choose the same, so they take what is usual.
    """
    platform = mesh.devices.flat[0].platform
    if section.attention == "xla" or platform not in ("tpu", "gpu") or jax.process_count() > 1:
        return None, ""
    usual = CacheAttention()
    if platform == "gpu":
        rows, tokens = section.prefill_rows, section.prefill_buckets[0]
        fused = dataclasses.replace(usual, prefill="cudnn")
        runs = {way: _trial(way, config, section, mesh, rows, tokens) for way in (usual, fused)}
        choice = choose(("xla", runs[usual]), {"cudnn": runs[fused]})
        return (fused if choice.name == "cudnn" else usual), f"prefill attention {choice.why}"
    ragged = dataclasses.replace(usual, decode="ragged", mesh=mesh if mesh.size > 1 else None)
    runs = {way: _trial(way, config, section, mesh, section.slots, 1) for way in (usual, ragged)}
    choice = choose(("xla", runs[usual]), {"ragged": runs[ragged]})
    return (ragged if choice.name == "ragged" else usual), f"decode attention {choice.why}"


def _trial(
    way: CacheAttention, config: DecoderConfig, section: SamplingSection, mesh: Mesh, rows: int, tokens: int
) -> Run:
    """A call of `attend_cache` on the longest cache, compiled when it is first called; columns end anywhere in it."""
    columns, slots = section.cache_length, section.slots
    dtype = config.compute_dtype if section.cache_dtype == "auto" else section.cache_dtype
    rng = np.random.default_rng(0)
    query = jnp.asarray(rng.normal(size=(rows, tokens, config.heads, config.head_dim)), config.compute_dtype)
    starts = rng.integers(0, max(1, columns - tokens), rows)
    positions = jnp.asarray(starts[:, None] + np.arange(tokens), jnp.int32)
    at = None if tokens == 1 else jnp.arange(rows) % slots
    place = cache_sharding(mesh, slots=slots, kv_heads=config.kv_heads)
    made: list[Any] = []

    def run() -> Any:
        if not made:
            shape = (slots, config.kv_heads, columns, config.head_dim)
            drawn = [jax.random.normal(jax.random.key(seed), shape) for seed in (0, 1)]
            if dtype == "int8":
                cache = [empty_columns(shape, dtype) for _ in drawn]
            else:
                cache = [jax.device_put(part.astype(dtype), place) for part in drawn]
            program = jax.jit(lambda q, k, v, p, r: attend_cache(q, k, v, p, r, way))
            made.extend((program, (query, *cache, positions, at)))
        program, arguments = made
        return program(*arguments)

    return run
