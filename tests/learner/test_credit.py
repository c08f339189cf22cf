"""Each algorithm's credit on one small batch, worked by hand: which estimator a name stands for."""

from __future__ import annotations

import numpy as np
import pytest

from jaxmtrl.batch import TokenBatch
from jaxmtrl.config.sections import AlgorithmSection
from jaxmtrl.learner.credit import credit

# Four plays of one task, two turns of one and two tokens; the prompts around them are not shown to the estimators.
MASK = np.array([[0, 1, 0, 1, 1]] * 4, bool)
TURNS = np.array([[-1, 0, -1, 1, 1]] * 4, np.int32)
REWARDS = np.array([[0, 0, 0, 0, 1], [0, 0.5, 0, 0, 0.5], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.float32)  # 1, 1, 0, 0


def batch(anchor_ids=None) -> TokenBatch:
    shape = MASK.shape
    nothing = np.zeros(shape, np.float32)
    return TokenBatch(
        tokens=np.zeros(shape, np.int32),
        segment_ids=np.repeat(np.arange(4, dtype=np.int32)[:, None], shape[1], axis=1),
        positions=np.tile(np.arange(shape[1], dtype=np.int32), (4, 1)),
        action_mask=MASK,
        behaviour_logprobs=nothing,
        rewards=REWARDS,
        turn_ids=TURNS,
        anchor_ids=np.full(shape, -1, np.int32) if anchor_ids is None else np.asarray(anchor_ids, np.int32),
        bootstrap_mask=np.zeros(shape, bool),
        group_ids=np.zeros(4, np.int32),
    )


def advantages(values=0.0, anchor_ids=None, **settings):
    algorithm = AlgorithmSection(group_size=4, **settings)
    rows = batch(anchor_ids)
    return np.asarray(credit(rows, REWARDS, np.full(MASK.shape, values, np.float32), algorithm).advantages)


def test_rloo_is_the_return_less_the_mean_of_the_others():
    # Returns 1, 1, 0, 0: 1 - 1/3 and 0 - 2/3.
    got = advantages(name="rloo")
    np.testing.assert_allclose(got[:, 1], [2 / 3, 2 / 3, -2 / 3, -2 / 3], atol=1e-6)
    np.testing.assert_array_equal(got[:, 3], got[:, 1])


@pytest.mark.parametrize("name", ["grpo", "gspo"])
@pytest.mark.parametrize(("scale", "expected"), [(True, 0.866024), (False, 0.5)])
def test_grpo_and_gspo_centre_and_scale_by_the_sample_deviation(name, scale, expected):
    # Mean .5; sample deviation sqrt(1/3) = .577350; .5 / .577351 = .866024 (case A6).
    got = advantages(name=name, scale_by_std=scale)
    np.testing.assert_allclose(got[:, 4], [expected, expected, -expected, -expected], atol=1e-5)


def test_reinforce_plus_plus_is_the_reward_to_go():
    # gamma .5 a turn: play 1 has .5 + .5 * .5 at its first turn.
    got = advantages(name="reinforce_plus_plus", gamma=0.5, discount_per="turn")
    np.testing.assert_allclose(got[:2, [1, 3, 4]], [[0.5, 1, 1], [0.75, 0.5, 0.5]], atol=1e-6)


def test_reinforce_plus_plus_with_baseline_is_the_return_less_the_mean_of_the_group():
    got = advantages(name="reinforce_plus_plus", group_baseline=True)
    np.testing.assert_allclose(got[:, 1], [0.5, 0.5, -0.5, -0.5], atol=1e-6)


def test_gigpo_adds_what_a_turn_gained_over_turns_that_began_alike():
    """All first turns began in state 0. Play 0's second began in state 1 like play 2's; the other two stand alone.

    gamma 1, no scaling. Episode part .5, .5, -.5, -.5. Turns of state 0 go on to 1, 1, 0, 0: mean .5, so the same
    again. State 1: 1 and 0, so .5 and -.5; the others compare with nobody and get 0.
    """
    anchors = [[-1, 0, -1, 1, 1], [-1, 0, -1, 2, 2], [-1, 0, -1, 1, 1], [-1, 0, -1, -1, -1]]
    got = advantages(name="gigpo", scale_by_std=False, discount_per="turn", anchor_ids=anchors)
    np.testing.assert_allclose(got[:, 1], [1, 1, -1, -1], atol=1e-6)
    np.testing.assert_allclose(got[:, 4], [1, 0.5, -1, -0.5], atol=1e-6)
    halved = advantages(name="gigpo", scale_by_std=False, discount_per="turn", anchor_ids=anchors, anchor_weight=0.5)
    np.testing.assert_allclose(halved[:, 4], [0.75, 0.5, -0.75, -0.5], atol=1e-6)


def test_ppo_by_turns_and_by_both_levels():
    """V = .2 everywhere, lambda 1, gamma 1, play 0 (reward 1 at the end): all sums telescope to 1 - .2.

    gamma .5 a turn, lambda 0: by turns the first turn gets 0 + .5 * .2 - .2 = -.1, the second 1 - .2 = .8 on both of
    its tokens. Both levels: the same at each turn's last token; the token before it adds its own step,
    .2 - .2 + 0 = 0, with gamma_token 1 and lambda 0.
    """
    for credit_per in ("token", "turn", "bilevel"):
        got = advantages(0.2, name="ppo", credit=credit_per)[0]
        np.testing.assert_allclose(got[[1, 3, 4]], 0.8, atol=1e-6)
    turn = advantages(0.2, name="ppo", credit="turn", gamma=0.5, discount_per="turn", lam=0.0)[0]
    np.testing.assert_allclose(turn[[1, 3, 4]], [-0.1, 0.8, 0.8], atol=1e-6)
    both = advantages(0.2, name="ppo", credit="bilevel", gamma=0.5, discount_per="turn", lam=0.0)[0]
    np.testing.assert_allclose(both[[1, 3, 4]], [-0.1, 0.0, 0.8], atol=1e-6)


def test_the_critic_may_have_a_lambda_of_its_own():
    """Values .2, play 0. Advantages by lambda 0: 0, 0, .8. Returns by lambda 1: the reward to go, 1 each."""
    algorithm = AlgorithmSection(name="ppo", lam=0.0, lam_critic=1.0)
    got = credit(batch(), REWARDS, np.full(MASK.shape, 0.2, np.float32), algorithm)
    np.testing.assert_allclose(np.asarray(got.advantages)[0, [1, 3, 4]], [0, 0, 0.8], atol=1e-6)
    np.testing.assert_allclose(np.asarray(got.returns)[0, [1, 3, 4]], [1, 1, 1], atol=1e-6)


def test_lambda_by_length_is_for_the_policy_alone():
    """3 action tokens, a = .5: lambda = 1 - 1/1.5 = 1/3. Last 0.8; then 0 + .8/3; then 0 + .8/9. Returns: lambda 1."""
    algorithm = AlgorithmSection(name="ppo", lam=1.0, lam_adaptive=0.5)
    got = credit(batch(), REWARDS, np.full(MASK.shape, 0.2, np.float32), algorithm)
    np.testing.assert_allclose(np.asarray(got.advantages)[0, [1, 3, 4]], [0.8 / 9, 0.8 / 3, 0.8], atol=1e-6)
    np.testing.assert_allclose(np.asarray(got.returns)[0, [1, 3, 4]], [1, 1, 1], atol=1e-6)
