"""The three things a stage can minimise, as sums over one micro-batch with weights of the whole minibatch."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp

from jaxmtrl.batch import Targets, TokenBatch
from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.learner.dials import Dials, constant_dials
from jaxmtrl.learner.score import Scores, score
from jaxmtrl.models.decoder import Network
from jaxmtrl.rl.losses import (
    clip_fraction,
    clipped_policy_loss,
    clipped_value_loss,
    kl_estimate,
    kl_loss,
    loss_weights,
    policy_ratio,
    pooled_logprobs,
)
from jaxmtrl.rl.turns import turn_buckets

Kind = Literal["pretrain", "sft", "critic", "policy"]
IMITATION: tuple[Kind, ...] = ("pretrain", "sft")  # one loss; each has its own optimizer


@flax.struct.dataclass
class Weights:
    """What each token counts, f32 [..., T]; the denominators are those of everything one optimizer step learns from."""

    policy: jax.Array  # as algorithm.loss_mean says, over what is learnt from: policy loss, entropy bonus, KL
    token: jax.Array  # 1 / action tokens: value loss, imitation loss and metrics


@flax.struct.dataclass
class LossParts:
    """f32 [] sums that add up over the micro-batches of a minibatch to its means."""

    loss: jax.Array  # what is minimised
    policy_loss: jax.Array
    value_loss: jax.Array
    entropy: jax.Array  # nats a token
    kl_old: jax.Array  # k3 estimate of KL(old || policy), nats a token
    kl_reference: jax.Array  # the KL in the loss as algorithm.kl_kind estimates it, nats a token; 0 without
    clip_fraction: jax.Array
    ratio: jax.Array
    elastic: jax.Array  # penalty of leaving what was important for earlier levels; 0 without


@dataclasses.dataclass(frozen=True)
class Objective:
    """What one stage minimises.

    pretrain, sft: minus the log-probability of the tokens under the action mask, at temperature 1.
    critic: the value loss alone; nothing but the critic learns.
    policy: the clipped policy loss, entropy bonus and KL, and for ppo the value loss.
    """

    kind: Kind
    algorithm: AlgorithmSection
    temperature: float  # of sampling; log-probs are taken at it

    @property
    def trained(self) -> tuple[str, ...]:
        """The halves of the parameters that learn."""
        both = ("policy", "critic") if self.algorithm.name == "ppo" else ("policy",)
        return {"critic": ("critic",), "policy": both}.get(self.kind, ("policy",))

    def weights(self, rows: TokenBatch, targets: Targets | None, chosen: jax.Array) -> Weights:
        """The weights of the chosen micro-batches.

        Args:
            rows, targets: fields [n, M, T].
            chosen: bool [n].
        """
        mask = rows.action_mask & chosen[:, None, None]
        learn = mask if targets is None else mask & targets.learn
        episodes = rows.group_ids.shape[0]
        token = loss_weights(mask, rows.segment_ids, num_episodes=episodes, mean="token")
        policy = loss_weights(
            learn,
            rows.segment_ids,
            num_episodes=episodes,
            mean=self.algorithm.loss_mean,
            constant=self.algorithm.loss_constant,
        )
        return Weights(policy=policy, token=token)

    def learns_from(self, weights: Weights) -> jax.Array:
        """The weights of what moves this objective; without any above 0 there is nothing to learn."""
        return weights.policy if self.kind == "policy" else weights.token

    def loss(
        self,
        network: Network,
        params: Any,
        rows: TokenBatch,
        targets: Targets | None,
        weights: Weights,
        dials: Dials | None = None,
        noise: jax.Array | None = None,
    ) -> tuple[jax.Array, LossParts]:
        """The micro-batch's share of the minibatch's loss, and its parts.

        Args:
            rows, targets, weights: fields [M, T]; imitation needs no targets.
            dials: None for those of the config.
            noise: key of dropout, in imitation alone; None leaves everything in.
        """
        algorithm = self.algorithm
        scores = score(
            network,
            params,
            rows,
            temperature=1.0 if self.kind in IMITATION else self.temperature,
            entropy_gradient=self.kind == "policy" and algorithm.entropy_coef > 0,
            noise=noise if self.kind in IMITATION else None,
        )
        if self.kind in IMITATION:
            parts = _imitation(scores, weights)
        elif targets is None:
            raise ValueError(f"a {self.kind} loss needs targets")
        elif self.kind == "critic":
            loss = _value_loss(scores, rows, targets, weights, algorithm)
            parts = dataclasses.replace(
                zero_parts(), loss=loss, value_loss=loss, entropy=_weighted(weights.token, scores.entropies)
            )
        else:
            parts = _policy(scores, rows, targets, weights, algorithm, dials or constant_dials(algorithm))
        return parts.loss, jax.lax.stop_gradient(parts)


def zero_parts() -> LossParts:
    """What a sum of parts starts from."""
    return LossParts(**{field.name: jnp.zeros(()) for field in dataclasses.fields(LossParts)})


def _weighted(weights: jax.Array, per_token: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(weights > 0, weights * per_token, 0.0))


def _imitation(scores: Scores, weights: Weights) -> LossParts:
    loss = -_weighted(weights.token, scores.logprobs)
    return dataclasses.replace(
        zero_parts(), loss=loss, policy_loss=loss, entropy=_weighted(weights.token, scores.entropies)
    )


def _value_loss(
    scores: Scores, rows: TokenBatch, targets: Targets, weights: Weights, algorithm: AlgorithmSection
) -> jax.Array:
    per_token = clipped_value_loss(
        scores.values, targets.old_values, targets.returns, rows.action_mask, value_clip=algorithm.value_clip
    )
    return _weighted(weights.token, per_token)


def _policy(
    scores: Scores, rows: TokenBatch, targets: Targets, weights: Weights, algorithm: AlgorithmSection, dials: Dials
) -> LossParts:
    mask = rows.action_mask
    pair = (_pooled(scores, rows, targets, algorithm), targets.old_logprobs)
    clip = {"clip_low": algorithm.clip_low, "clip_high": algorithm.clip_high}
    surrogate = clipped_policy_loss(*pair, targets.advantages, mask, **clip, dual_clip=algorithm.dual_clip)
    parts = dataclasses.replace(
        zero_parts(),
        policy_loss=_weighted(weights.policy, surrogate),
        entropy=_weighted(weights.token, scores.entropies),
        # The tokens came from the old policy, so it is the one whose KL they estimate.
        kl_old=_weighted(weights.token, kl_estimate(targets.old_logprobs, scores.logprobs, mask, kind="k3")),
        clip_fraction=_weighted(weights.token, clip_fraction(*pair, targets.advantages, mask, **clip)),
        ratio=_weighted(weights.token, policy_ratio(*pair, mask)),
    )
    loss = parts.policy_loss - algorithm.entropy_coef * _weighted(weights.policy, scores.entropies)
    if algorithm.name == "ppo":
        value_loss = _value_loss(scores, rows, targets, weights, algorithm)
        parts = dataclasses.replace(parts, value_loss=value_loss)
        loss = loss + algorithm.value_coef * value_loss
    if targets.ref_logprobs is not None:
        kl = kl_loss(scores.logprobs, targets.ref_logprobs, mask, kind=algorithm.kl_kind)
        parts = dataclasses.replace(parts, kl_reference=_weighted(weights.token, kl))
        loss = loss + dials.kl_coef * _weighted(weights.policy, kl)
    return dataclasses.replace(parts, loss=loss)


def _pooled(scores: Scores, rows: TokenBatch, targets: Targets, algorithm: AlgorithmSection) -> jax.Array:
    """Log-probs whose ratio to the old ones is that of the token, or of its whole turn or episode."""
    if algorithm.ratio == "token":
        return scores.logprobs
    if algorithm.ratio == "sequence":
        buckets, count = rows.segment_ids, rows.group_ids.shape[0]
    else:
        buckets, count = turn_buckets(rows.turn_ids, rows.segment_ids, rows.action_mask)
    return pooled_logprobs(scores.logprobs, targets.old_logprobs, rows.action_mask, buckets, count)
