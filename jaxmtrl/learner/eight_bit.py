"""Adam whose moments take two bytes a parameter instead of eight (after Dettmers et al., arXiv 2110.02861).

Each block of a moment keeps its largest magnitude in f32 and every number as a share of it in eight bits. The code is
not linear: the first moment is stored by its square root with a sign, and the second by its fourth root, so that steps
are finest near zero, where most moments are: a block holds roots of second moments from the largest down to 1/65,025 of
it. Rounding is random (in proportion, so right on average): a running mean moves by less than a step at most updates,
and rounding to the nearest would hold it where it is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import optax

Array = jax.Array

_BLOCKS = (128, 64, 32)  # numbers along the last dimension that share a scale: the largest that divides it
SMALLEST = 4096  # parameters; smaller arrays (norms, biases) keep f32 moments, as their noise reaches every token


@flax.struct.dataclass
class Moment8:
    """One array's moment: |x| = scale * (code / top) ** power of the moment's kind."""

    codes: Array  # i8 or u8, of the parameter's shape
    scales: Array  # f32 [..., last / block], each block's largest magnitude (of the root, for the second moment)


class State8(NamedTuple):
    """What `scale_by_adam8` remembers."""

    count: Array  # i32 []
    mu: Any  # tree of Moment8, or f32 arrays where parameters are few
    nu: Any


def scale_by_adam8(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """`optax.scale_by_adam` with moments in eight bits; updates are f32."""

    def init(params: Any) -> State8:
        mu = jax.tree.map(lambda x: _packed(jnp.zeros(x.shape, jnp.float32), 0, signed=True), params)
        nu = jax.tree.map(lambda x: _packed(jnp.zeros(x.shape, jnp.float32), 0, signed=False), params)
        return State8(count=jnp.zeros((), jnp.int32), mu=mu, nu=nu)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        leaves, structure = jax.tree.flatten(updates)
        kept = [structure.flatten_up_to(tree) for tree in (state.mu, state.nu)]
        steps, mus, nus = [], [], []
        for number, (grad, mu, nu) in enumerate(zip(leaves, *kept)):
            grad = grad.astype(jnp.float32)
            mean = b1 * _unpacked(mu) + (1 - b1) * grad
            square = b2 * jnp.square(_unpacked(nu)) + (1 - b2) * jnp.square(grad)
            root = jnp.sqrt(square)
            steps.append((mean / (1 - b1**count)) / (root / jnp.sqrt(1 - b2**count) + eps))
            seed = count * jnp.int32(len(leaves)) + number
            mus.append(_packed(mean, 2 * seed, signed=True))
            nus.append(_packed(root, 2 * seed + 1, signed=False))
        return structure.unflatten(steps), State8(count=count, mu=structure.unflatten(mus), nu=structure.unflatten(nus))

    return optax.GradientTransformation(init, update)


def is_moment8(node: Any) -> bool:
    """For `is_leaf`."""
    return isinstance(node, Moment8)


def block_of(shape: tuple[int, ...]) -> int:
    """Numbers a block; 0 for an array that keeps f32 moments."""
    if len(shape) < 2 or math.prod(shape) < SMALLEST:
        return 0
    return next((block for block in _BLOCKS if shape[-1] % block == 0), 0)


def _packed(x: Array, seed: Array | int, *, signed: bool) -> Array | Moment8:
    """`x` as a Moment8, or as it is where it is small; not negative unless signed."""
    block = block_of(x.shape)
    if not block:
        return x
    grouped = x.reshape(*x.shape[:-1], -1, block)
    magnitude, top = jnp.abs(grouped), 127.0 if signed else 255.0
    scales = jnp.max(magnitude, axis=-1, keepdims=True)
    share = magnitude / jnp.where(scales > 0, scales, 1.0) * top**2  # code² of an exact code
    low = jnp.floor(jnp.sqrt(share))
    # Up with the probability that makes the mean of what is read back the number itself.
    up = _dither(grouped.shape, seed) < (share - low**2) / (2 * low + 1)
    codes = jnp.minimum(low + up, top)
    if signed:
        codes = jnp.where(grouped < 0, -codes, codes)
    else:
        codes = jnp.where(grouped > 0, jnp.maximum(codes, 1.0), codes)  # a divisor that was not 0 never becomes 0
    kind = jnp.int8 if signed else jnp.uint8
    return Moment8(codes=codes.reshape(x.shape).astype(kind), scales=scales[..., 0])


def _unpacked(moment: Array | Moment8) -> Array:
    """f32 numbers."""
    if not isinstance(moment, Moment8):
        return moment
    signed, shape = moment.codes.dtype == jnp.int8, moment.codes.shape
    codes = moment.codes.astype(jnp.float32).reshape(*moment.scales.shape, -1)
    shares = codes * jnp.abs(codes) / (127.0 if signed else 255.0) ** 2
    return (shares * moment.scales[..., None]).reshape(shape)


def _dither(shape: tuple[int, ...], seed: Array | int) -> Array:
    """Numbers in [0, 1) that look random: a hash of place and seed, which costs less than drawing them.

    The mixing is that of MurmurHash3's last step (Appleby, public domain).
    """
    place = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = math.prod(shape[axis + 1 :]) % 2**32
        place += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride)
    mixed = place * jnp.uint32(0x9E3779B9) + jnp.asarray(seed).astype(jnp.uint32) * jnp.uint32(0x85EBCA6B)
    for factor in (0x85EBCA6B, 0xC2B2AE35):
        mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(factor)
    return (mixed >> 8).astype(jnp.float32) * 2.0**-24
