"""The KL to the reference has a gradient, of the right sign and size, and none where policy and reference agree."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmtrl.diagnosis.bench import Bench
from jaxmtrl.diagnosis.finding import Finding, none_of, not_used
from jaxmtrl.diagnosis.gauge import Gauge, Placed, plain
from jaxmtrl.diagnosis.material import ledger, longest, one_a_row
from jaxmtrl.types import Episode

_ABOVE = 0.5  # nats by which the policy is made to lie above the reference
_SIGN, _ZERO = "the KL pulls back to the reference", "the KL of equal policies is silent"


def check_kl(bench: Bench, scorer: Gauge, episodes: list[Episode]) -> list[Finding]:
    """Measures with reference log-probs half a nat below the policy's own, and with equal ones.

    Args:
        scorer: measures log-probs.
        episodes: some, in groups, with rewards that differ.
    """
    algorithm = bench.config.algorithm
    if algorithm.kl_weight == 0:
        return [not_used("the KL to the reference", "algorithm.kl_coef is 0")]
    # Two plays divided by their own deviation always differ by the same, so that is left out.
    algorithm = plain(algorithm, kl_coef=algorithm.kl_weight, scale_by_std=False)
    gauge = Gauge(bench.network, bench.mesh, algorithm, bench.config.sampling.temperature, bench.base)
    batch = one_a_row(episodes, row_length=longest(episodes), pad_id=bench.pad_id)
    placed = gauge.place(batch, micro_batch_rows=len(episodes))
    scores = scorer.score(bench.params, placed)
    if algorithm.kl_place == "loss":
        return _in_loss(bench, gauge, placed, scores)
    return _in_reward(bench, gauge, placed, scores, episodes)


def _in_loss(bench: Bench, gauge: Gauge, placed: Placed, scores: Any) -> list[Finding]:
    """Projects the KL's gradient on that of the mean log-prob: along it lies coefficient times distance."""
    coefficient = gauge.algorithm.kl_coef

    def gradient(reference: Any, advantage: float) -> np.ndarray:
        """With the value loss at its minimum and the same advantage everywhere."""
        targets = gauge.targets(placed, scores, reference)
        level = jnp.full_like(targets.advantages, advantage)
        targets = dataclasses.replace(targets, advantages=level, returns=targets.old_values)
        return gauge.read(bench.params, placed, targets).flat

    # With advantage 1 the loss is minus the mean log-prob, weighted as the KL is.
    downhill = gradient(scores.logprobs, 1.0)
    pull = gradient(scores.logprobs - _ABOVE, 0.0)
    along = float(-downhill @ pull / max(float(downhill @ downhill), 1e-30)) / coefficient
    equal = float(np.abs(gradient(scores.logprobs, 0.0)).max())
    return [
        Finding(
            name=_SIGN,
            passed=0.3 < along < 0.7,
            number=along,
            bound="0.3 to 0.7 nats",
            said=f"its slope along the mean log-prob, over kl_coef; policy {_ABOVE:g} nats above",
            cure="minimising must lower log-probs above the reference: check sign, stop_gradient and kl_kind",
        ),
        _silent(equal, "largest gradient of the KL with policy = reference"),
    ]


def _in_reward(bench: Bench, gauge: Gauge, placed: Placed, scores: Any, episodes: list[Episode]) -> list[Finding]:
    """Moves the reference at one token, the last of the first episode, and looks at that token's credit."""
    place = ledger(placed.host, 0, episodes[0])
    last = place.sampled[-1]
    shift = np.zeros(placed.host.tokens.shape, np.float32)
    shift[place.row, last] = _ABOVE

    def advantages(reference: Any) -> np.ndarray:
        return placed.on_host(gauge.targets(placed, scores, reference).advantages)

    without = placed.on_host(gauge.targets(placed, scores).advantages)
    level = advantages(scores.logprobs)
    lowered = advantages(scores.logprobs - placed.on_device(shift, scores.logprobs))
    moved = float(lowered[place.row, last] - level[place.row, last]) / gauge.algorithm.kl_coef
    algorithm = gauge.algorithm
    exact = algorithm.name in ("ppo", "rloo") and algorithm.kl_kind == "k1" and algorithm.credit == "token"
    passed = abs(moved + _ABOVE) < 0.01 if exact else moved < 0
    return [
        Finding(
            name=_SIGN,
            passed=passed,
            number=moved,
            bound=f"= {-_ABOVE:g} nats" if exact else "< 0 nats",
            said=f"added to that token's advantage, over kl_coef; policy {_ABOVE:g} nats above",
            cure="the reward must lose kl_coef * (log-prob - reference): check the sign and the token it falls on",
        ),
        _silent(float(np.abs(level - without).max()), "largest change of an advantage with policy = reference"),
    ]


def _silent(number: float, said: str) -> Finding:
    return none_of(_ZERO, number, said=said, cure="score policy and reference by one function at one temperature")
