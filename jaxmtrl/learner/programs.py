"""The learner's compiled programs: each is compiled once a shape, ahead of its call, with pinned output shardings.

The functions they are made of are pure and live beside this file; here is only what to compile, and how often it was.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxmtrl.batch import Targets
from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.learner.device import DeviceBatch
from jaxmtrl.learner.dials import Dials, constant_dials
from jaxmtrl.learner.elastic import Anchor, fisher_diagonal
from jaxmtrl.learner.objective import IMITATION, Kind, Objective
from jaxmtrl.learner.optimizer import Optimizer
from jaxmtrl.learner.score import Scores
from jaxmtrl.learner.state import TrainState, abstract_state, params_shardings, state_shardings
from jaxmtrl.learner.targets import TargetMetrics, make_targets
from jaxmtrl.learner.update import UpdateMetrics, mean_loss, score_batch, update
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.sharding import replicated, rows_sharding


class Learner:
    """What a run calls to score, assign credit and learn; one instance serves all its stages."""

    def __init__(
        self,
        network: Network,
        mesh: Mesh,
        *,
        optimizers: Mapping[Kind, Optimizer],
        algorithm: AlgorithmSection,
        temperature: float,
        base: Any = None,
        dropout_seed: int | None = None,
    ):
        """
        Args:
            optimizers: one for each kind of update the run will ask for.
            temperature: of sampling in training.
            base: placed parameters beside those that are trained, `network.init_base`; None where there are none.
            dropout_seed: what dropout in imitation is drawn from; None leaves everything in.
        """
        self.compilations: collections.Counter[str] = collections.Counter()  # program name → times compiled
        self._network = network
        self._mesh = mesh
        self._optimizers = optimizers
        self._algorithm = algorithm
        self._temperature = temperature
        self._base = base or {}
        self.dropout_seed = dropout_seed
        self._programs: dict[Any, Callable[..., Any]] = {}

    def score(self, params: Any, batch: DeviceBatch) -> Scores:
        """Log-probs, entropies and values of a batch, f32 [n, M, T]; of the policy or of a reference's parameters."""
        return self._call("score", self._score, self._base, params, batch, placed=lambda: rows_sharding(self._mesh))

    def _score(self, base: Any, params: Any, batch: DeviceBatch) -> Scores:
        return score_batch(self._network, {**base, **params}, batch, temperature=self._temperature)

    def fisher(self, params: Any, batch: DeviceBatch) -> Any:
        """How much each of the policy's parameters counts for the actions of a batch it has played; f32, like them."""

        def run(base: Any, params: Any, batch: DeviceBatch) -> Any:
            return fisher_diagonal(self._network, params, batch, temperature=self._temperature, base=base)

        def placed() -> Any:
            return params_shardings(self._network, self._mesh)["policy"]

        return self._call("fisher", run, self._base, params, batch, placed=placed)

    def targets(
        self, batch: DeviceBatch, scores: Scores, ref_logprobs: jax.Array | None = None, dials: Dials | None = None
    ) -> tuple[Targets, TargetMetrics]:
        """Credit for every action token; the old log-probs are those of `scores`, never the sampler's.

        `dials` None means those of the config, here and in `update`.
        """

        def run(
            batch: DeviceBatch, scores: Scores, ref: jax.Array | None, dials: Dials
        ) -> tuple[Targets, TargetMetrics]:
            return make_targets(batch.rows, scores, ref, self._algorithm, dials)

        def placed() -> Any:
            return rows_sharding(self._mesh), replicated(self._mesh)

        return self._call("targets", run, batch, scores, ref_logprobs, self._placed(dials), placed=placed)

    def update(
        self,
        kind: Kind,
        state: TrainState,
        batch: DeviceBatch,
        targets: Targets | None,
        order: np.ndarray,
        dials: Dials | None = None,
        anchor: Anchor | None = None,
    ) -> tuple[TrainState, UpdateMetrics]:
        """Learns from a batch; `state` is given up (its buffers are reused), also by whoever shares its parameters.

        Args:
            kind: pretrain and sft take the batch as one optimizer step an epoch, the others as algorithm.minibatches.
            targets: None for pretrain and sft.
            order: i32 [epochs, n], of `device.micro_batch_order`.
            anchor: what holds the policy; of `fisher` and `elastic.consolidated`.
        """
        noise = None
        if self.dropout_seed is not None:
            noise = jax.device_put(jax.random.key(self.dropout_seed), replicated(self._mesh))
        placed = jax.device_put(order, replicated(self._mesh))
        args = (state, batch, targets, placed, self._placed(dials), self._base, noise, anchor)
        return self._update(kind, *args)(*args)

    def planned(self, kind: Kind, batch: DeviceBatch) -> Any:
        """The compiled update for batches of these shapes, to look at: nothing is placed or computed.

        The devices need not be here: those of a topology will do.

        Args:
            batch: of `device.abstract_batch`.
        """
        everywhere = replicated(self._mesh)

        def there(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere)

        number, in_loss = batch.rows.rewards, self._algorithm.kl_coef > 0 and self._algorithm.kl_place == "loss"
        targets = Targets(
            advantages=number,
            returns=number,
            old_logprobs=number,
            old_values=number,
            ref_logprobs=number if in_loss else None,
            learn=batch.rows.action_mask,
        )
        epochs = 1 if kind in IMITATION else self._algorithm.epochs
        noise = None if self.dropout_seed is None else there(jax.eval_shape(lambda: jax.random.key(0)))
        rest = (
            jax.ShapeDtypeStruct((epochs, batch.rows.tokens.shape[0]), np.int32, sharding=everywhere),
            jax.tree.map(there, jax.eval_shape(lambda: constant_dials(self._algorithm))),
            self._base,
            noise,
        )
        state = abstract_state(self._network, self._optimizers[kind], self._mesh)
        return self._update(kind, state, batch, None if kind in IMITATION else targets, *rest)

    def planned_score(self, batch: DeviceBatch) -> Any:
        """As `planned`, of `score`."""
        params = abstract_state(self._network, self._optimizers["policy"], self._mesh).params
        return self._compiled("score", self._score, (self._base, params, batch), lambda: rows_sharding(self._mesh))

    def _update(self, kind: Kind, *args: Any) -> Any:
        """The compiled update for arguments of `update.update`, arrays or shapes."""
        optimizer = self._optimizers[kind]
        objective = self._objective(kind)
        minibatches = 1 if kind in IMITATION else self._algorithm.minibatches

        def run(*args: Any) -> tuple[TrainState, UpdateMetrics]:
            return update(self._network, optimizer, objective, minibatches, *args)

        def placed() -> Any:
            return state_shardings(self._network, optimizer, self._mesh), replicated(self._mesh)

        return self._compiled(f"update_{kind}", run, args, placed, donate=(0,))

    def sft_loss(self, params: Any, batch: DeviceBatch) -> jax.Array:
        """Mean imitation loss a token, nats, f32 []; validation."""

        def run(base: Any, params: Any, batch: DeviceBatch) -> jax.Array:
            return mean_loss(self._network, self._objective("sft"), {**base, **params}, batch)

        return self._call("sft_loss", run, self._base, params, batch, placed=lambda: replicated(self._mesh))

    def _placed(self, dials: Dials | None) -> Dials:
        return jax.device_put(dials or constant_dials(self._algorithm), replicated(self._mesh))

    def _objective(self, kind: Kind) -> Objective:
        return Objective(kind=kind, algorithm=self._algorithm, temperature=self._temperature)

    def _call(self, name: str, function: Callable[..., Any], *args: Any, placed: Callable[[], Any]) -> Any:
        return self._compiled(name, function, args, placed)(*args)

    def _compiled(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        placed: Callable[[], Any],
        donate: tuple[int, ...] = (),
    ) -> Any:
        """The program of this name for these shapes, compiled the first time.

        A compiled program refuses other shapes and shardings, so nothing is ever compiled behind our back.
        `placed` gives its output shardings; it is asked only when the program is compiled.
        """
        leaves, structure = jax.tree.flatten(args)
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        key = (name, structure, shapes)
        if key not in self._programs:
            jitted = jax.jit(function, out_shardings=placed(), donate_argnums=donate)
            with jax.set_mesh(self._mesh):
                self._programs[key] = jitted.lower(*args).compile()
            self.compilations[name] += 1
        return self._programs[key]


def named(metrics: UpdateMetrics | TargetMetrics, kind: Kind, algorithm: AlgorithmSection) -> dict[str, float]:
    """Metrics by the names they are logged under; what a stage has none of, or took no step for, is absent.

    Fetches from the device: one read a metric tree, and it waits for the program that makes it.
    """
    host = jax.device_get(metrics)
    if isinstance(host, TargetMetrics):
        return _named_targets(host, algorithm) if host.tokens else {}
    if not host.steps:
        return {}
    parts = host.parts
    numbers = {
        "loss/total": parts.loss,
        "policy/entropy_nats": parts.entropy,
        "update/gradient_norm": host.gradient_norm,
        "update/steps": host.steps,
    }
    if kind in IMITATION:
        numbers |= {f"loss/{kind}": parts.policy_loss}
    if kind == "policy":
        numbers |= {
            "loss/policy": parts.policy_loss,
            "kl/old_nats": parts.kl_old,
            "policy/clip_fraction": parts.clip_fraction,
            "policy/first_clip_fraction": host.first_clip_fraction,
            "policy/ratio_mean": parts.ratio,
        }
        if algorithm.ewc_coef > 0:
            numbers |= {"loss/elastic": parts.elastic}
    if kind == "critic" or (kind == "policy" and algorithm.name == "ppo"):
        numbers |= {"loss/value": parts.value_loss}
    return {name: float(number) for name, number in numbers.items()}


def _named_targets(host: TargetMetrics, algorithm: AlgorithmSection) -> dict[str, float]:
    numbers = {
        "batch/action_tokens": host.tokens,
        "advantage/mean": host.advantage_mean,
        "advantage/std": host.advantage_std,
        "return/mean": host.return_mean,
        "policy/sampled_entropy_nats": host.entropy,
        "logprob_gap/mean_nats": host.logprob_gap_mean,
        "logprob_gap/max_nats": host.logprob_gap_max,
        "batch/learnt_share": host.learnt,
    }
    if algorithm.group_size > 1:
        numbers |= {"batch/uniform_groups": host.uniform_groups}
    if algorithm.importance_cap > 0:
        numbers |= {"policy/importance_mean": host.importance_mean}
    if algorithm.name == "ppo":
        numbers |= {"value/mean": host.value_mean, "value/explained_variance": host.explained_variance}
    if host.kl_reference is not None:
        numbers |= {"kl/reference_nats": host.kl_reference}
    return {name: float(number) for name, number in numbers.items()}
