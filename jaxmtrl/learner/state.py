"""Everything the update changes: parameters, optimizer moments and the step count, born in their shardings."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jaxmtrl.learner.eight_bit import is_moment8
from jaxmtrl.learner.optimizer import Optimizer
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.sharding import in_host_memory, named_shardings, replicated


@flax.struct.dataclass
class TrainState:
    """What a checkpoint of the learner holds."""

    params: Any  # {"policy": …, "critic": …}
    opt_state: Any  # the same two keys
    step: jax.Array  # i32 [], optimizer steps taken in this stage


def params_shardings(network: Network, mesh: Mesh) -> Any:
    """The sharding of every parameter."""
    return named_shardings(mesh, network.axes(), jax.eval_shape(network.init, jax.random.key(0)))


def state_shardings(network: Network, optimizer: Optimizer, mesh: Mesh) -> TrainState:
    """The sharding of every array of the state; a moment lies where its parameter lies."""
    return jax.tree.map(lambda leaf: leaf.sharding, abstract_state(network, optimizer, mesh))


def abstract_base(network: Network, mesh: Mesh) -> Any:
    """Shape, dtype and sharding of what lies under adapters (`network.init_base`); {} without them."""
    shapes = jax.eval_shape(network.init_base, jax.random.key(0))
    placed = named_shardings(mesh, network.base_axes(), shapes)
    return jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), shapes, placed)


def abstract_state(network: Network, optimizer: Optimizer, mesh: Mesh) -> TrainState:
    """Shape, dtype and sharding of every array of the state: what a checkpoint is restored into."""
    params = jax.eval_shape(network.init, jax.random.key(0))
    shardings, everywhere = params_shardings(network, mesh), replicated(mesh)

    def place(leaf: Any, sharding: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    def beside(moment: Any, param: Any, names: tuple[str | None, ...]) -> Any:
        """Lies where its parameter lies, if it has its dimensions; sums over some of those are small and everywhere."""

        def put(leaf: Any) -> Any:
            at = named_shardings(mesh, names, leaf) if len(leaf.shape) == len(param.shape) else everywhere
            return place(leaf, in_host_memory(at) if optimizer.on_host and leaf.shape else at)

        return jax.tree.map(put, moment)

    axes = network.axes()
    moments = {
        name: optax.tree.map_params(
            half,
            beside,
            jax.eval_shape(optimizer.init, params)[name],
            params[name],
            axes[name],
            transform_non_params=lambda leaf: place(leaf, everywhere),
            is_leaf=is_moment8,
        )
        for name, half in optimizer.halves.items()
    }
    return TrainState(
        params=jax.tree.map(place, params, shardings),
        opt_state=moments,
        step=place(jax.ShapeDtypeStruct((), jnp.int32), everywhere),
    )


def init_state(
    network: Network, optimizer: Optimizer, mesh: Mesh, key: jax.Array, policy: Any | None = None
) -> TrainState:
    """Fresh parameters and moments; no device ever holds more than its part.

    Args:
        policy: the policy's parameters where they are not fresh; their buffers are given up.
    """

    def init(key: jax.Array, policy: Any | None) -> TrainState:
        params = network.init(key)
        if policy is not None:
            params = {**params, "policy": policy}
        return TrainState(params=params, opt_state=optimizer.init(params), step=jnp.zeros((), jnp.int32))

    shardings = state_shardings(network, optimizer, mesh)
    return jax.jit(init, out_shardings=shardings, donate_argnums=1)(key, policy)


def restart(params: Any, network: Network, optimizer: Optimizer, mesh: Mesh) -> TrainState:
    """The state a new stage starts from: the given parameters, zero moments, step 0."""
    shardings = state_shardings(network, optimizer, mesh)
    opt_state = jax.jit(optimizer.init, out_shardings=shardings.opt_state)(params)
    step = jax.jit(lambda: jnp.zeros((), jnp.int32), out_shardings=shardings.step)()
    return TrainState(params=params, opt_state=opt_state, step=step)
