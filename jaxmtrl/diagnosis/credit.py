"""Where rewards land, how far they reach, and that nothing but action tokens has a say.

Credit is compared with a slow loop over the tokens an episode's turns say were sampled. Values and rewards are made up.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.diagnosis.bench import Bench
from jaxmtrl.diagnosis.finding import Finding, below, none_of, not_used
from jaxmtrl.diagnosis.gauge import Gauge, Placed, plain
from jaxmtrl.diagnosis.material import ended, ledger, longest, one_a_row
from jaxmtrl.rollout.pack import pack
from jaxmtrl.types import Episode, EpisodeStop

_WIN, _LOSS, _CUT = 0, 1, 2  # rows of the table below
_PLACEMENT = "a turn's reward sits on its last action token"
_REACH = "the end reaches the first action token"
_LOOP = "credit equals a slow loop over action tokens"
_CUT_OFF = "truncated episodes are bootstrapped as configured"
_JUNK = "junk off the action tokens changes nothing"


def check_credit(bench: Bench, episodes: list[Episode]) -> list[Finding]:
    """One play, ended three ways: won, lost, truncated.

    Args:
        episodes: played ones; the one with the most turns is taken.
    """
    table = _Table(bench, max(episodes, key=lambda episode: len(episode.turns)))
    return [_placement(table), _reach(table), _loop(table), _truncation(table), _junk(table)]


class _Table:
    """The three episodes as one batch with values and everything that is asked of its credit."""

    def __init__(self, bench: Bench, play: Episode):
        turns = len(play.turns)
        self.turns = turns
        nothing = [0.0] * (turns - 1)
        self.episodes = [
            ended(play, EpisodeStop.DONE, [*nothing, 1.0], index=0),
            ended(play, EpisodeStop.DONE, [*nothing, 0.0], index=1),
            ended(play, EpisodeStop.TRUNCATED, [*nothing, 0.0], index=2),
        ]
        self.pad_id = bench.pad_id
        self.algorithm = _telling(bench.config.algorithm)
        self.gauge = Gauge(bench.network, bench.mesh, self.algorithm, bench.config.sampling.temperature, bench.base)
        batch = one_a_row(self.episodes, row_length=longest(self.episodes), pad_id=bench.pad_id)
        self.placed: Placed = self.gauge.place(batch, micro_batch_rows=len(self.episodes))
        self.ledgers = [ledger(batch, number, episode) for number, episode in enumerate(self.episodes)]
        self.scores: Any = self.gauge.blank_scores(self.placed)
        rng = np.random.default_rng(7)
        row = rng.normal(0.0, 0.3, batch.tokens.shape[1])
        self.values = np.broadcast_to(row, batch.tokens.shape).astype(np.float32)  # the same in all three

    def credit(self, values: np.ndarray, **columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Advantages and returns [B, T]; `columns` replace fields of the batch, [B, T] each."""
        like = self.scores.values
        scores = dataclasses.replace(self.scores, values=self.placed.on_device(values, like))
        placed = self.placed
        if columns:
            rows = dataclasses.replace(
                placed.device.rows,
                **{name: placed.on_device(array, placed.device.rows.tokens) for name, array in columns.items()},
            )
            placed = dataclasses.replace(placed, device=dataclasses.replace(placed.device, rows=rows))
        targets = self.gauge.targets(placed, scores)
        return placed.on_host(targets.advantages), placed.on_host(targets.returns)


def _telling(algorithm: AlgorithmSection) -> AlgorithmSection:
    """At gamma = lambda = 1 sums telescope and hide what observations put in, so both are lowered where they act."""
    if algorithm.name != "ppo":
        return plain(algorithm)
    return plain(
        algorithm,
        gamma=min(algorithm.gamma, 0.9) or 0.9,
        lam=min(algorithm.lam, 0.95),
    )


def _placement(table: _Table) -> Finding:
    """Packs one episode whose turns earn 1, 2, 3, … and compares each column."""
    rewards = [float(number + 1) for number in range(table.turns)]
    episode = dataclasses.replace(ended(table.episodes[_WIN], EpisodeStop.DONE, rewards, index=0))
    batch = pack([episode], row_length=longest([episode]) + 3, pad_id=table.pad_id)
    place = ledger(batch, 0, episode)
    wanted = np.zeros(batch.tokens.shape)
    for span, reward in zip(place.actions, rewards, strict=True):
        wanted[place.row, span.stop - 1] = reward
    return none_of(
        _PLACEMENT,
        int((np.asarray(batch.rewards) != wanted).sum()),
        what="wrong columns",
        said=f"{table.turns} turns that earn 1, 2, 3, …",
        cure="rollout/pack.py must write a turn's reward to the last column of its action, nowhere else",
    )


def _reach(table: _Table) -> Finding:
    """The difference that winning makes to the advantage of the very first token, all values being equal."""
    advantages, _ = table.credit(np.zeros_like(table.values))
    first = table.ledgers[_WIN].sampled[0]
    gained = float(advantages[_WIN, first] - advantages[_LOSS, first])
    return Finding(
        name=_REACH,
        passed=gained > 0,
        number=gained,
        bound="> 0",
        said=f"advantage there of a win (reward 1) less a loss (0), {table.turns} turns",
        cure="the terminal reward is lost on the way: see rollout/pack.py, and the masks of learner/credit.py",
    )


def _loop(table: _Table) -> Finding:
    """Token-level GAE with one lambda, which a loop of six lines computes."""
    algorithm = table.algorithm
    simple = algorithm.credit == "token" and algorithm.lam_critic is None and algorithm.lam_adaptive == 0
    if algorithm.name != "ppo" or not simple:
        what = algorithm.name if algorithm.name != "ppo" else "ppo with its own lambdas or credit by turn"
        return not_used(_LOOP, f"the loop knows token-level GAE only, and this is {what}")
    advantages, returns = table.credit(table.values)
    worst = 0.0
    for number, episode in enumerate(table.episodes):
        wanted = _slow_gae(table, number, episode)
        columns = table.ledgers[number].sampled
        both = (
            np.abs(advantages[number, columns] - wanted),
            np.abs(returns[number, columns] - wanted - table.values[number, columns]),
        )
        worst = float(np.maximum(worst, np.maximum(*both).max()))
    said = f"advantages and returns of {len(table.episodes)} episodes at gamma {algorithm.gamma:g}, lambda "
    return below(
        _LOOP,
        worst,
        1e-5,
        said=f"{said}{algorithm.lam:g}",
        cure="GAE must step from action token to action token: what was read in between takes no part",
    )


def _slow_gae(table: _Table, number: int, episode: Episode) -> np.ndarray:
    """A_t = r_t + g V_t' - V_t + g lam A_t' over the action tokens alone."""
    algorithm, place = table.algorithm, table.ledgers[number]
    cut = episode.stop is EpisodeStop.TRUNCATED and algorithm.bootstrap_truncated
    last = {span.stop - 1: turn.reward for span, turn in zip(place.actions, episode.turns, strict=True)}
    following = float(table.values[number, _bootstrap_column(table, number)]) if cut else 0.0
    advantage, wanted = 0.0, []
    for column in reversed(place.sampled.tolist()):
        gamma = algorithm.gamma if column in last or algorithm.discount_per == "token" else 1.0
        value = float(table.values[number, column])
        delta = last.get(column, 0.0) + gamma * following - value
        advantage = delta + gamma * algorithm.lam * advantage
        wanted.append(advantage)
        following = value
    return np.array(wanted[::-1])


def _bootstrap_column(table: _Table, number: int) -> int:
    return int(np.flatnonzero(np.asarray(table.placed.host.segment_ids)[number] == number)[-1])


def _truncation(table: _Table) -> Finding:
    """Raises the value after the cut by 1 and looks at the last action token."""
    if table.algorithm.name != "ppo":
        return not_used(_CUT_OFF, f"{table.algorithm.name} has no critic to go on with")
    last = table.ledgers[_CUT].sampled[-1]
    raised = np.array(table.values)
    raised[_CUT, _bootstrap_column(table, _CUT)] += 1.0
    before, after = table.credit(table.values)[0], table.credit(raised)[0]
    moved = float(after[_CUT, last] - before[_CUT, last])
    others = float(np.abs(after[[_WIN, _LOSS]] - before[[_WIN, _LOSS]]).max())
    wanted = table.algorithm.gamma if table.algorithm.bootstrap_truncated else 0.0
    exact = table.algorithm.credit == "token"
    passed = abs(moved - wanted) < 1e-5 if exact or wanted == 0 else moved > 0
    whether = "true" if table.algorithm.bootstrap_truncated else "false"
    return Finding(
        name=_CUT_OFF,
        passed=passed and others == 0,
        number=moved,
        bound=f"= {wanted:g}" if exact or wanted == 0 else "> 0",
        said=f"what a value of 1 after the cut adds; bootstrap_truncated {whether}",
        cure="a truncated episode needs its bootstrap column, a finished one ends with 0: the environment tells which",
    )


def _junk(table: _Table) -> Finding:
    """NaN in every value and reward that no action or bootstrap column holds, and in the sampler's log-probs there."""
    host = table.placed.host
    mask = np.zeros(host.tokens.shape, bool)
    for number, place in enumerate(table.ledgers):
        mask[number, place.sampled] = True
    kept = mask.copy()
    kept[_CUT, _bootstrap_column(table, _CUT)] = True
    nan = np.float32(np.nan)
    clean = table.credit(table.values)
    dirty = table.credit(
        np.where(kept, table.values, nan),
        rewards=np.where(mask, host.rewards, nan),
        behaviour_logprobs=np.where(mask, host.behaviour_logprobs, nan),
    )
    changed = sum(int((one != other).sum()) for one, other in zip(clean, dirty, strict=True))  # NaN differs from all
    return none_of(
        _JUNK,
        changed,
        what="columns",
        said=f"NaN in values and rewards of {int((~kept).sum())} columns that were read",
        cure="mask with `where` before any arithmetic: 0 * NaN is NaN (rl/masked.py)",
    )
