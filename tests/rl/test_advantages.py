"""Credit token by token: worked numbers, a slow loop over single episodes, and what must not change the answer."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from ragged import check, check_layout_is_nothing, ragged

from jaxmtrl.rl import advantages as adv

TOLERANCE = 1e-5
gae = jax.jit(adv.gae)
reward_to_go = jax.jit(adv.reward_to_go)


def run_gae(rewards, values, mask, *, gamma, lam, segments=None, bootstrap=None, discounts=None):
    """`gae` on lists; one episode a row and nothing truncated unless told."""
    mask = np.atleast_2d(np.asarray(mask, bool))
    shape = mask.shape
    if segments is None:
        segments = np.broadcast_to(np.arange(shape[0])[:, None], shape)
    if bootstrap is None:
        bootstrap = np.zeros(shape, bool)
    if discounts is None:
        discounts = np.full(shape, gamma, np.float32)
    return gae(
        np.asarray(rewards, np.float32).reshape(shape),
        np.asarray(values, np.float32).reshape(shape),
        action_mask=mask,
        segment_ids=np.asarray(segments, np.int32).reshape(shape),
        bootstrap_mask=np.asarray(bootstrap, bool).reshape(shape),
        discounts=discounts,
        lam=lam,
    )


def one_episode(rewards, values, discounts, lam, final_value):
    """The defining sum, for one episode without anything but its action tokens:
    A_t = sum_l (prod_{k < l} gamma lam) delta_{t + l}, written as sums rather than as a recursion."""
    count = len(rewards)
    successor = np.append(values[1:], final_value)
    delta = rewards + discounts * successor - values
    result = np.zeros(count)
    for start in range(count):
        weight = 1.0
        for later in range(start, count):
            result[start] += weight * delta[later]
            weight *= discounts[later] * lam
    return result


def run_ragged(batch, *, gamma, lam):
    """`gae` on ragged rows."""
    return run_gae(
        batch.rewards,
        batch.values,
        batch.action_mask,
        gamma=gamma,
        lam=lam,
        segments=batch.segment_ids,
        bootstrap=batch.bootstrap_mask,
    )


# Observations in the middle, junk values on them.
REWARD = [0, 0, 0, 0, 0, 1]
MASK = [1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("junk", [9.0, -1e6, 0.0, np.nan, np.inf])
def test_gae_steps_over_observation_tokens(junk):
    # gamma .9, lam .95, so gamma lam = .855; action values .5 .6 .7 .8; only the last reward is 1.
    # t5: 1 - .8 = .2;  t4: .9 * .8 - .7 + .855 * .2 = .191
    # t1: .9 * .7 - .6 + .855 * .191 = .193305;  t0: .9 * .6 - .5 + .855 * .193305 = .205276
    values = [0.5, 0.6, junk, junk, 0.7, 0.8]
    advantages, returns = run_gae(REWARD, values, MASK, gamma=0.9, lam=0.95)
    np.testing.assert_allclose(advantages, [[0.205276, 0.193305, 0, 0, 0.191, 0.2]], atol=TOLERANCE)
    np.testing.assert_allclose(returns, [[0.705276, 0.793305, 0, 0, 0.891, 1.0]], atol=TOLERANCE)
    # An estimate over all columns would say this instead.
    assert abs(advantages[0, 0] - 0.665177) > 0.1
    assert abs(advantages[0, 1] - 0.731201) > 0.1


def test_rewards_off_action_are_not_earned():
    clean, _ = run_gae(REWARD, [0.5, 0.6, 0, 0, 0.7, 0.8], MASK, gamma=0.9, lam=0.95)
    noisy, _ = run_gae([0, 0, np.nan, np.inf, 0, 1], [0.5, 0.6, 0, 0, 0.7, 0.8], MASK, gamma=0.9, lam=0.95)
    np.testing.assert_array_equal(clean, noisy)


def test_an_observation_leak_is_invisible_at_gamma_and_lambda_one():
    # The sum of deltas telescopes, so the estimate over all columns agrees on the first action tokens. Tests at 1 / 1
    # alone prove nothing; this one says why the others use other numbers.
    values = [0.5, 0.6, 9, 9, 0.7, 0.8]
    right, _ = run_gae(REWARD, values, MASK, gamma=1.0, lam=1.0)
    leaking, _ = run_gae(REWARD, values, np.ones(6), gamma=1.0, lam=1.0)
    actions = np.asarray(MASK, bool)
    np.testing.assert_allclose(right[0][actions], leaking[0][actions], atol=TOLERANCE)
    leaking, _ = run_gae(REWARD, values, np.ones(6), gamma=0.9, lam=0.95)
    np.testing.assert_allclose(leaking[0, :2], [0.665177, 0.731201], atol=TOLERANCE)


def test_the_guides_example_of_a_td_error():
    """Worth 80 before the token and 85 after it, paid nothing: it was 5 better than expected."""
    errors, _ = run_gae([0, 0], [80, 85], [1, 1], gamma=1.0, lam=0.0)
    np.testing.assert_allclose(errors, [[5, -85]])


def test_a_win_and_a_loss_differ_on_every_token():
    # Forgetting the last reward and the last delta gives .353 .271 .185 .095 0 for both.
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    win, _ = run_gae([0, 0, 0, 0, 1], values, np.ones(5), gamma=0.99, lam=0.95)
    loss, _ = run_gae([0, 0, 0, 0, 0], values, np.ones(5), gamma=0.99, lam=0.95)
    np.testing.assert_allclose(win, [[0.744, 0.687, 0.628, 0.565, 0.5]], atol=6e-4)
    np.testing.assert_allclose(loss, [[-0.038, -0.145, -0.257, -0.375, -0.5]], atol=6e-4)
    assert np.all(np.abs(np.asarray(win - loss)) > 0.7)


def test_integer_rewards_and_a_single_token():
    advantages, returns = run_gae([1], [0.25], [1], gamma=0.9, lam=0.9)
    np.testing.assert_allclose(advantages, [[0.75]])
    np.testing.assert_allclose(returns, [[1.0]])


def test_truncated_and_terminated_episodes_of_unequal_length_in_one_batch():
    # Row A: three tokens, cut off in a state worth .5. Row B: five tokens, finished, as wide as the batch but for the
    # column that only A's bootstrap needs. gamma = lam = 1: A = .5 - V = .3 .2 .1; B = 1 - V = .8 .7 .6 .5 .4.
    values = [[0.2, 0.3, 0.4, 0.5, 7, 7], [0.2, 0.3, 0.4, 0.5, 0.6, 7]]
    rewards = [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]]
    mask = [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]
    segments = [[0, 0, 0, 0, -1, -1], [1, 1, 1, 1, 1, -1]]
    bootstrap = [[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]]
    result, returns = run_gae(rewards, values, mask, gamma=1.0, lam=1.0, segments=segments, bootstrap=bootstrap)
    np.testing.assert_allclose(result[0], [0.3, 0.2, 0.1, 0, 0, 0], atol=TOLERANCE)
    np.testing.assert_allclose(result[1], [0.8, 0.7, 0.6, 0.5, 0.4, 0], atol=TOLERANCE)
    np.testing.assert_allclose(returns[0, :3], 0.5, atol=TOLERANCE)
    assert abs(result[0, 0] - -0.2) > 0.1  # A taken for finished
    assert abs(result[1, 0] - 1.3) > 0.1  # B taken for truncated since it is full


def test_what_was_read_after_the_last_action_lies_between_it_and_the_bootstrap():
    # One action (V .2), two tokens of tail, bootstrap worth .5: delta = .9 * .5 - .2 = .25, one discount only.
    result, _ = run_gae(
        [0, 0, 0, 0], [0.2, np.nan, np.nan, 0.5], [1, 0, 0, 0], gamma=0.9, lam=0.95, bootstrap=[0, 0, 0, 1]
    )
    np.testing.assert_allclose(result, [[0.25, 0, 0, 0]], atol=TOLERANCE)


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_packed_rows_equal_a_slow_sum_over_each_episode_alone(seed, lam):
    batch = ragged(seed)
    assert batch.bootstrap_mask.any()
    discounts = np.random.default_rng(seed).uniform(0.5, 1.0, batch.action_mask.shape).astype(np.float32)
    result, returns = run_gae(
        batch.rewards,
        batch.values,
        batch.action_mask,
        gamma=None,
        lam=lam,
        segments=batch.segment_ids,
        bootstrap=batch.bootstrap_mask,
        discounts=np.where(batch.action_mask, discounts, np.nan),
    )

    def slow(play):
        return one_episode(*map(np.array, (play.rewards, play.values, discounts[play.where])), lam, play.final_value)

    check(batch, result, slow)
    check(batch, returns, lambda play: list(slow(play) + np.array(play.values)))


@pytest.mark.parametrize("gamma, lam", [(0.9, 0.95), (1.0, 0.5), (0.8, 1.0)])
def test_packing_and_what_is_read_in_between_change_nothing_on_action_tokens(gamma, lam):
    check_layout_is_nothing(lambda batch: run_ragged(batch, gamma=gamma, lam=lam)[0], seed=11)


def test_padding_on_either_side_changes_nothing():
    batch = ragged(3)
    before, _ = run_ragged(batch, gamma=0.9, lam=0.8)
    fillers = {"rewards": np.nan, "values": np.nan, "action_mask": False, "bootstrap_mask": False}
    wider = type(batch)(
        **{
            name: np.pad(array, ((0, 0), (4, 6)), constant_values=fillers.get(name, -1))
            for name, array in vars(batch).items()
        }
    )
    after, _ = run_ragged(wider, gamma=0.9, lam=0.8)
    np.testing.assert_allclose(after[:, 4:-6], before, atol=1e-6)


def test_padding_in_the_midst_of_an_episode_is_carried_through():
    mask, segments = [1, 0, 0, 1, 0, 1], [0, -1, 0, 0, -1, 0]
    values = [0.5, np.nan, np.nan, 0.6, np.nan, 0.7]
    padded, _ = run_gae([0, 0, 0, 0, 0, 1], values, mask, gamma=0.9, lam=0.8, segments=segments)
    dense, _ = run_gae([0, 0, 1], [0.5, 0.6, 0.7], np.ones(3), gamma=0.9, lam=0.8)
    np.testing.assert_allclose(np.asarray(padded)[0, [0, 3, 5]], dense[0], atol=1e-6)


def test_one_episode_knows_nothing_of_its_neighbours_in_the_row():
    batch = ragged(7)
    before, _ = run_ragged(batch, gamma=0.9, lam=0.95)
    others = batch.segment_ids != 1
    strange = dataclasses.replace(
        batch,
        rewards=np.where(others, 50.0, batch.rewards),
        values=np.where(others, -70.0, batch.values),
        bootstrap_mask=batch.bootstrap_mask & ~others,
    )
    after, _ = run_ragged(strange, gamma=0.9, lam=0.95)
    assert (batch.segment_ids == 1).any()
    np.testing.assert_array_equal(np.asarray(after)[~others], np.asarray(before)[~others])


def test_gae_is_finite_and_differentiable_through_values_that_are_junk_elsewhere():
    def total(values):
        result, _ = gae(
            np.array([REWARD], np.float32),
            values,
            action_mask=np.array([MASK], bool),
            segment_ids=np.zeros((1, 6), np.int32),
            bootstrap_mask=np.zeros((1, 6), bool),
            discounts=np.full((1, 6), 0.9, np.float32),
            lam=0.95,
        )
        return result.sum()

    gradient = jax.grad(total)(np.array([[0.5, 0.6, np.nan, np.inf, 0.7, 0.8]], np.float32))
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(gradient[0, 2:4], 0.0)


def test_lambda_may_differ_by_token():
    lam = np.array([[0.0, 1.0, 0.5]], np.float32)
    result, _ = run_gae([0, 0, 1], [0.5, 0.25, 0.5], np.ones(3), gamma=1.0, lam=lam)
    # t2: 1 - .5 = .5;  t1: .5 - .25 + 1 * .5 = .75;  t0: .25 - .5 + 0 * .75 = -.25
    np.testing.assert_allclose(result, [[-0.25, 0.75, 0.5]], atol=1e-6)


# --- rewards to go ---------------------------------------------------------------------------------------------------

# Two episodes in a row: turns of 2, 1 (reward 0) and 1 tokens, then an episode of one turn of 2; observations between.
MASKS = np.array([[1, 1, 0, 1, 0, 1, 0, 1, 1, 0]], bool)
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0, 1, 1, 1, -1]], np.int32)


def test_token_discounts_are_the_same_everywhere():
    np.testing.assert_allclose(adv.token_discounts(0.9, MASKS), np.where(MASKS, np.float32(0.9), 0.0))


def test_reward_to_go_crosses_observations_and_stops_at_episodes():
    # Rewards 1 on each turn's end, .9 from turn to turn. Episode 0 from the back: 1, 1 + .9, 1 + .9 * 1.9 = 2.71 (its
    # two tokens alike). A return that resets at observations would leave 1 on the earlier turns.
    rewards = np.array([[0, 1, 5, 1, 5, 1, 5, 0, 1, np.nan]], np.float32)
    discounts = np.array([[1, 0.9, 0, 0.9, 0, 0.9, 0, 1, 0.9, np.nan]], np.float32)
    result = reward_to_go(rewards, discounts=discounts, action_mask=MASKS, segment_ids=SEGMENTS)
    np.testing.assert_allclose(result, [[2.71, 2.71, 0, 1.9, 0, 1, 0, 1, 1, 0]], atol=1e-6)


def test_a_win_at_the_end_reaches_every_turn_alike_without_a_discount():
    # Episode 0 wins on its last token. Rewards to go that stop at what is read would leave its earlier turns with 0.
    rewards = np.array([[0, 0, 5, 0, 5, 1, 5, 0, 0, 5]], np.float32)
    ones = adv.token_discounts(1.0, MASKS)
    result = reward_to_go(rewards, discounts=ones, action_mask=MASKS, segment_ids=SEGMENTS)
    np.testing.assert_array_equal(result, [[1, 1, 0, 1, 0, 1, 0, 0, 0, 0]])


@pytest.mark.parametrize("seed", range(2))
def test_reward_to_go_equals_a_slow_loop(seed):
    batch = ragged(seed)
    discounts = adv.token_discounts(0.8, batch.action_mask)
    result = reward_to_go(
        batch.rewards, discounts=discounts, action_mask=batch.action_mask, segment_ids=batch.segment_ids
    )

    def slow(play):
        count = len(play.rewards)
        return [sum(0.8 ** (k - t) * play.rewards[k] for k in range(t, count)) for t in range(count)]

    check(batch, result, slow)
