"""One ratio for a whole episode or turn: its value, its gradient, and that it is the form it is named after."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ragged import EPISODES, check, check_layout_is_nothing, plays, ragged

from jaxmtrl.rl import losses, turns

pooled_logprobs = jax.jit(losses.pooled_logprobs, static_argnums=4)
policy_ratio = jax.jit(losses.policy_ratio)


@jax.jit
def turn_pooled_logprobs(new, old, mask, turn_ids, segment_ids):
    return losses.pooled_logprobs(new, old, mask, *turns.turn_buckets(turn_ids, segment_ids, mask))


CLIP = {"clip_low": 0.1, "clip_high": 0.15}


def log_ratios(batch, scale=1.0):
    """New and old log-probs of the batch's tokens, NaN off-action. Functions of rewards and values, which travel with
    the tokens wherever those are packed; near -1, and apart by some `scale`."""
    old = np.where(batch.action_mask, -1 + 0.1 * batch.rewards, np.nan).astype(np.float32)
    new = np.where(batch.action_mask, old + scale * batch.values, np.nan).astype(np.float32)
    return new, old


def by_episode(batch, new, old):
    return pooled_logprobs(new, old, batch.action_mask, batch.segment_ids, EPISODES)


def by_turn(batch, new, old):
    return turn_pooled_logprobs(new, old, batch.action_mask, batch.turn_ids, batch.segment_ids)


def test_pooled_ratios_are_geometric_means_golden():
    # Ratios 1.5, .5 and 1.2 of one bucket: (.9)^(1/3) = .965489; 2 of another. Old log-probs stay under them.
    ratios, old = np.array([[1.5, 0.5, 7.0, 2.0, 1.2]]), np.array([[-1.0, -2.0, -3.0, -4.0, -5.0]])
    mask = np.array([[1, 1, 0, 1, 1]], bool)
    pooled = pooled_logprobs(old + np.log(ratios), old, mask, np.array([[0, 0, 0, 1, 0]]), 2)
    np.testing.assert_allclose(policy_ratio(pooled, old, mask), [[0.965489, 0.965489, 0, 2.0, 0.965489]], atol=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_pooled_log_probs_equal_a_slow_loop(seed):
    batch = ragged(seed)
    new, old = log_ratios(batch)

    def slow(play, groups):
        before, difference = old[play.where], (new - old)[play.where]
        result = np.zeros(len(before))
        for own in groups:
            result[own] = before[own] + np.mean(difference[own])
        return list(result)

    whole = [slice(None)]
    check(batch, by_episode(batch, new, old), lambda play: slow(play, whole if play.rewards else []))
    check(batch, by_turn(batch, new, old), lambda play: slow(play, play.turns))


@pytest.mark.parametrize("pool", [by_episode, by_turn])
def test_pooled_log_probs_do_not_depend_on_layout(pool):
    check_layout_is_nothing(lambda batch: pool(batch, *log_ratios(batch)))


@pytest.mark.parametrize("pool", [by_episode, by_turn])
def test_a_policy_that_did_not_move_has_ratio_one_exactly(pool):
    batch = ragged(1)
    _, old = log_ratios(batch)
    ratio = policy_ratio(pool(batch, old, old), old, batch.action_mask)
    np.testing.assert_array_equal(ratio, np.where(batch.action_mask, 1.0, 0.0))


@pytest.mark.parametrize("seed", range(2))
def test_loss_and_gradient_are_those_of_the_sequence_form(seed):
    """The mean over episodes of -min(s A, clip(s) A) with s = exp(mean of log-ratios), one advantage an episode."""
    batch = ragged(seed)
    mask, segments = batch.action_mask, batch.segment_ids
    new, old = log_ratios(batch, scale=0.8)
    advantages = np.random.default_rng(seed).normal(size=EPISODES).astype(np.float32)
    of_tokens = np.where(mask, advantages[segments], np.nan)
    weights = jax.jit(losses.loss_weights, static_argnames=["num_episodes", "mean"])(
        mask, segments, num_episodes=EPISODES, mean="sequence_token_mean"
    )
    members = [np.ravel_multi_index(play.where, mask.shape) for play in plays(batch) if play.rewards]
    numbers = [play.number for play in plays(batch) if play.rewards]

    def token_form(logprobs):
        per_token = losses.clipped_policy_loss(by_episode(batch, logprobs, old), old, of_tokens, mask, **CLIP)
        return jnp.sum(weights * per_token)

    def sequence_form(logprobs):
        total = 0.0
        for number, own in zip(numbers, members, strict=True):
            ratio = jnp.exp(jnp.mean(logprobs.ravel()[own] - old.ravel()[own]))
            advantage = advantages[number]
            total -= jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.9, 1.15) * advantage)
        return total / len(members)

    loss, slope = jax.jit(jax.value_and_grad(token_form))(new)
    expected, expected_slope = jax.jit(jax.value_and_grad(sequence_form))(new)
    assert float(loss) == pytest.approx(float(expected), abs=1e-5)
    np.testing.assert_allclose(slope, expected_slope, atol=1e-6)
    silent = [not np.any(np.asarray(slope).ravel()[own]) for own in members]
    assert any(silent)  # some episodes are clipped whole
    assert not all(silent)


def test_with_an_advantage_a_token_each_pulls_its_own():
    # Ratio 1 all over, advantages 1 and -3 in one bucket: slopes -1 and 3. A gradient through the mean would give both
    # tokens the average of them, 1.
    mask, old = np.ones((1, 2), bool), np.array([[-1.0, -2.0]])

    def loss(logprobs):
        pooled = losses.pooled_logprobs(logprobs, old, mask, np.zeros((1, 2), int), 1)
        return losses.clipped_policy_loss(pooled, old, np.array([[1.0, -3.0]]), mask, **CLIP).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.asarray(old)), [[-1, 3]], atol=1e-6)
