"""Loss and gradient of a batch, measured with the trainer's own compiled programs.

The only place of the diagnosis that calls the learner. Its optimizer moves nothing and remembers the gradient, so what
is measured is what a training step would be given. Letters: B rows, T tokens, E episodes, n micro-batches of M rows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from jaxmtrl.batch import Targets, TokenBatch
from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.learner.device import DeviceBatch, put_batch, row_places
from jaxmtrl.learner.optimizer import Optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.score import Scores
from jaxmtrl.learner.state import TrainState, state_shardings
from jaxmtrl.models.decoder import Network


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one update saw."""

    loss: float
    gradients: Any  # numpy tree of the parameters; 0 for those that do not learn
    scale: float  # mean size of an advantage; the loss may be near 0 by cancellation, this is not

    @property
    def flat(self) -> np.ndarray:
        """f64 [N], all gradients end to end."""
        return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(self.gradients)])


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A host batch and the same on the device."""

    host: TokenBatch
    device: DeviceBatch
    micro_batch_rows: int

    def on_host(self, array: Any) -> np.ndarray:
        """[n, M, T] of the device as [B, T] in the order of the host's rows."""
        flat = np.asarray(array).reshape(-1, array.shape[-1])
        return flat[self._places]

    def on_device(self, array: np.ndarray, like: Any) -> jax.Array:
        """[B, T] in the order of the host's rows as [n, M, T], 0 on rows that were added."""
        dealt = np.zeros((like.shape[0] * like.shape[1], like.shape[2]), array.dtype)
        dealt[self._places] = array
        return jax.device_put(dealt.reshape(like.shape), like.sharding)

    @property
    def _places(self) -> np.ndarray:
        rows = self.host.tokens.shape[0]
        return row_places(rows, used=int(self.device.used), micro_batch_rows=self.micro_batch_rows)


class Gauge:
    """Measures under one algorithm; compiled programs are kept as in a run."""

    def __init__(self, network: Network, mesh: Mesh, algorithm: AlgorithmSection, temperature: float, base: Any = None):
        self.algorithm = dataclasses.replace(algorithm, minibatches=1, epochs=1)
        self._network, self._mesh = network, mesh
        # trace(0) remembers the last gradient, scale(0) moves nothing.
        remember = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
        self._optimizer = Optimizer(halves={"policy": remember, "critic": remember}, gradient_clip=float("inf"))
        self._learner = Learner(
            network,
            mesh,
            optimizers={"policy": self._optimizer, "sft": self._optimizer},
            algorithm=self.algorithm,
            temperature=temperature,
            base=base,
        )

    def place(self, batch: TokenBatch, *, micro_batch_rows: int, max_rows: int | None = None) -> Placed:
        """Brings packed rows to the device, cut into micro-batches; all rows must hold tokens."""
        rows = batch.tokens.shape[0]
        device = put_batch(
            batch, micro_batch_rows=micro_batch_rows, max_rows=max(rows, max_rows or rows), mesh=self._mesh
        )
        return Placed(host=batch, device=device, micro_batch_rows=micro_batch_rows)

    def score(self, params: Any, placed: Placed) -> Scores:
        """Log-probs, entropies and values, f32 [n, M, T]."""
        return self._learner.score(params, placed.device)

    def blank_scores(self, placed: Placed) -> Scores:
        """Scores of 0, for credit that is given made-up values."""
        shape = placed.device.rows.tokens.shape
        nothing = jax.device_put(np.zeros(shape, np.float32), placed.device.rows.behaviour_logprobs.sharding)
        return Scores(logprobs=nothing, entropies=nothing, values=nothing)

    def targets(self, placed: Placed, scores: Scores, ref_logprobs: jax.Array | None = None) -> Targets:
        """Credit for every action token."""
        return self._learner.targets(placed.device, scores, ref_logprobs)[0]

    def read(self, params: Any, placed: Placed, targets: Targets) -> Reading:
        """Loss and gradient of one optimizer step on the whole batch; `params` are left alone."""
        order = np.arange(placed.device.rows.tokens.shape[0], dtype=np.int32)[None]
        state, metrics = self._learner.update("policy", self._state(params), placed.device, targets, order)
        if int(metrics.nonfinite):
            raise FloatingPointError("loss or gradient is not finite")
        gradients = {name: jax.device_get(moments[0].trace) for name, moments in state.opt_state.items()}
        mask = np.asarray(placed.device.rows.action_mask)
        sizes = np.abs(np.asarray(targets.advantages)[mask])
        loss = float(metrics.parts.loss) if int(metrics.steps) else 0.0
        return Reading(loss=loss, gradients=gradients, scale=float(sizes.mean()) if sizes.size else 0.0)

    def measure(self, params: Any, placed: Placed, *, reference: Any = None) -> Reading:
        """Score, credit and update as one iteration of training does them.

        Args:
            reference: parameters of the KL reference; None for none.
        """
        scores = self.score(params, placed)
        ref = None if reference is None else self.score(reference, placed).logprobs
        return self.read(params, placed, self.targets(placed, scores, ref))

    def _state(self, params: Any) -> TrainState:
        shardings = state_shardings(self._network, self._optimizer, self._mesh)
        moments = jax.eval_shape(self._optimizer.init, params)
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), moments)
        copied = jax.tree.map(lambda leaf: np.array(leaf), params)  # the update takes its argument's buffers
        return jax.device_put(TrainState(params=copied, opt_state=zeros, step=jnp.zeros((), jnp.int32)), shardings)


def difference(one: Reading, other: Reading) -> float:
    """How far apart two readings are: the larger of the relative differences of loss and gradient."""
    loss = abs(one.loss - other.loss) / max(abs(one.loss), one.scale, 1e-12)
    gradient = np.linalg.norm(one.flat - other.flat) / max(float(np.linalg.norm(one.flat)), 1e-12)
    return float(np.maximum(loss, gradient))  # keeps NaN, unlike max()


def plain(algorithm: AlgorithmSection, **changes: Any) -> AlgorithmSection:
    """The algorithm without what rescales or leaves out, so that its credit can be compared with numbers."""
    return dataclasses.replace(
        algorithm,
        **{
            "whiten_advantages": False,
            "entropy_coef": 0.0,
            "importance_cap": 0.0,
            "drop_uniform_groups": False,
            "overlong": "keep",
            "kl_coef": 0.0,
            "kl_coef_end": None,
            "kl_target": 0.0,
        }
        | changes,
    )
