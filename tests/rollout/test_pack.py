"""Packing: what lands in which column, and that neither rows nor order of arrival change what is learnt."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmtrl.batch import as_text
from jaxmtrl.errors import CapacityError
from jaxmtrl.rl import losses
from jaxmtrl.rl.advantages import gae
from jaxmtrl.rl.episodes import episode_returns, spread
from jaxmtrl.rl.groups import leave_one_out
from jaxmtrl.rl.turns import turn_discounts
from jaxmtrl.rollout.pack import episode_length, pack, packing_efficiency
from jaxmtrl.types import Episode, EpisodeStop, Turn, TurnStop


def turn(prompt, action, reward=0.0, logprobs=None):
    logprobs = [-0.5] * len(action) if logprobs is None else logprobs
    return Turn(
        prompt_ids=np.array(prompt, np.int32),
        action_ids=np.array(action, np.int32),
        action_logprobs=np.array(logprobs, np.float32),
        reward=reward,
        stop=TurnStop.STOP_TOKEN,
    )


def episode(*turns, stop=EpisodeStop.DONE, group=0, index=0, tail=()):
    return Episode(
        task_id=f"task-{group}",
        group=group,
        index=index,
        turns=tuple(turns),
        stop=stop,
        success=False,
        policy_version=0,
        tail_ids=np.array(tail, np.int32),
    )


def random_episodes(seed, count=9):
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        turns = []
        for _ in range(int(random.integers(1, 4))):
            size = int(random.integers(1, 4))
            turns.append(
                turn(
                    random.integers(1, 50, 3),
                    random.integers(1, 50, size),
                    float(random.normal()),
                    -random.random(size),
                )
            )
        stop = EpisodeStop.TRUNCATED if random.random() < 0.5 else EpisodeStop.DONE
        made.append(episode(*turns, stop=stop, group=number // 3, index=number % 3, tail=[1, 2]))
    return made


FIRST = episode(turn([5, 6], [7, 8], 0.5, [-0.1, -0.2]), turn([9], [10], 1.0, [-0.3]), group=4)
CUT = episode(turn([5], [11, 12], 0.25, [-0.4, -0.5]), stop=EpisodeStop.TRUNCATED, group=2, tail=[13, 14])


def test_as_text_everything_is_learnt_but_what_nothing_comes_before():
    text = as_text(pack([FIRST, CUT], row_length=14, pad_id=99))
    # the first token of either episode has nothing to be told from; of the last three columns, which hold no text, one
    # is CUT's bootstrap column
    np.testing.assert_array_equal(text.action_mask, [[0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0]])


def test_every_column_of_a_small_batch():
    batch = pack([FIRST, CUT], row_length=14, pad_id=99)
    # FIRST has 6 columns; CUT 3 + 2 of tail + 1 of bootstrap. Equal lengths keep their order.
    np.testing.assert_array_equal(batch.tokens, [[5, 6, 7, 8, 9, 10, 5, 11, 12, 13, 14, 99, 99, 99]])
    np.testing.assert_array_equal(batch.segment_ids, [[0] * 6 + [1] * 6 + [-1] * 2])
    np.testing.assert_array_equal(batch.positions, [[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 0]])
    np.testing.assert_array_equal(batch.action_mask, np.array([[0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0]], bool))
    np.testing.assert_array_equal(batch.turn_ids, [[-1, -1, 0, 0, -1, 1, -1, 0, 0, -1, -1, -1, -1, -1]])
    np.testing.assert_array_equal(batch.bootstrap_mask, np.arange(14)[None] == 11)
    np.testing.assert_allclose(
        batch.behaviour_logprobs, [[0, 0, -0.1, -0.2, 0, -0.3, 0, -0.4, -0.5, 0, 0, 0, 0, 0]], rtol=1e-6
    )
    np.testing.assert_array_equal(batch.rewards, [[0, 0, 0, 0.5, 0, 1, 0, 0, 0.25, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.group_ids, [4, 2])
    np.testing.assert_array_equal(batch.valid, np.arange(14)[None] < 12)


def test_a_fresh_context_starts_its_positions_anew_and_stays_the_same_episode():
    first, second = turn([5, 6], [7], reward=0.25), replace(turn([5, 6, 8], [9, 10], reward=1.0), fresh=True)
    batch = pack([episode(first, second, turn([11], [12]))], row_length=12)
    np.testing.assert_array_equal(batch.tokens, [[5, 6, 7, 5, 6, 8, 9, 10, 11, 12, 0, 0]])
    np.testing.assert_array_equal(batch.positions, [[0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 0, 0]])
    np.testing.assert_array_equal(batch.segment_ids, [[0] * 10 + [-1] * 2])
    np.testing.assert_array_equal(np.flatnonzero(batch.first[0]), [0, 3])
    np.testing.assert_array_equal(batch.turn_ids, [[-1, -1, 0, -1, -1, -1, 1, 1, -1, 2, -1, -1]])
    np.testing.assert_array_equal(batch.rewards[0, [2, 7]], [0.25, 1.0])


def test_dtypes_are_those_of_the_border():
    batch = pack([FIRST], row_length=8)
    for name in ("tokens", "segment_ids", "positions", "turn_ids", "group_ids"):
        assert getattr(batch, name).dtype == np.int32, name
    for name in ("behaviour_logprobs", "rewards"):
        assert getattr(batch, name).dtype == np.float32, name
    for name in ("action_mask", "bootstrap_mask"):
        assert getattr(batch, name).dtype == bool, name


def test_padding_with_an_id_that_was_sampled_masks_nothing():
    # pad = eos = 2; sampled 7 8 2, a real eos between turns in the prompt 5 2 6. Comparing ids with the padding id
    # would lose the sampled stop token, or the eos in the prompt.
    batch = pack([episode(turn([5, 2, 6], [7, 8, 2]))], row_length=8, pad_id=2)
    np.testing.assert_array_equal(batch.action_mask[0, 3:], np.array([1, 1, 1, 0, 0], bool))
    np.testing.assert_array_equal(batch.valid[0, :3], [True] * 3)
    np.testing.assert_array_equal(batch.tokens, [[5, 2, 6, 7, 8, 2, 2, 2]])


def test_what_was_sampled_stands_in_the_batch_verbatim_and_once():
    episodes = random_episodes(0)
    batch = pack(episodes, row_length=24)
    for number, played in enumerate(episodes):
        own = batch.action_mask & (batch.segment_ids == number)
        np.testing.assert_array_equal(batch.tokens[own], np.concatenate([t.action_ids for t in played.turns]))
        np.testing.assert_array_equal(
            batch.behaviour_logprobs[own], np.concatenate([t.action_logprobs for t in played.turns])
        )
        assert batch.rewards[own].sum() == pytest.approx(played.episode_return, abs=1e-5)
        assert np.sum(batch.segment_ids == number) == episode_length(played)
        np.testing.assert_array_equal(np.sort(np.unique(batch.turn_ids[own])), np.arange(len(played.turns)))


# --- ends of episodes ------------------------------------------------------------------------------------------------


def test_a_finished_episode_ends_with_its_last_action_whatever_was_read_after():
    done = episode(turn([1], [2]), tail=[3, 4])
    assert episode_length(done) == 2
    assert not pack([done], row_length=4).bootstrap_mask.any()


def test_a_truncated_episode_bootstraps_even_without_a_tail_and_in_a_full_row():
    cut = episode(turn([1], [2]), stop=EpisodeStop.TRUNCATED)
    batch = pack([cut], row_length=3)
    np.testing.assert_array_equal(batch.bootstrap_mask, [[False, False, True]])
    np.testing.assert_array_equal(batch.positions, [[0, 1, 2]])


def test_failed_and_unplayed_episodes_are_left_out_and_keep_their_place():
    failed = episode(turn([1, 2], [3], 1.0), stop=EpisodeStop.FAILED, group=0, index=1)
    unplayed = episode(stop=EpisodeStop.TRUNCATED, group=0, index=2, tail=[1])
    wordless = episode(turn([1, 2], []), stop=EpisodeStop.TRUNCATED, group=0, index=3)
    batch = pack([failed, FIRST, unplayed, wordless], row_length=10)
    np.testing.assert_array_equal(batch.group_ids, [-1, 4, -1, -1])
    assert set(batch.segment_ids.ravel()) == {1, -1}


def test_failed_episodes_are_nobodys_peer():
    # Group returns 1, 0, failed, 0: leave one out 1, -.5, none, -.5; the failed one has no column at all.
    plays = [episode(turn([1], [2], reward), index=number) for number, reward in enumerate([1.0, 0.0, 9.0, 0.0])]
    plays[2] = episode(turn([1], [2], 9.0), stop=EpisodeStop.FAILED, index=2)
    batch = pack(plays, row_length=8)
    np.testing.assert_allclose(episode_credit(batch), [1, -0.5, 0, -0.5], atol=1e-6)
    assert not np.any(batch.segment_ids == 2)


def test_the_reward_of_a_turn_without_tokens_goes_to_the_action_before_it():
    played = (turn([1], [2], 0.5), turn([3], [], 0.25), turn([4], [5], 1.0), turn([6], [], 2.0))
    done = pack([episode(*played)], row_length=8)
    np.testing.assert_array_equal(done.tokens, [[1, 2, 3, 4, 5, 0, 0, 0]])
    np.testing.assert_array_equal(done.rewards, [[0, 0.75, 0, 0, 3.0, 0, 0, 0]])
    cut = pack([episode(*played, stop=EpisodeStop.TRUNCATED, tail=[7])], row_length=8, pad_id=9)
    np.testing.assert_array_equal(cut.tokens, [[1, 2, 3, 4, 5, 6, 7, 9]])
    np.testing.assert_array_equal(cut.rewards, [[0, 0.75, 0, 0, 3.0, 0, 0, 0]])


# --- rows ------------------------------------------------------------------------------------------------------------


def plain(length, **where):
    return episode(turn([1] * (length - 1), [2]), **where)


def test_longest_first_into_the_first_row_with_room():
    # Lengths 3 6 5 4 2 into rows of 10: 6 5 4 3 2 -> row 0: 6 + 4, row 1: 5 + 3 + 2.
    batch = pack([plain(n) for n in (3, 6, 5, 4, 2)], row_length=10)
    np.testing.assert_array_equal(batch.segment_ids[0], [1] * 6 + [3] * 4)
    np.testing.assert_array_equal(batch.segment_ids[1], [2] * 5 + [0] * 3 + [4] * 2)
    assert packing_efficiency(batch) == 1.0


def test_fixed_shapes_are_filled_up_with_nothing():
    batch = pack([plain(3)], row_length=6, rows=3, num_episodes=5, pad_id=7)
    assert batch.tokens.shape == (3, 6)
    np.testing.assert_array_equal(batch.group_ids, [0, -1, -1, -1, -1])
    np.testing.assert_array_equal(batch.segment_ids[1:], np.full((2, 6), -1))
    np.testing.assert_array_equal(batch.tokens[1:], np.full((2, 6), 7))
    assert packing_efficiency(batch) == pytest.approx(3 / 18)


def test_a_batch_of_nothing_keeps_its_shape():
    assert pack([], row_length=4).tokens.shape == (1, 4)
    assert not pack([], row_length=4, rows=2, num_episodes=3).valid.any()


def test_what_does_not_fit_is_refused_with_the_numbers():
    with pytest.raises(CapacityError, match="episode 1 takes 9 columns, but a row has 8"):
        pack([plain(3), plain(9)], row_length=8)
    with pytest.raises(CapacityError, match="3 episodes of 15 tokens in all fill 3 rows of 8, but the batch has 2"):
        pack([plain(5)] * 3, row_length=8, rows=2)
    with pytest.raises(CapacityError, match="3 episodes do not fit a batch of 2"):
        pack([plain(5)] * 3, row_length=8, num_episodes=2)


# --- packing changes nothing -----------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=1)
def token_credit(batch, num_episodes):
    """GAE and its returns, spread leave-one-out and policy-loss weights, with toy values; four of [B, T]."""
    # The value of a column depends on its token and its position, as it would in a model that sees one episode only.
    values = jnp.sin(batch.tokens + 3.0 * batch.positions)
    discounts = turn_discounts(0.9, batch.action_mask, batch.turn_ids, batch.segment_ids)
    advantages, returns = gae(
        batch.rewards,
        values,
        action_mask=batch.action_mask,
        segment_ids=batch.segment_ids,
        bootstrap_mask=batch.bootstrap_mask,
        discounts=discounts,
        lam=0.8,
    )
    totals = episode_returns(batch.rewards, batch.action_mask, batch.segment_ids, num_episodes)
    relative = spread(leave_one_out(totals, batch.group_ids), batch.segment_ids, batch.action_mask)
    weights = losses.loss_weights(
        batch.action_mask, batch.segment_ids, num_episodes=num_episodes, mean="sequence_token_mean"
    )
    return advantages, returns, relative, weights


def credit(batch, num_episodes):
    """`token_credit` on the action tokens of each episode."""
    arrays = [np.asarray(array) for array in token_credit(batch, num_episodes)]
    owned = [batch.action_mask & (batch.segment_ids == number) for number in range(num_episodes)]
    return [np.stack([array[own] for array in arrays]) for own in owned]


@pytest.mark.parametrize("seed", range(2))
def test_credit_does_not_depend_on_how_episodes_share_rows(seed):
    episodes = random_episodes(seed)
    longest = max(map(episode_length, episodes))
    packed = pack(episodes, row_length=3 * longest)
    # One episode a row: with rows so short that no two fit, made so by one row each.
    alone = [pack([played], row_length=longest) for played in episodes]
    lone = pack([], row_length=longest, rows=len(episodes), num_episodes=len(episodes))
    for number, single in enumerate(alone):
        for name in (
            "tokens",
            "positions",
            "action_mask",
            "behaviour_logprobs",
            "rewards",
            "turn_ids",
            "bootstrap_mask",
        ):
            getattr(lone, name)[number] = getattr(single, name)[0]
        lone.segment_ids[number] = np.where(single.segment_ids[0] >= 0, number, -1)
        lone.group_ids[number] = single.group_ids[0]
    assert packed.tokens.shape[0] < len(episodes)
    for got, expected in zip(credit(packed, len(episodes)), credit(lone, len(episodes)), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


@jax.jit
def episode_credit(batch):
    returns = episode_returns(batch.rewards, batch.action_mask, batch.segment_ids, batch.group_ids.size)
    return leave_one_out(returns, batch.group_ids)


def leave_one_out_by_play(episodes):
    """What pack and leave-one-out make of each play, by (group, index)."""
    advantages = np.asarray(episode_credit(pack(episodes, row_length=8, rows=4)))
    return dict(zip([(e.group, e.index) for e in episodes], advantages, strict=True))


def test_advantages_follow_the_prompt_whatever_order_games_finish_in():
    # Four tasks of two plays; returns are such that pairing by arrival would be seen at once.
    plays = [plain(3, group=g, index=i) for g in range(4) for i in range(2)]
    plays = [episode(turn([1], [2], 10.0**p.group * (p.index + 1)), group=p.group, index=p.index) for p in plays]
    expected = {(g, i): 10.0**g * (1 if i else -1) for g in range(4) for i in range(2)}
    random = np.random.default_rng(0)
    for _ in range(100):
        arrived = [plays[at] for at in random.permutation(8)]
        assert leave_one_out_by_play(arrived) == pytest.approx(expected)
    batch = pack(plays, row_length=8)
    again = pack(sorted(arrived, key=lambda e: (e.group, e.index)), row_length=8)
    np.testing.assert_array_equal(batch.tokens, again.tokens)
    np.testing.assert_array_equal(batch.rewards, again.rewards)
