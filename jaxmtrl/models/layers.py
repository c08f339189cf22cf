"""The parts of a decoder block: norm, grouped-query attention, gated MLP.

Letters: B rows, T tokens, D embed, N heads, K kv heads, H head dim, F mlp, C cache length.
Softmax and norms are computed in f32 whatever the activations' dtype.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxmtrl.models.attention import attend_cache
from jaxmtrl.models.columns import Columns, write_columns
from jaxmtrl.models.projection import Projections
from jaxmtrl.models.rope import Turns, rotate
from jaxmtrl.models.row_attention import attend_rows

Array = jax.Array


def weight(key: Array, shape: tuple[int, ...], axes: tuple[str | None, ...], *, fan_in: int, scale: float = 1.0):
    """A parameter drawn from a normal of variance scale²/fan_in that carries its logical axis names."""
    return nnx.Param(jax.random.normal(key, shape, jnp.float32) * (scale * fan_in**-0.5), axes=axes)


def bias(shape: tuple[int, ...], axes: tuple[str | None, ...]):
    """An additive parameter that starts at zero."""
    return nnx.Param(jnp.zeros(shape, jnp.float32), axes=axes)


class Place(NamedTuple):
    """Where new tokens of B rows go in a cache of S rows and C columns."""

    positions: Array  # i32 [B, T], cache columns; ≥ C is padding, which is dropped
    turns: Turns  # of these positions
    rows: Array | None  # i32 [B], cache rows; ≥ S for an empty one. None: row b is b, and S = B

    def only(self, column: Array) -> Place:
        """The place of one token of each row, [B]."""
        sin, cos = self.turns
        return Place(pick(self.positions, column), (pick(sin, column), pick(cos, column)), self.rows)


def pick(x: Array, column: Array) -> Array:
    """x [B, T, …] at `column` [B] of each row: [B, 1, …]."""
    return jnp.take_along_axis(x, column.reshape(-1, *[1] * (x.ndim - 1)), axis=1)


class RMSNorm(nnx.Module):
    """x / rms(x) * scale (Zhang & Sennrich, arXiv 1910.07467)."""

    def __init__(self, features: int, eps: float):
        self.scale = nnx.Param(jnp.ones((features,), jnp.float32), axes=(None,))
        self.eps = eps

    def __call__(self, x: Array) -> Array:
        x32 = x.astype(jnp.float32)
        normed = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.eps)
        return (normed * self.scale[...]).astype(x.dtype)


class Attention(Projections):
    """Grouped-query self-attention, over a row or over a cache."""

    def __init__(self, config, key: Array):
        query, key_, value, out = jax.random.split(key, 4)
        d, n, k, h = config.embed, config.heads, config.kv_heads, config.head_dim
        self.query = weight(query, (d, n, h), ("embed", "heads", "head_dim"), fan_in=d)
        self.key = weight(key_, (d, k, h), ("embed", "kv_heads", "head_dim"), fan_in=d)
        self.value = weight(value, (d, k, h), ("embed", "kv_heads", "head_dim"), fan_in=d)
        self.out = weight(
            out, (n, h, d), ("heads", "head_dim", "embed"), fan_in=n * h, scale=(2 * config.layers) ** -0.5
        )
        if config.qkv_bias:
            self.query_bias = bias((n, h), ("heads", "head_dim"))
            self.key_bias = bias((k, h), ("kv_heads", "head_dim"))
            self.value_bias = bias((k, h), ("kv_heads", "head_dim"))
        if config.qk_norm:
            self.query_norm, self.key_norm = RMSNorm(h, config.norm_eps), RMSNorm(h, config.norm_eps)
        self.biased, self.normed = config.qkv_bias, config.qk_norm
        self.in_rows, self.over_cache, self.cpu_layout = config.row_attention, config.cache_attention, config.cpu_layout
        self.adapt(config.lora, key, ("query", "key", "value", "out"))

    def ask(self, x: Array, turns: Turns, noise: Array | None = None) -> Array:
        """Rotated queries [B, T, N, H]."""
        query = self.through("query", "btd,dnh->btnh", x, noise)
        if self.biased:
            query = query + self.query_bias[...].astype(x.dtype)
        return rotate(self.query_norm(query) if self.normed else query, turns)  # each head normed by itself

    def offer(self, x: Array, turns: Turns, noise: Array | None = None) -> tuple[Array, Array]:
        """Rotated keys and plain values, [B, T, K, H] each."""
        key = self.through("key", "btd,dkh->btkh", x, noise)
        value = self.through("value", "btd,dkh->btkh", x, noise)
        if self.biased:
            key = key + self.key_bias[...].astype(x.dtype)
            value = value + self.value_bias[...].astype(x.dtype)
        return rotate(self.key_norm(key) if self.normed else key, turns), value

    def __call__(self, x: Array, turns: Turns, segment_ids: Array, noise: Array | None = None) -> Array:
        """Full-row attention: a token sees itself and the earlier tokens of its own segment."""
        mixed = attend_rows(self.ask(x, turns, noise), *self.offer(x, turns, noise), segment_ids, self.in_rows)
        return self.through("out", "btnh,nhd->btd", mixed, noise)

    def cached(
        self, x: Array, at: Place, cache: tuple[Columns, Columns], asking: tuple[Array, Place] | None = None
    ) -> tuple[Array, tuple[Columns, Columns]]:
        """Writes T new keys and values into the cache and attends to what each token may see of it.

        Args:
            x: [B, T, D].
            cache: keys and values, each [S, K, C, H].
            asking: the tokens [B, t, D] that want to know, and their place; None for all of `x`.
        """
        rows = jnp.arange(x.shape[0]) if at.rows is None else at.rows
        new = self.offer(x, at.turns)
        keys, values = (write_columns(old, rows[:, None], at.positions, part) for old, part in zip(cache, new))
        x, at = (x, at) if asking is None else asking
        mixed = attend_cache(self.ask(x, at.turns), keys, values, at.positions, at.rows, self.over_cache)
        return self.through("out", "btnh,nhd->btd", mixed), (keys, values)


class GatedMlp(Projections):
    """silu(x·gate) * (x·up) · down (Shazeer, arXiv 2002.05202)."""

    def __init__(self, config, key: Array):
        gate, up, down = jax.random.split(key, 3)
        d, f = config.embed, config.mlp
        self.gate = weight(gate, (d, f), ("embed", "mlp"), fan_in=d)
        self.up = weight(up, (d, f), ("embed", "mlp"), fan_in=d)
        self.down = weight(down, (f, d), ("mlp", "embed"), fan_in=f, scale=(2 * config.layers) ** -0.5)
        self.cpu_layout = config.cpu_layout
        self.adapt(config.lora, key, ("gate", "up", "down"))

    def __call__(self, x: Array, noise: Array | None = None) -> Array:
        gated = jax.nn.silu(self.through("gate", "btd,df->btf", x, noise))
        return self.through("down", "btf,fd->btd", gated * self.through("up", "btd,df->btf", x, noise), noise)


class Block(nnx.Module):
    """Pre-norm attention and MLP with residual connections."""

    def __init__(self, config, key: Array):
        attention, mlp = jax.random.split(key)
        self.attention_norm = RMSNorm(config.embed, config.norm_eps)
        self.attention = Attention(config, attention)
        self.mlp_norm = RMSNorm(config.embed, config.norm_eps)
        self.mlp = GatedMlp(config, mlp)

    def __call__(self, x: Array, turns: Turns, segment_ids: Array, noise: Array | None = None) -> Array:
        one, other = (None, None) if noise is None else jax.random.split(noise)
        x = x + self.attention(self.attention_norm(x), turns, segment_ids, one)
        return x + self.mlp(self.mlp_norm(x), other)

    def cached(
        self, x: Array, at: Place, cache: tuple[Columns, Columns], last: Array | None = None
    ) -> tuple[Array, tuple[Columns, Columns]]:
        """As `__call__`, over a cache; see `Attention.cached`.

        Args:
            last: i32 [B]; with it all tokens are written, but only that one's output, [B, 1, D], is computed.
        """
        normed, asking = self.attention_norm(x), None
        if last is not None:
            x, asking = pick(x, last), (pick(normed, last), at.only(last))
        mixed, cache = self.attention.cached(normed, at, cache, asking)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), cache
