"""The sampler's compiled programs: a fixed list of shapes, compiled ahead, each updating cache and slots in place.

A cache is only as long as its longest open episode needs: it grows from one attention bucket to the next, and shrinks
when the episodes that needed it have ended. Every program reads all of it, so none has to cut the columns out that it
attends to: on CPU that copy took a quarter of a decode chunk.
Letters: S slots, R prefill rows, P prefill bucket, A action cap, C cache length, L layers, V vocab.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmtrl.config.sections import SamplingSection
from jaxmtrl.models.decoder import Network, Params
from jaxmtrl.models.kv_cache import Cache, cache_length, copy_row, empty_cache, resized
from jaxmtrl.parallel.hosts import moved
from jaxmtrl.parallel.sharding import named_shardings, replicated
from jaxmtrl.parallel.slots import cache_sharding
from jaxmtrl.sampling.attention_choice import choose_attention
from jaxmtrl.sampling.programs import (
    SlotState,
    Weights,
    as_read,
    begin_slot,
    decode,
    empty_state,
    open_slot,
    prefill,
    stop_slot,
)

Array = jax.Array


@dataclasses.dataclass(kw_only=True)
class Programs:
    """The compiled list and how to choose from it."""

    stop_ids: tuple[int, ...]
    rows: dict[int, int]  # P → R
    lengths: tuple[int, ...]  # attention buckets, ascending: the lengths that a cache may have
    empty_state: Callable[[], SlotState]
    empty_cache: Callable[[], Cache]  # of the smallest length
    weights: Callable[[Params], Weights]
    read: Callable[[Params], Params]  # of parts of a tree, wherever they lie, what `weights` takes, in its place
    open: Callable[..., SlotState]
    begin: Callable[..., SlotState]
    stop: Callable[..., SlotState]
    copies: dict[int, Any]  # length → program
    prefills: dict[tuple[int, int], Any]  # (P, length) → program
    decodes: dict[int, Any]  # length → program
    resizes: dict[tuple[int, int], Any]  # (from, to), neighbours → program for one layer
    table: Array | None  # i16 [N, V], mask of actions; None without one
    attention: str  # how they attend to the cache, where that was a choice, and why

    @property
    def plan(self) -> str:
        """What was compiled, in one line."""
        prefills = ", ".join(f"{self.rows[p]}x{p} over {c}" for p, c in sorted(self.prefills))
        decodes = ", ".join(map(str, sorted(self.decodes)))
        chosen = f"; {self.attention}" if self.attention else ""
        return f"{self.count} sampler programs: prefill {prefills}; decode {decodes}{chosen}"

    @property
    def count(self) -> int:
        return len(self.prefills) + len(self.decodes) + len(self.copies) + len(self.resizes) + 6

    def fitted(self, cache: Cache, needed: int) -> Cache:
        """The cache in the smallest length of at least `needed` columns, which must be few enough; `cache` is given up.

        Goes from neighbour to neighbour and layer by layer, so that no more than one layer is there twice.
        """
        target = next(length for length in self.lengths if length >= needed)
        while (length := cache_length(cache)) != target:
            at = self.lengths.index(length) + (1 if target > length else -1)
            resize, layers = self.resizes[length, self.lengths[at]], []
            for layer in cache:
                layers.append(resize(layer))
                jax.tree.map(lambda buffer: buffer.delete(), layer)
            cache = tuple(layers)
        return cache

    def prefill(
        self, weights: Weights, cache: Cache, state: SlotState, slots: np.ndarray, tokens: np.ndarray, *rest: np.ndarray
    ) -> tuple[Cache, SlotState]:
        """`programs.prefill` for a cache of this length and tokens of this bucket."""
        program = self.prefills[tokens.shape[1], cache_length(cache)]
        return program(weights, cache, state, slots, tokens, *rest, self.table)

    def decode(self, weights: Weights, cache: Cache, state: SlotState) -> tuple[Cache, SlotState, Array]:
        """`programs.decode` for a cache of this length."""
        return self.decodes[cache_length(cache)](weights, cache, state, self.table)

    def copy(self, cache: Cache, source: int, target: int) -> Cache:
        """`cache` with the row of slot `source`, whose first columns hold the same tokens, in that of `target` too."""
        return self.copies[cache_length(cache)](cache, np.int32(source), np.int32(target))


def prefill_rows(section: SamplingSection) -> dict[int, int]:
    """R of each prefill bucket: as many as hold the tokens of a call of the smallest, and at least one."""
    tokens = section.prefill_rows * section.prefill_buckets[0]
    return {bucket: max(1, tokens // bucket) for bucket in section.prefill_buckets}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shapes:
    """What goes in and out of the programs, with its place on the mesh."""

    state: Any
    weights: Any
    caches: dict[int, Any]  # by length
    params: Any
    table: Any  # of the mask of actions; None without one

    @classmethod
    def of(cls, network: Network, section: SamplingSection, mesh: Mesh, states: int = 0) -> Shapes:
        key = jax.random.key(0)
        whole = {**jax.eval_shape(network.init, key), **jax.eval_shape(network.init_base, key)}
        params = jax.eval_shape(lambda whole: as_read(network, whole), whole)
        axes = {name: part for name, part in {**network.axes(), **network.base_axes()}.items() if name != "critic"}
        weights = jax.eval_shape(lambda params: Weights.of(network, params, section.cache_length), params)
        table: Any = None if weights.sin is None else (None, None, None)  # names of no axis
        weight_axes = Weights(
            outside=network.trunk(axes)["outside"], layers=network.unstacked_axes(), sin=table, cos=table
        )
        state = jax.eval_shape(lambda: empty_state(section.slots, section.max_action_tokens, states > 0))
        table_shape = (states, network.config.vocab_rows)
        row = cache_sharding(mesh, slots=section.slots, kv_heads=network.config.kv_heads)
        caches = {}
        for length in section.attention_buckets:
            shapes = jax.eval_shape(lambda length=length: _empty_cache(network, section, length))
            caches[length] = _placed(shapes, jax.tree.map(lambda _: row, shapes))
        return cls(
            state=_placed(state, jax.tree.map(lambda _: replicated(mesh), state)),
            weights=_placed(weights, named_shardings(mesh, weight_axes, weights)),
            caches=caches,
            params=_placed(params, named_shardings(mesh, axes, params)),
            table=jax.ShapeDtypeStruct(table_shape, jnp.int16, sharding=replicated(mesh)) if states else None,
        )


class Builder:
    """Compiles single programs of the plan; nothing is placed on a device, which may be one that is not here."""

    def __init__(
        self, network: Network, section: SamplingSection, stop_ids: tuple[int, ...], mesh: Mesh, states: int = 0
    ):
        """
        Args:
            network: of `Network.for_sampling`.
            states: N of the mask of actions; 0 without one.
        """
        self.rows = prefill_rows(section)
        self.shapes = Shapes.of(network, section, mesh, states)
        self._network, self._section, self._stop_ids = network, section, stop_ids
        self._everywhere = replicated(mesh)

    def row(self, *shape: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        """Shape of a small argument."""
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self._everywhere)

    def compiled(self, function: Callable[..., Any], out: Any, donate: Sequence[int], *arguments: Any) -> Any:
        """`function` for arguments of these shapes, with results placed as `out` says."""
        where = jax.tree.map(lambda shape: shape.sharding, out)
        return jax.jit(function, donate_argnums=tuple(donate), out_shardings=where).lower(*arguments).compile()

    def prefill(self, tokens: int, length: int) -> Any:
        """`programs.prefill` of a bucket, over a cache of this length."""
        r, row = self.rows[tokens], self.row
        arguments = (row(r), row(r, tokens), row(r), row(r), row(r, dtype=bool), row(r))
        cache, state = self.shapes.caches[length], self.shapes.state
        return self.compiled(
            lambda *args: prefill(self._network, self._stop_ids, *args),
            (cache, state),
            (1, 2),
            self.shapes.weights,
            cache,
            state,
            *arguments,
            self.shapes.table,
        )

    def decode(self, length: int) -> Any:
        """`programs.decode` over a cache of this length."""
        cache, state = self.shapes.caches[length], self.shapes.state
        packed = self.row(self._section.slots, 2 + 2 * self._section.max_action_tokens)
        return self.compiled(
            lambda *args: decode(self._network, self._stop_ids, self._section.decode_chunk, *args),
            (cache, state, packed),
            (1, 2),
            self.shapes.weights,
            cache,
            state,
            self.shapes.table,
        )

    def resize(self, old: int, new: int) -> Any:
        """`kv_cache.resized` of one layer."""
        caches = self.shapes.caches
        return self.compiled(lambda layer: resized(layer, new), caches[new][0], (), caches[old][0])


def compile_programs(
    network: Network,
    section: SamplingSection,
    stop_ids: tuple[int, ...],
    mesh: Mesh,
    table: np.ndarray | None = None,
) -> Programs:
    """Compiles every program of the plan, two at a time.

    Args:
        table: of the mask of actions, i16 [N, V]; None without one.
    """
    masked = table is not None
    attention, chosen = choose_attention(network.config, section, mesh)
    network = network.for_sampling(mesh, attention)
    build = Builder(network, section, stop_ids, mesh, len(table) if masked else 0)
    state, caches, row, compiled = build.shapes.state, build.shapes.caches, build.row, build.compiled
    lengths = tuple(section.attention_buckets)
    neighbours = [*zip(lengths, lengths[1:]), *zip(lengths[1:], lengths)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        # The longest to compile come first.
        prefills = {
            (p, c): pool.submit(build.prefill, p, c) for p in section.prefill_buckets for c in lengths if c >= p
        }
        decodes = {length: pool.submit(build.decode, length) for length in lengths}
        copies = {
            length: pool.submit(compiled, copy_row, cache, (0,), cache, row(), row())
            for length, cache in caches.items()
        }
        resizes = {pair: pool.submit(build.resize, *pair) for pair in neighbours}
        first = caches[lengths[0]]
        return Programs(
            stop_ids=stop_ids,
            attention=chosen,
            rows=build.rows,
            lengths=lengths,
            table=jax.device_put(table, build.shapes.table.sharding) if masked else None,
            empty_state=compiled(lambda: empty_state(section.slots, section.max_action_tokens, masked), state, ()),
            empty_cache=compiled(lambda: _empty_cache(network, section, lengths[0]), first, ()),
            weights=compiled(
                lambda params: Weights.of(network, params, section.cache_length),
                build.shapes.weights,
                (),
                build.shapes.params,
            ),
            read=lambda params: _placed_as_read(network, params, build.shapes.params),
            open=compiled(
                open_slot,
                state,
                (0,),
                state,
                row(),
                row(2, dtype=jnp.uint32),
                row(dtype=jnp.float32),
                row() if masked else None,
            ),
            begin=compiled(begin_slot, state, (0,), state, row(), row(), row(), row()),
            stop=compiled(stop_slot, state, (0,), state, row()),
            copies={key: job.result() for key, job in copies.items()},
            prefills={key: job.result() for key, job in prefills.items()},
            decodes={key: job.result() for key, job in decodes.items()},
            resizes={key: job.result() for key, job in resizes.items()},
        )


def _placed_as_read(network: Network, params: Params, shapes: Any) -> Params:
    """`as_read` of some parts of the parameters, cast where they lie and then moved to where the sampler wants them."""
    wanted = {name: shapes[name] for name in params if name in shapes}
    kept = {name: params[name] for name in wanted}
    pairs = zip(jax.tree.leaves(kept), jax.tree.leaves(wanted), strict=True)
    if not all(one.dtype == other.dtype for one, other in pairs):
        kept = jax.jit(lambda parts: as_read(network, parts))(kept)
    return moved(kept, jax.tree.map(lambda leaf: leaf.sharding, wanted))


def _empty_cache(network: Network, section: SamplingSection, length: int) -> Cache:
    dtype = network.config.compute_dtype if section.cache_dtype == "auto" else section.cache_dtype
    return empty_cache(network.config, slots=section.slots, length=length, dtype=dtype)


def _placed(tree: Any, shardings: Any) -> Any:
    return jax.tree.map(lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where), tree, shardings)
