"""The critic head: how much return is still to come from a hidden state of the policy's trunk."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from jaxmtrl.models.layers import Array, weight


class CriticHead(nnx.Module):
    """One hidden layer on the trunk's normed output; its last layer starts at zero, so every value starts at 0."""

    def __init__(self, config, key: Array):
        self.inner = weight(key, (config.embed, config.embed), ("embed", "mlp"), fan_in=config.embed)
        self.outer = nnx.Param(jnp.zeros((config.embed,), jnp.float32), axes=("mlp",))
        self.bias = nnx.Param(jnp.zeros((), jnp.float32), axes=())

    def __call__(self, hidden: Array) -> Array:
        """hidden [..., D] → f32 [...]."""
        inner = jax.nn.gelu(jnp.einsum("...d,df->...f", hidden, self.inner[...].astype(hidden.dtype)))
        return jnp.einsum("...f,f->...", inner.astype(jnp.float32), self.outer[...]) + self.bias[...]
