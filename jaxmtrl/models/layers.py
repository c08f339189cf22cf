"""The parts of a decoder block: norm, grouped-query attention, gated MLP.

Letters: B rows, T tokens, D embed, N heads, K kv heads, H head dim, F mlp, C cache length.
Softmax and norms are computed in f32 whatever the activations' dtype.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from jaxmtrl.models.columns import Columns, read_columns, write_columns
from jaxmtrl.models.projection import Projections
from jaxmtrl.models.rope import rotate

Array = jax.Array

_FEW_QUERIES = 16  # of one key-value head


def weight(key: Array, shape: tuple[int, ...], axes: tuple[str | None, ...], *, fan_in: int, scale: float = 1.0):
    """A parameter drawn from a normal of variance scale²/fan_in that carries its logical axis names."""
    return nnx.Param(jax.random.normal(key, shape, jnp.float32) * (scale * fan_in**-0.5), axes=axes)


def bias(shape: tuple[int, ...], axes: tuple[str | None, ...]):
    """An additive parameter that starts at zero."""
    return nnx.Param(jnp.zeros(shape, jnp.float32), axes=axes)


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
        self.rope = config.rope
        self.adapt(config.lora, key, ("query", "key", "value", "out"))

    def project(self, x: Array, positions: Array, noise: Array | None = None) -> tuple[Array, Array, Array]:
        """Rotated queries [B, T, N, H] and keys [B, T, K, H], and values [B, T, K, H]."""
        query = self.through("query", "btd,dnh->btnh", x, noise)
        key = self.through("key", "btd,dkh->btkh", x, noise)
        value = self.through("value", "btd,dkh->btkh", x, noise)
        if self.biased:
            query = query + self.query_bias[...].astype(x.dtype)
            key = key + self.key_bias[...].astype(x.dtype)
            value = value + self.value_bias[...].astype(x.dtype)
        if self.normed:  # each head by itself, before it is turned
            query, key = self.query_norm(query), self.key_norm(key)
        frequencies, amplitude = self.rope.frequencies(), self.rope.amplitude()
        query = rotate(query, positions, frequencies, amplitude)
        key = rotate(key, positions, frequencies, amplitude)
        return query, key, value

    def __call__(self, x: Array, positions: Array, segment_ids: Array, noise: Array | None = None) -> Array:
        """Full-row attention: a token sees itself and the earlier tokens of its own segment."""
        query, key, value = self.project(x, positions, noise)
        mixed = attend_rows(query, key, value, segment_ids)
        return self.through("out", "btnh,nhd->btd", mixed, noise)

    def cached(
        self, x: Array, positions: Array, cache: tuple[Columns, Columns]
    ) -> tuple[Array, tuple[Columns, Columns]]:
        """Writes T new keys and values into the cache and attends to what each token may see of it.

        Args:
            x: [B, T, D].
            positions: i32 [B, T], cache column of each token; columns ≥ C are dropped (padding).
            cache: keys and values, each [B, K, C, H].
        """
        query, key, value = self.project(x, positions)
        keys, values = cache
        rows = jnp.arange(x.shape[0])[:, None]
        keys, values = write_columns(keys, rows, positions, key), write_columns(values, rows, positions, value)
        mixed = attend_cache(query, read_columns(keys, x.dtype), read_columns(values, x.dtype), positions)
        return self.through("out", "btnh,nhd->btd", mixed), (keys, values)


def attend_rows(query: Array, keys: Array, values: Array, segment_ids: Array) -> Array:
    """Causal attention within segments, in blocks of queries that never compute the keys after them.

    Faster on CPU than one masked product over the whole square: about half the work, and pieces that fit the cache.
    A padding token sees padding only; its output is finite and means nothing.

    Args:
        query: [B, T, N, H].
        keys, values: [B, T, K, H].
        segment_ids: i32 [B, T].
    """
    tokens = query.shape[1]
    keys, values = keys.swapaxes(1, 2), values.swapaxes(1, 2)  # [B, K, T, H]
    columns, blocks = jnp.arange(tokens), []
    for start in range(0, tokens, width := max(64, -(-tokens // 8))):
        stop = min(start + width, tokens)
        same = segment_ids[:, start:stop, None] == segment_ids[:, None, :stop]
        seen = same & (columns[:stop] <= columns[start:stop, None])  # [B, block, stop]
        blocks.append(attend(query[:, start:stop], keys[:, :, :stop], values[:, :, :stop], seen))
    return jnp.concatenate(blocks, axis=1)


def attend_cache(query: Array, keys: Array, values: Array, positions: Array) -> Array:
    """Attention of queries [B, T, N, H] over cached keys and values [B, K, C, H]; position p sees c ≤ p."""
    return attend(query, keys, values, jnp.arange(keys.shape[2]) <= positions[:, :, None])


def attend(query: Array, keys: Array, values: Array, seen: Array) -> Array:
    """softmax(q·k / √H) · v over the keys that are seen, in f32 where it matters.

    Args:
        query: [B, T, N, H].
        keys, values: [B, K, C, H].
        seen: bool [B, T, C].

    Returns:
        [B, T, N, H]; where nothing is seen, a finite mean of everything.
    """
    batch, tokens, heads, width = query.shape
    kv_heads, columns = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    # One plain batched product over B·K: twice as fast on CPU as the einsum that names every axis.
    rows = (batch * kv_heads, group * tokens, width)
    grouped = query.reshape(batch, tokens, kv_heads, group, width).transpose(0, 2, 3, 1, 4).reshape(rows)
    keys, values = (x.reshape(batch * kv_heads, columns, width).astype(query.dtype) for x in (keys, values))
    if group * tokens <= _FEW_QUERIES:
        # Few queries and many keys, as in decode: with the keys first XLA on CPU need not transpose them at every step,
        # which takes four times as long as the product. The barrier keeps it from turning the product round itself.
        scores = jax.lax.optimization_barrier(jnp.einsum("xch,xqh->xcq", keys, grouped)).swapaxes(1, 2)
    else:
        scores = jnp.einsum("xqh,xch->xqc", grouped, keys)
    scores = scores.astype(jnp.float32) * width**-0.5
    scores = jnp.where(seen[:, None], scores.reshape(batch, heads, tokens, columns), jnp.finfo(jnp.float32).min)
    shares = jax.nn.softmax(scores, axis=-1).reshape(batch * kv_heads, group * tokens, columns).astype(query.dtype)
    mixed = jnp.einsum("xqc,xch->xqh", shares, values)
    return mixed.reshape(batch, heads, tokens, width).transpose(0, 2, 1, 3)


class GatedMlp(Projections):
    """silu(x·gate) * (x·up) · down (Shazeer, arXiv 2002.05202)."""

    def __init__(self, config, key: Array):
        gate, up, down = jax.random.split(key, 3)
        d, f = config.embed, config.mlp
        self.gate = weight(gate, (d, f), ("embed", "mlp"), fan_in=d)
        self.up = weight(up, (d, f), ("embed", "mlp"), fan_in=d)
        self.down = weight(down, (f, d), ("mlp", "embed"), fan_in=f, scale=(2 * config.layers) ** -0.5)
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

    def __call__(self, x: Array, positions: Array, segment_ids: Array, noise: Array | None = None) -> Array:
        one, other = (None, None) if noise is None else jax.random.split(noise)
        x = x + self.attention(self.attention_norm(x), positions, segment_ids, one)
        return x + self.mlp(self.mlp_norm(x), other)

    def cached(
        self, x: Array, positions: Array, cache: tuple[Columns, Columns]
    ) -> tuple[Array, tuple[Columns, Columns]]:
        """As `__call__`, over a cache; see `Attention.cached`."""
        mixed, cache = self.attention.cached(self.attention_norm(x), positions, cache)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), cache
