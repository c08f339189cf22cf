"""Observations are read, but nothing is learnt from predicting them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmtrl.diagnosis.bench import Bench
from jaxmtrl.diagnosis.finding import Finding, none_of
from jaxmtrl.diagnosis.gauge import Gauge, plain
from jaxmtrl.diagnosis.material import ledger, longest, one_a_row, sampled_mask
from jaxmtrl.models.decoder import Network
from jaxmtrl.types import Episode

_PROBE = "probe"


@dataclasses.dataclass(frozen=True)
class ProbedNetwork(Network):
    """The network with one parameter more: zeros that are added to what every column has read.

    Its gradient is that of the loss by the state at each column, which is what predicts the next token.
    """

    rows: int = 1
    columns: int = 1

    def init(self, key: jax.Array) -> Any:
        params = super().init(key)
        zeros = jnp.zeros((self.rows, self.columns, self.config.embed), jnp.float32)
        return params | {"policy": params["policy"] | {_PROBE: zeros}}

    def axes(self) -> Any:
        axes = super().axes()
        return axes | {"policy": axes["policy"] | {_PROBE: (None, None, None)}}

    def hidden(self, params: Any, tokens: Any, positions: Any, segment_ids: Any, noise: Any = None) -> Any:
        return super().hidden(params, tokens, positions, segment_ids, noise) + params["policy"][_PROBE]

    def critic_hidden(self, params: Any, hidden: Any, *read: Any) -> Any:
        own = super().critic_hidden(params, hidden, *read)
        return own if own is hidden else own + params["policy"][_PROBE]


def check_leaks(bench: Bench, gauge: Gauge, episodes: list[Episode]) -> list[Finding]:
    """The gradient by every column's state, and what a changed observation does to the log-probs."""
    return [*_learnt_from(bench, gauge, episodes), *_read(bench, gauge, episodes)]


def _learnt_from(bench: Bench, gauge: Gauge, episodes: list[Episode]) -> list[Finding]:
    width = longest(episodes)
    batch = one_a_row(episodes, row_length=width, pad_id=bench.pad_id)
    network = ProbedNetwork(config=bench.network.config, rows=len(episodes), columns=width)
    zeros = np.zeros((len(episodes), width, network.config.embed), np.float32)
    params = bench.params | {"policy": bench.params["policy"] | {_PROBE: zeros}}
    temperature = bench.config.sampling.temperature
    probe = Gauge(network, bench.mesh, plain(bench.config.algorithm), temperature, bench.base)
    placed = probe.place(batch, micro_batch_rows=len(episodes))
    targets = probe.targets(placed, gauge.score(bench.params, placed))  # the probe is 0
    # Credit of 1 everywhere the trainer would put any, so that no action token is silent by chance.
    ones = jnp.ones_like(targets.advantages)
    targets = dataclasses.replace(targets, advantages=ones, returns=targets.returns + 1.0)
    gradient = probe.read(params, placed, targets).gradients["policy"][_PROBE]
    felt = np.abs(gradient).max(axis=-1) > 0  # [B, T]

    # The state at column t predicts token t + 1.
    predicts = np.zeros_like(felt)
    predicts[:, :-1] = sampled_mask(batch, episodes)[:, 1:]
    leaking, silent = int((felt & ~predicts).sum()), int((predicts & ~felt).sum())
    return [
        none_of(
            "no gradient from observations",
            leaking,
            what="columns",
            said=f"of {int((~predicts).sum())} that predict no action token, by their states' gradients",
            cure="the loss counts tokens that were not sampled: action_mask must be what the episodes' turns say",
        ),
        none_of(
            "every action token is learnt",
            silent,
            what="columns",
            said=f"of {int(predicts.sum())} that predict an action token; those without any gradient",
            cure="the loss or its mask drops action tokens (often a turn's last one); see learner/objective.py",
        ),
    ]


def _read(bench: Bench, gauge: Gauge, episodes: list[Episode]) -> list[Finding]:
    """Changes one token of the last observation before an action, in each episode that has two turns or more."""
    width = longest(episodes)
    batch = one_a_row(episodes, row_length=width, pad_id=bench.pad_id)
    changed = np.array(batch.tokens)
    spots: dict[int, int] = {}
    for number, episode in enumerate(episodes):
        place = ledger(batch, number, episode)
        if len(place.actions) < 2:
            continue
        column = (place.actions[-2].stop + place.actions[-1].start) // 2
        spots[place.row] = column
        changed[place.row, column] = (changed[place.row, column] + 1) % bench.tokenizer.vocab_size
    name = "observations are read, by what follows"
    if not spots:
        return [none_of(name, 0, said="no episode had two turns: nothing to change", cure="")]
    after = _logprobs(bench, gauge, dataclasses.replace(batch, tokens=changed), len(episodes))
    moved = np.abs(after - _logprobs(bench, gauge, batch, len(episodes))) > 0
    mask = sampled_mask(batch, episodes)
    wrong = 0
    for row, column in spots.items():
        columns = np.arange(width)
        wrong += int(moved[row, mask[row] & (columns < column)].sum())
        wrong += int(not moved[row, mask[row] & (columns > column)].any())
    wrong += int(moved[[row for row in range(len(episodes)) if row not in spots]].sum())
    return [
        none_of(
            name,
            wrong,
            what="mistakes",
            said=f"one token changed in {len(spots)} episodes: later log-probs move, others do not",
            cure="attention must be causal and must see observations: an action mask is no attention mask",
        )
    ]


def _logprobs(bench: Bench, gauge: Gauge, batch: Any, rows: int) -> np.ndarray:
    placed = gauge.place(batch, micro_batch_rows=rows)
    return placed.on_host(gauge.score(bench.params, placed).logprobs)
