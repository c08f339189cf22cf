from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from jaxmtrl.batch import TokenBatch
from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.learner.dials import Dials, constant_dials
from jaxmtrl.learner.score import Scores
from jaxmtrl.learner.targets import make_targets, whitens

PLAIN = AlgorithmSection(name="ppo", whiten_advantages=False)
NAMES = ("ppo", "rloo", "grpo", "reinforce_plus_plus", "gspo", "gigpo")


def micro_batches(action_mask, rewards, *, group_ids, segment_ids=None) -> TokenBatch:
    """Rows [n, 1, T], one episode each unless `segment_ids` says otherwise."""
    mask = np.asarray(action_mask, bool)[:, None]
    shape = mask.shape
    if segment_ids is None:
        segment_ids = np.broadcast_to(np.arange(shape[0])[:, None], (shape[0], shape[2]))
    return TokenBatch(
        tokens=np.zeros(shape, np.int32),
        segment_ids=np.asarray(segment_ids, np.int32).reshape(shape),
        positions=np.zeros(shape, np.int32),
        action_mask=mask,
        behaviour_logprobs=np.full(shape, -1.0, np.float32),
        rewards=np.asarray(rewards, np.float32).reshape(shape),
        turn_ids=np.where(mask, 0, -1).astype(np.int32),
        anchor_ids=np.full(shape, -1, np.int32),
        bootstrap_mask=np.zeros(shape, bool),
        group_ids=np.asarray(group_ids, np.int32),
    )


def scores_of(rows: TokenBatch, values=0.0, logprobs=-1.0) -> Scores:
    shape = rows.tokens.shape

    def full(x):
        return np.broadcast_to(np.asarray(x, np.float32), (shape[0], shape[2])).reshape(shape)

    return Scores(logprobs=full(logprobs) * rows.action_mask, entropies=full(0.5), values=full(values))


def targets_of(rows, scores, ref, algorithm):
    return make_targets(rows, scores, ref, algorithm, constant_dials(algorithm))


def test_ppo_credits_action_tokens_across_the_observation():
    # With gamma = .9, lam = .95: deltas .04, .03, .02, .2; A = .205276, .193305, .191, .2 (worked in the GAE tests).
    rows = micro_batches([[1, 1, 0, 0, 1, 1]], [[0, 0, 0, 0, 0, 1]], group_ids=[0])
    scores = scores_of(rows, values=[[0.5, 0.6, 9, 9, 0.7, 0.8]])
    targets, metrics = targets_of(rows, scores, None, dataclasses.replace(PLAIN, gamma=0.9, lam=0.95))
    np.testing.assert_allclose(targets.advantages[0, 0], [0.205276, 0.193305, 0, 0, 0.191, 0.2], atol=1e-5)
    np.testing.assert_allclose(targets.returns[0, 0], [0.705276, 0.793305, 0, 0, 0.891, 1.0], atol=1e-5)
    np.testing.assert_allclose(targets.old_values[0, 0], [0.5, 0.6, 0, 0, 0.7, 0.8], atol=1e-6)
    assert targets.ref_logprobs is None and metrics.kl_reference is None
    assert metrics.tokens == 4
    np.testing.assert_allclose(metrics.value_mean, 0.65, atol=1e-6)


@pytest.mark.parametrize(
    ("per", "expected"),
    [
        ("token", [0.125, 0.25, 0, 0, 0.5, 1.0]),  # a reward of 1 at the end, halved at every token
        ("turn", [0.5, 0.5, 0, 0, 1.0, 1.0]),  # or once between the two turns
    ],
)
def test_gamma_counts_per_token_or_per_turn(per, expected):
    rows = micro_batches([[1, 1, 0, 0, 1, 1]], [[0, 0, 0, 0, 0, 1]], group_ids=[0])
    rows = dataclasses.replace(rows, turn_ids=np.array([[[0, 0, -1, -1, 1, 1]]], np.int32))
    algorithm = dataclasses.replace(PLAIN, gamma=0.5, discount_per=per)
    targets, _ = targets_of(rows, scores_of(rows), None, algorithm)
    np.testing.assert_allclose(targets.advantages[0, 0], expected, atol=1e-6)


def test_rloo_looks_across_micro_batches_and_past_failed_episodes():
    # Group 0 earned 1, 0 and 0: leave-one-out gives 1, -.5, -.5. The fourth play failed and is nobody's peer.
    mask = [[1, 0, 1]] * 3 + [[0, 0, 0]]
    rows = micro_batches(mask, [[0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 5]], group_ids=[0, 0, 0, -1])
    algorithm = AlgorithmSection(name="rloo", group_size=4, whiten_advantages=False)
    targets, _ = targets_of(rows, scores_of(rows), None, algorithm)
    expected = [[1, 0, 1], [-0.5, 0, -0.5], [-0.5, 0, -0.5], [0, 0, 0]]
    np.testing.assert_allclose(targets.advantages[:, 0], expected, atol=1e-6)


def test_whitening_is_over_the_whole_batch():
    # Advantages 2 and 4 in two micro-batches: mean 3, deviation 1. Whitened one by one both would be 0.
    rows = micro_batches([[0, 1], [0, 1]], [[0, 2], [0, 4]], group_ids=[0, 1])
    targets, metrics = targets_of(rows, scores_of(rows), None, AlgorithmSection(name="ppo"))
    np.testing.assert_allclose(targets.advantages[:, 0], [[0, -1], [0, 1]], atol=1e-5)
    np.testing.assert_allclose([metrics.advantage_mean, metrics.advantage_std], [3, 1], atol=1e-6)


@pytest.mark.parametrize("place", ["reward", "loss"])
def test_the_kl_enters_in_one_place(place):
    # log-prob -1 against the reference's -3: k1 = 2, times 0.1; gamma = lam = 1 and V = 0 make A the reward to go.
    rows = micro_batches([[0, 1, 1]], [[0, 0, 1]], group_ids=[0])
    algorithm = dataclasses.replace(PLAIN, kl_coef=0.1, kl_place=place)
    ref = np.full((1, 1, 3), -3.0, np.float32)
    targets, metrics = targets_of(rows, scores_of(rows), ref, algorithm)
    expected = {"reward": [0, 0.6, 0.8], "loss": [0, 1, 1]}[place]
    np.testing.assert_allclose(targets.advantages[0, 0], expected, atol=1e-6)
    assert (targets.ref_logprobs is None) == (place == "reward")
    np.testing.assert_allclose(metrics.kl_reference, np.exp(-2.0) + 1, atol=1e-5)  # k3 = exp(-2) - 1 + 2


def test_the_gap_between_sampler_and_learner_is_reported():
    rows = micro_batches([[0, 1, 1]], [[0, 0, 0]], group_ids=[0])
    _, metrics = targets_of(rows, scores_of(rows, logprobs=[[0, -1.0, -1.5]]), None, PLAIN)
    np.testing.assert_allclose([metrics.logprob_gap_mean, metrics.logprob_gap_max], [0.25, 0.5], atol=1e-6)


def test_explained_variance_of_a_perfect_a_useless_and_no_critic():
    rows = micro_batches([[0, 1], [0, 1]], [[0, 0], [0, 1]], group_ids=[0, 1])
    perfect = targets_of(rows, scores_of(rows, values=[[0, 0], [0, 1]]), None, PLAIN)[1]
    useless = targets_of(rows, scores_of(rows, values=[[0, 0.5], [0, 0.5]]), None, PLAIN)[1]
    np.testing.assert_allclose([perfect.explained_variance, useless.explained_variance], [1, 0], atol=1e-6)
    same = micro_batches([[0, 1], [0, 1]], [[0, 1], [0, 1]], group_ids=[0, 1])
    assert targets_of(same, scores_of(same), None, PLAIN)[1].explained_variance == 0


@pytest.mark.parametrize(("bootstrap", "expected"), [(True, [0.3, 0.2, 0.1]), (False, [-0.2, -0.3, -0.4])])
def test_a_truncated_episode_goes_on_with_the_critic_or_ends_as_configured(bootstrap, expected):
    """Case A4, row A: values .2, .3, .4, nothing earned, V(next) = .5: A = .5 - V, or 0 - V if the limit is an end."""
    rows = micro_batches([[0, 1, 1, 1, 0]], [[0, 0, 0, 0, 0]], group_ids=[0])
    rows = dataclasses.replace(rows, bootstrap_mask=np.array([[[0, 0, 0, 0, 1]]], bool))
    scores = scores_of(rows, values=[[9, 0.2, 0.3, 0.4, 0.5]])
    targets, _ = targets_of(rows, scores, None, dataclasses.replace(PLAIN, bootstrap_truncated=bootstrap))
    np.testing.assert_allclose(targets.advantages[0, 0], [0, *expected, 0], atol=1e-6)


def test_importance_weights_scale_the_advantages_once_and_only_when_asked():
    """Reward 1, V = 0: A = 1. The learner says -1 where the sampler said -2 and -.5: e^1 is cut to 2, e^-.5 = .6065."""
    rows = micro_batches([[0, 1, 1]], [[0, 0, 1]], group_ids=[0])
    rows = dataclasses.replace(rows, behaviour_logprobs=np.array([[[0, -2.0, -0.5]]], np.float32))
    weighted, _ = targets_of(rows, scores_of(rows), None, dataclasses.replace(PLAIN, importance_cap=2.0))
    plain, _ = targets_of(rows, scores_of(rows), None, PLAIN)
    np.testing.assert_allclose(weighted.advantages[0, 0], [0, 2.0, 0.606531], atol=1e-5)
    np.testing.assert_allclose(plain.advantages[0, 0], [0, 1, 1], atol=1e-6)


def test_groups_that_all_earned_the_same_are_left_out_of_the_loss_and_counted():
    """Tasks 0 and 1, two plays each; both plays of task 1 win, so nothing tells them apart."""
    rows = micro_batches([[0, 1, 1]] * 4, [[0, 0, 1], [0, 0, 0], [0, 0, 1], [0, 0, 1]], group_ids=[0, 0, 1, 1])
    algorithm = AlgorithmSection(name="rloo", group_size=2, drop_uniform_groups=True)
    targets, metrics = targets_of(rows, scores_of(rows), None, algorithm)
    np.testing.assert_array_equal(targets.learn[:, 0], [[0, 1, 1], [0, 1, 1], [0, 0, 0], [0, 0, 0]])
    assert (float(metrics.uniform_groups), float(metrics.learnt)) == (0.5, 0.5)
    kept = targets_of(rows, scores_of(rows), None, dataclasses.replace(algorithm, drop_uniform_groups=False))[0]
    np.testing.assert_array_equal(kept.learn, rows.action_mask)
    np.testing.assert_array_equal(kept.advantages, targets.advantages)  # they are 0 there either way


def test_truncated_episodes_can_be_left_out_of_the_loss():
    rows = micro_batches([[0, 1, 0], [0, 1, 0]], [[0, 1, 0], [0, 1, 0]], group_ids=[0, 1])
    rows = dataclasses.replace(rows, bootstrap_mask=np.array([[[0, 0, 1]], [[0, 0, 0]]], bool))
    targets, _ = targets_of(rows, scores_of(rows), None, dataclasses.replace(PLAIN, overlong="filter"))
    np.testing.assert_array_equal(targets.learn[:, 0], [[0, 0, 0], [0, 1, 0]])


def test_a_long_episode_pays_in_proportion_to_its_length():
    """Rows of 6: nothing up to 2 tokens, the whole penalty of .8 at 6; an episode of 5 pays .8 * 3 / 4 = .6."""
    segments = [[[0, 0, 0, 0, 0, -1]], [[1, 1, -1, -1, -1, -1]]]
    mask = [[0, 1, 1, 1, 1, 0], [0, 1, 0, 0, 0, 0]]
    rows = micro_batches(mask, [[0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]], group_ids=[0, 1], segment_ids=segments)
    algorithm = dataclasses.replace(PLAIN, overlong="penalty", overlong_from=2, overlong_penalty=0.8)
    targets, _ = targets_of(rows, scores_of(rows), None, algorithm)
    np.testing.assert_allclose(targets.returns[:, 0], [[0, 0.4, 0.4, 0.4, 0.4, 0], [0, 1, 0, 0, 0, 0]], atol=1e-6)


def test_the_reward_scale_is_applied_before_the_kl():
    """Reward 1 times 0.5, less 0.1 * k1 = 0.1 * 2 on both tokens: reward to go .5 - .4 and .5 - .2."""
    rows = micro_batches([[0, 1, 1]], [[0, 0, 1]], group_ids=[0])
    algorithm = dataclasses.replace(PLAIN, kl_coef=0.1)
    dials = Dials(kl_coef=np.float32(0.1), reward_scale=np.float32(0.5))
    targets, _ = make_targets(rows, scores_of(rows), np.full((1, 1, 3), -3.0, np.float32), algorithm, dials)
    np.testing.assert_allclose(targets.advantages[0, 0], [0, 0.1, 0.3], atol=1e-6)


def test_masked_importance_weights_leave_tokens_out():
    """Weights e^1 and e^-.5: with the cap at 2 the first token is left out, the second keeps .6065."""
    rows = micro_batches([[0, 1, 1]], [[0, 0, 1]], group_ids=[0])
    rows = dataclasses.replace(rows, behaviour_logprobs=np.array([[[0, -2.0, -0.5]]], np.float32))
    algorithm = dataclasses.replace(PLAIN, importance_cap=2.0, importance_beyond="mask")
    targets, _ = targets_of(rows, scores_of(rows), None, algorithm)
    np.testing.assert_array_equal(targets.learn[0, 0], [0, 0, 1])
    np.testing.assert_allclose(targets.advantages[0, 0], [0, 0, 0.606531], atol=1e-5)


def test_whitening_is_the_default_of_the_algorithms_that_are_defined_with_it():
    whitened = {name for name in NAMES if whitens(AlgorithmSection(name=name))}
    assert whitened == {"ppo", "reinforce_plus_plus"}
    assert whitens(AlgorithmSection(name="rloo", whiten_advantages=True))
    assert not whitens(AlgorithmSection(name="ppo", whiten_advantages=False))
