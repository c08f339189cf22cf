"""Sampling under a mask of actions: only allowed verbs, the learner's log-probs, and batches that stay invariant."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.actions.verbs import verb_of
from jaxmtrl.learner.device import put_batch
from jaxmtrl.learner.score import score
from jaxmtrl.rollout.pack import pack
from jaxmtrl.sampling.engine import Engine
from jaxmtrl.sampling.logits import sample_allowed
from jaxmtrl.sampling.programs import empty_state
from jaxmtrl.text.action_mask import action_mask
from jaxmtrl.text.tokenizer import byte_tokenizer
from jaxmtrl.types import Episode, EpisodeStop, Turn

TOKENIZER = byte_tokenizer()
STOP = TOKENIZER.special_id("<|im_end|>")
SPACE = ActionSpace.of({"one": ["go", "take"], "two": ["go to", "hit"]}, {})
MASK = action_mask(SPACE, TOKENIZER, [STOP], rows=tiny.network().config.vocab_rows, think=False)
SECTION = dataclasses.replace(tiny.SAMPLING, max_action_tokens=10)


@pytest.fixture(scope="module")
def engine() -> Engine:
    made = Engine(tiny.network(), SECTION, [STOP], tiny.one_device(), table=MASK.table)
    made.load(tiny.params(), 0)
    return made


def play(engine: Engine, number: int, stage: int | None, *, turns: int = 3, temperature: float = 1.0) -> Episode:
    """One episode of made-up prompts; the second is a single token, which decode reads."""
    slot, root, played = engine.open((5, number), temperature, MASK.root(stage)), MASK.root(stage), []
    for turn in range(turns):
        rng = np.random.default_rng((number, turn))
        prompt = rng.integers(0, 256, 1 if turn == 1 else rng.integers(3, 30)).astype(np.int32)
        engine.submit(slot, prompt)
        while not (sampled := engine.step()):
            pass
        (action,) = sampled
        played.append(
            Turn(
                prompt_ids=prompt,
                action_ids=action.ids,
                action_logprobs=action.logprobs,
                reward=0.0,
                stop=action.stop,
                support_ids=MASK.states(root, action.ids),
            )
        )
    engine.close(slot)
    return Episode(
        task_id="t",
        group=number,
        index=0,
        turns=tuple(played),
        stop=EpisodeStop.DONE,
        success=False,
        policy_version=0,
    )


@pytest.fixture(scope="module")
def episodes(engine) -> list[Episode]:
    return [play(engine, number, stage) for number, stage in enumerate([0, 1, 0, 1, None, 1])]


def learner_logprobs(episodes, *, supports=MASK.allowed, row_length=200, rows=None, pad_id=0, temperature=1.0):
    """By episode, the log-probs of its action tokens in order."""
    batch = pack(episodes, row_length=row_length, rows=rows, pad_id=pad_id, masked=True)
    device = put_batch(
        batch,
        micro_batch_rows=batch.tokens.shape[0],
        max_rows=batch.tokens.shape[0],
        mesh=tiny.one_device(),
        supports=jnp.asarray(supports),
    ).rows
    one = jax.tree.map(lambda x: x[0] if x.ndim == 3 else x, device)
    found = np.asarray(score(tiny.network(), tiny.params(), one, temperature=temperature).logprobs)
    mask, owner = np.asarray(one.action_mask), np.asarray(one.segment_ids)
    return [found[mask & (owner == number)] for number in range(len(episodes))]


def sampled_logprobs(episode: Episode) -> np.ndarray:
    return np.concatenate([turn.action_logprobs for turn in episode.turns])


def test_only_verbs_of_the_stage_are_begun(engine, episodes):
    """Each turn's text is an allowed command, or the beginning of one that the cap cut."""
    for episode, stage in zip(episodes, [0, 1, 0, 1, None, 1]):
        if stage is None:
            continue
        for turn in episode.turns:
            text, allowed = TOKENIZER.decode(turn.action_ids), SPACE.allowed(stage)
            cut = any(verb.startswith(text) for verb in allowed)
            assert cut or verb_of(text, SPACE.known) in allowed, text


def test_greedy_play_keeps_to_the_mask_too(engine):
    episode = play(engine, 9, 0, temperature=0.0)
    texts = [TOKENIZER.decode(turn.action_ids) for turn in episode.turns]
    assert all(text[:2] in ("go", "ta") for text in texts)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_learner_agree_on_what_was_left_to_choose_from(engine, temperature):
    played = [play(engine, number, number % 2, temperature=temperature) for number in (0, 1)]
    gaps = [
        np.abs(ours - sampled_logprobs(episode))
        for ours, episode in zip(learner_logprobs(played, temperature=temperature), played)
    ]
    assert max(gap.max() for gap in gaps) < 1e-4


def test_a_learner_that_knew_no_mask_would_be_far_off(episodes):
    """What the test above would see: with everything allowed, first tokens are 50 times less likely."""
    nothing = np.ones_like(MASK.allowed)
    gap = np.abs(learner_logprobs(episodes[:1], supports=nothing)[0] - sampled_logprobs(episodes[0]))
    assert gap.max() > 3


def test_without_a_stage_nothing_is_masked(episodes):
    free = episodes[4]
    assert not any(turn.support_ids.any() for turn in free.turns)
    gap = np.abs(learner_logprobs([free])[0] - sampled_logprobs(free))
    assert gap.max() < 1e-4


def test_padding_and_packing_change_nothing(episodes):
    alone = [learner_logprobs([episode])[0] for episode in episodes]
    packed = learner_logprobs(episodes, row_length=400, pad_id=7)
    padded = learner_logprobs(episodes, row_length=250, rows=8)
    for one, two, three in zip(alone, packed, padded):
        np.testing.assert_allclose(two, one, atol=1e-5)
        np.testing.assert_allclose(three, one, atol=1e-5)


def test_a_draw_does_not_depend_on_the_slot(engine, episodes):
    other = engine.open((1, 1), 1.0, MASK.root(1))  # takes the slot that the others had
    again = play(engine, 2, 0)
    engine.close(other)
    assert [turn.action_ids.tolist() for turn in again.turns] == [
        turn.action_ids.tolist() for turn in episodes[2].turns
    ]


def test_nothing_is_drawn_that_is_not_allowed_and_the_rest_adds_up_to_1():
    """Three of 1000 tokens are allowed, p ∝ e^1, e^2, e^3: .090, .245, .665."""
    allowed = np.zeros(1000, bool)
    allowed[[3, 500, 999]] = True
    logits = np.full(1000, 5.0, np.float32)
    logits[allowed] = [1, 2, 3]
    keys = jax.random.split(jax.random.key(0), 4000)
    token, logprob = jax.vmap(lambda key: sample_allowed(key, logits, jnp.float32(1.0), allowed))(keys)
    found, counts = np.unique(np.asarray(token), return_counts=True)
    assert found.tolist() == [3, 500, 999]
    np.testing.assert_allclose(counts / 4000, [0.090, 0.245, 0.665], atol=0.03)
    np.testing.assert_allclose(np.exp(np.unique(np.asarray(logprob))), [0.0900, 0.2447, 0.6652], atol=1e-3)


def test_without_a_mask_there_is_nothing_of_it(episodes):
    state = empty_state(2, 4)
    assert state.root is None and state.support is None
    batch = pack(episodes, row_length=400)
    assert batch.support_ids is None and batch.supports is None
