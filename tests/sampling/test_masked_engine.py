"""Sampling under a mask of actions: only allowed verbs, the learner's log-probs, and batches that stay invariant."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.sharding import Mesh

from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.actions.verbs import verb_of
from jaxmtrl.config.sections import AlgorithmSection, OptimizerSection
from jaxmtrl.learner.device import DeviceBatch, micro_batch_order, put_batch
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.score import score
from jaxmtrl.learner.state import TrainState, params_shardings, restart
from jaxmtrl.parallel.mesh import make_mesh, sampling_mesh
from jaxmtrl.parallel.sharding import replicated
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


def sampled_on(playing: Mesh) -> list[Episode]:
    section = dataclasses.replace(SECTION, attention_buckets=(256,), prefill_buckets=(32,))  # few programs
    engine = Engine(tiny.network(), section, [STOP], playing, table=MASK.table)
    engine.load(tiny.params(), 0)
    return [play(engine, number, number % 2, turns=2, temperature=0.7) for number in range(4)]


def learner_on(mesh: Mesh, played: list[Episode]) -> tuple[Learner, TrainState, DeviceBatch]:
    """The compiled programs of a learner, its state, and episodes as they take them."""
    network = tiny.network().for_learning(mesh, "auto")
    # A large epsilon keeps Adam's step continuous in the gradient, so that rounding is not blown up to a whole step.
    optimizer = make_optimizer(
        OptimizerSection(eps=0.1), network, learning_rate=0.1, critic_learning_rate=0.1, total_steps=9, warmup_steps=0
    )
    algorithm = AlgorithmSection(name="ppo", minibatches=1, entropy_coef=0.1)
    learner = Learner(network, mesh, optimizers={"policy": optimizer}, algorithm=algorithm, temperature=0.7)
    batch = put_batch(
        pack(played, row_length=80, rows=4, masked=True),
        micro_batch_rows=2,
        max_rows=4,
        mesh=mesh,
        supports=jax.device_put(MASK.allowed, replicated(mesh)),
    )
    params = jax.device_put(jax.tree.map(np.asarray, tiny.params()), params_shardings(network, mesh))
    return learner, restart(params, network, optimizer, mesh), batch


@pytest.fixture(scope="module")
def alone() -> list[Episode]:
    return sampled_on(tiny.one_device())


@pytest.mark.parametrize(
    ("shape", "tensor"), [((2, 1, 1), 1), ((1, 2, 1), 0), pytest.param((1, 1, 2), 0, marks=pytest.mark.slow)]
)
def test_sampler_and_learner_agree_on_a_mesh_of_two_devices(alone, shape, tensor):
    """Rows, weights or heads are split; the sampler splits its slots or its heads, and draws what one device draws."""
    mesh = make_mesh(*shape, devices=jax.devices()[:2])
    playing = sampling_mesh(mesh, kv_heads=2, tensor=tensor)
    assert playing.size == 2
    played = sampled_on(playing)
    for ours, theirs in zip(played, alone, strict=True):
        for turn, other in zip(ours.turns, theirs.turns, strict=True):
            assert turn.action_ids.tolist() == other.action_ids.tolist()
    learner, state, batch = learner_on(mesh, played)
    scored = np.asarray(learner.score(state.params, batch).logprobs)
    mask = np.asarray(batch.rows.action_mask)
    assert mask.sum() == sum(len(turn.action_ids) for episode in played for turn in episode.turns) > 30
    assert np.abs(scored - np.asarray(batch.rows.behaviour_logprobs))[mask].max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 2, 1), (1, 1, 2)])
def test_an_update_under_a_mask_is_the_same_on_a_mesh(alone, shape):
    """Entropies of what was left to choose from, and the weights after a step with made-up credit."""
    results = []
    for mesh in (tiny.one_device(), make_mesh(*shape, devices=jax.devices()[:2])):
        learner, state, batch = learner_on(mesh, alone)
        scores = learner.score(state.params, batch)
        targets, _ = learner.targets(batch, scores)
        signs = np.where(np.asarray(batch.rows.turn_ids) % 2 == 0, 1.0, -0.5) * np.asarray(targets.learn)
        targets = targets.replace(advantages=jax.device_put(signs.astype(np.float32), targets.advantages.sharding))
        entropies = np.asarray(scores.entropies)
        order = micro_batch_order(np.random.default_rng(0), used=2, count=2, epochs=1)
        results.append((entropies, learner.update("policy", state, batch, targets, order)[0].params))
    (want_entropies, want), (entropies, got) = results
    np.testing.assert_allclose(entropies, want_entropies, atol=1e-5)
    moved = 0.0
    for ours, theirs, begun in zip(*map(jax.tree.leaves, (got, want, tiny.params())), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
        moved = max(moved, float(np.abs(np.asarray(theirs) - np.asarray(begun)).max()))
    assert moved > 1e-2


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
