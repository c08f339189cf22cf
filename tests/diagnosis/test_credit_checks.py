"""Credit of one play ended three ways, sound and with each way of getting it wrong."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from doctor_bench import bench, by_name, episodes, failures

from jaxmtrl.diagnosis.credit import check_credit
from jaxmtrl.learner import credit
from jaxmtrl.rollout import pack


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("algorithm.discount_per=turn", "algorithm.gamma=0.5", "algorithm.bootstrap_truncated=false"),
        ("algorithm.credit=turn",),
        ("algorithm.credit=bilevel",),
        ("algorithm.name=rloo", "algorithm.group_size=2"),
        ("algorithm.name=grpo", "algorithm.group_size=2"),
        ("algorithm.name=reinforce_plus_plus",),
    ],
    ids=" ".join,
)
def test_sound_credit_passes(overrides: tuple[str, ...]):
    assert failures(check_credit(bench(*overrides), episodes(3))) == []


def test_a_reward_on_the_first_token_of_a_turn_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = pack._columns

    def first(episode, pad_id):
        columns = right(episode, pad_id)
        rewards = np.zeros_like(columns.rewards)
        for number, turn in enumerate(episode.turns):
            rewards[np.flatnonzero(columns.turn_ids == number)[0]] = turn.reward
        return dataclasses.replace(columns, rewards=rewards)

    monkeypatch.setattr(pack, "_columns", first)
    assert "a turn's reward sits on its last action token" in failures(check_credit(bench(), episodes(3)))


def test_gae_over_all_tokens_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = credit.gae

    def over_all(rewards, values, *, action_mask, segment_ids, bootstrap_mask, discounts, lam):
        every = (segment_ids >= 0) & ~bootstrap_mask
        advantages, returns = right(
            rewards,
            values,
            action_mask=every,
            segment_ids=segment_ids,
            bootstrap_mask=bootstrap_mask,
            discounts=jnp.where(every, jnp.max(discounts), 0.0),
            lam=lam,
        )
        return jnp.where(action_mask, advantages, 0.0), jnp.where(action_mask, returns, 0.0)

    monkeypatch.setattr(credit, "gae", over_all)
    found = failures(check_credit(bench(), episodes(3)))
    assert "credit equals a slow loop over action tokens" in found
    assert "junk off the action tokens changes nothing" in found  # values of observations take part


def test_a_mask_by_multiplication_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = credit.gae
    monkeypatch.setattr(
        credit,
        "gae",
        lambda rewards, values, *, action_mask, **rest: tuple(
            part + 0 * values for part in right(rewards, values, action_mask=action_mask, **rest)
        ),
    )
    assert failures(check_credit(bench(), episodes(3))) == ["junk off the action tokens changes nothing"]


def test_a_terminal_reward_that_is_lost_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = credit.gae
    monkeypatch.setattr(credit, "gae", lambda rewards, *args, **rest: right(0 * rewards, *args, **rest))
    assert "the end reaches the first action token" in failures(check_credit(bench(), episodes(3)))


def test_a_truncated_episode_taken_for_a_lost_one_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = credit.gae
    monkeypatch.setattr(
        credit,
        "gae",
        lambda *args, bootstrap_mask, **rest: right(*args, bootstrap_mask=jnp.zeros_like(bootstrap_mask), **rest),
    )
    finding = by_name(check_credit(bench(), episodes(3)))["truncated episodes are bootstrapped as configured"]
    assert not finding.passed and finding.number == 0
