"""AdamW (or one that remembers less) with one learning rate for the policy and one for the critic.

The two halves keep separate states, so that a stage that trains one of them leaves the other's weights and moments
exactly as they were.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxmtrl.config.sections import OptimizerSection
from jaxmtrl.learner.eight_bit import scale_by_adam8
from jaxmtrl.models.decoder import Network

FINAL_SHARE = 0.1  # of the peak rate, at the end of a decay


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """How gradients move parameters {"policy": …, "critic": …}."""

    halves: Mapping[str, optax.GradientTransformation]  # one a top-level key of the parameters
    gradient_clip: float  # global norm, over what is trained, above which gradients are scaled down
    on_host: bool = False  # moments wait in the host's memory (`state.abstract_state` puts them there)

    def init(self, params: dict[str, Any]) -> dict[str, Any]:
        """Zero moments, whatever dtype the parameters have."""
        return {name: half.init(_f32(params[name])) for name, half in self.halves.items()}

    def step(
        self, grads: dict[str, Any], opt_state: dict[str, Any], params: dict[str, Any], *, norm: jax.Array
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """One step of the halves that `grads` has; the others come back untouched.

        Args:
            grads: tree of f32 gradients, with one key for every half that is trained.
            norm: f32 [], global norm of `grads`.

        Returns:
            (params, opt_state).
        """
        scale = jnp.minimum(1.0, self.gradient_clip / jnp.maximum(norm, jnp.finfo(jnp.float32).tiny))
        params, opt_state = dict(params), dict(opt_state)
        for name, half_grads in grads.items():
            scaled = jax.tree.map(lambda grad: grad * scale, half_grads)
            moments = self._moved(opt_state[name], jax.memory.Space.Device)
            updates, moments = self.halves[name].update(scaled, moments, _f32(params[name]))
            opt_state[name] = self._moved(moments, jax.memory.Space.Host)
            params[name] = optax.apply_updates(params[name], updates)
        return params, opt_state

    def _moved(self, moments: Any, where: Any) -> Any:
        """Arrays of the moments brought to a memory, if they do not stay on the device; counts always do."""
        if not self.on_host:
            return moments
        return jax.tree.map(lambda leaf: jax.device_put(leaf, where) if leaf.ndim else leaf, moments)


def make_optimizer(
    section: OptimizerSection,
    network: Network,
    *,
    learning_rate: float,
    critic_learning_rate: float,
    total_steps: int,
    warmup_steps: int,
) -> Optimizer:
    """The optimizer as configured; its state has the same layout whatever the stage.

    Args:
        learning_rate, critic_learning_rate: peak rates of the two halves.
        total_steps: optimizer steps of the stage; a decay ends there.
        warmup_steps: steps of linear warm-up; 0 starts at the peak; the critic may have its own by config.
    """
    axes = network.axes()
    rates = {"policy": learning_rate, "critic": critic_learning_rate}
    own = section.critic_warmup_steps
    warmups = {"policy": warmup_steps, "critic": warmup_steps if own is None else own}
    halves = {
        name: optax.chain(
            _direction(section),
            optax.add_decayed_weights(
                section.weight_decay,
                mask=jax.tree.map(is_matrix, axes[name], is_leaf=lambda node: isinstance(node, tuple)),
            ),
            optax.scale_by_learning_rate(_schedule(section, rate, warmup_steps=warmups[name], total_steps=total_steps)),
        )
        for name, rate in rates.items()
    }
    return Optimizer(halves=halves, gradient_clip=section.gradient_clip, on_host=section.memory == "host")


def _direction(section: OptimizerSection) -> optax.GradientTransformation:
    """Where to go, before weight decay and the rate."""
    if section.name == "adamw8":
        return scale_by_adam8(section.b1, section.b2, section.eps)
    if section.name == "adafactor":
        # Shazeer & Stern, arXiv 1804.04235, without relative steps: the configured rate is the rate.
        return optax.chain(optax.scale_by_factored_rms(), optax.clip_by_block_rms(1.0))
    return optax.scale_by_adam(section.b1, section.b2, section.eps)


def is_matrix(names: tuple[str | None, ...]) -> bool:
    """Whether a weight with these dimensions is a matrix; being stacked by layer, or cut into heads, makes none."""
    return len([name for name in names if name not in ("layers", "head_dim")]) >= 2


def _schedule(section: OptimizerSection, peak: float, *, warmup_steps: int, total_steps: int) -> optax.Schedule:
    """The rate of optimizer step 0, 1, …: linear warm-up whose first step is peak / warmup_steps, then the decay."""
    decay = section.decay

    def rate(step: Any) -> Any:
        warm = jnp.minimum(1.0, (step + 1) / max(1, warmup_steps))
        if decay == "steps":
            drops = jnp.maximum(step - warmup_steps, 0) // section.decay_every
            return peak * warm * section.decay_factor**drops
        progress = jnp.clip((step - warmup_steps) / max(1, total_steps - warmup_steps), 0.0, 1.0)
        left = {"constant": 1.0, "linear": 1 - progress, "cosine": 0.5 * (1 + jnp.cos(jnp.pi * progress))}[decay]
        return peak * warm * (FINAL_SHARE + (1 - FINAL_SHARE) * left)

    return rate


def _f32(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)
