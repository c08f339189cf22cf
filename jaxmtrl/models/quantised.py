"""A frozen matrix in few bits: qwix's quantisation, its values packed into whole bytes.

Packed, because a program compiled ahead refuses four-bit arguments that lie on a mesh (jax 0.10).
"""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import qwix

_PACKED: dict[str, Any] = {"int4": jnp.int4, "nf4": jnp.uint4}  # kinds of which two share a byte


@flax.struct.dataclass
class Quantised:
    """What `dequantise` makes a matrix of."""

    values: jax.Array  # i8 of the weight's shape; or u8, whose last dimension is half as long
    scales: jax.Array  # of as many dimensions as the weight, in its dtype
    kind: str = flax.struct.field(pytree_node=False)  # "int8", "int4" or "nf4"


def quantise(weight: jax.Array, kind: str, *, tiled: int, tile: int) -> Quantised:
    """A matrix in few bits, one scale for so many steps of one dimension and for each step of all others.

    Args:
        kind: "int8", "int4", or "nf4" (Dettmers et al., arXiv 2305.14314).
        tiled: the dimension.
        tile: how many of its steps share a scale; where they do not divide it, the largest number below that does.

    Raises:
        ValueError: a four-bit kind with a last dimension of odd length.
    """
    size = weight.shape[tiled]
    steps = next(number for number in range(min(tile, size), 0, -1) if size % number == 0)
    array = qwix.quantize(
        weight,
        {"int8": jnp.int8, "int4": jnp.int4}.get(kind, kind),
        channelwise_axes=[axis for axis in range(weight.ndim) if axis != tiled],
        tiled_axes={tiled: steps},
    )
    values = array.qvalue
    if kind in _PACKED:
        if weight.shape[-1] % 2:
            raise ValueError(f"{kind} packs two values into a byte; the last of {weight.shape} is odd")
        pairs = values.astype(_PACKED[kind]).reshape(*weight.shape[:-1], weight.shape[-1] // 2, 2)
        values = jax.lax.bitcast_convert_type(pairs, jnp.uint8)
    return Quantised(values=values, scales=array.scale, kind=kind)


def dequantise(weight: Quantised) -> jax.Array:
    """The matrix, in the dtype of its scales."""
    values, kind = weight.values, weight.kind
    if kind in _PACKED:
        pairs = jax.lax.bitcast_convert_type(values, _PACKED[kind])
        values = pairs.reshape(*values.shape[:-1], 2 * values.shape[-1])
    qtype = {"int8": jnp.int8, "int4": jnp.int4}.get(kind, kind)
    return qwix.dequantize(qwix.QArray(qvalue=values, scale=weight.scales, qtype=qtype))
