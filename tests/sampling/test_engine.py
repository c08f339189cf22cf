"""The slots engine: same numbers as the learner, draws that depend on the episode alone, bounded compilation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tiny

from jaxmtrl.batch import TokenBatch
from jaxmtrl.errors import CapacityError
from jaxmtrl.learner.score import score
from jaxmtrl.models.kv_cache import cache_bytes, cache_length
from jaxmtrl.sampling.engine import Engine
from jaxmtrl.types import TurnStop

CAP = tiny.SAMPLING.max_action_tokens


class Ledger:
    """Token ids and log-probs of one episode, as the rollout would keep them."""

    def __init__(self):
        self.ids, self.logprobs, self.mask = [], [], []

    def read(self, ids):
        self.ids += list(ids)
        self.logprobs += [0.0] * len(ids)
        self.mask += [False] * len(ids)

    def acted(self, sampled):
        self.ids += sampled.ids.tolist()
        self.logprobs += sampled.logprobs.tolist()
        self.mask += [True] * len(sampled.ids)


def prompt(episode: int, turn: int) -> np.ndarray:
    rng = np.random.default_rng((episode, turn))
    return rng.integers(0, 256, rng.integers(3, 40)).astype(np.int32)


def play(engine: Engine, episodes, *, turns: int = 3, temperature: float = 1.0) -> dict[int, Ledger]:
    """Plays all episodes, as many at once as there are slots."""
    waiting, open_, ledgers, taken = list(episodes), {}, {}, {}
    while waiting or open_:
        while waiting and engine.free_slots:
            episode = waiting.pop(0)
            slot = engine.open((7, episode), temperature)
            open_[slot], ledgers[episode], taken[episode] = episode, Ledger(), 0
            ledgers[episode].read(prompt(episode, 0))
            engine.submit(slot, prompt(episode, 0))
        for sampled in engine.step():
            episode = open_[sampled.slot]
            ledgers[episode].acted(sampled)
            taken[episode] += 1
            if taken[episode] == turns:
                engine.close(sampled.slot)
                del open_[sampled.slot]
            else:
                ledgers[episode].read(prompt(episode, taken[episode]))
                engine.submit(sampled.slot, prompt(episode, taken[episode]))
    return ledgers


def learner_logprobs(ledger: Ledger, temperature: float, params=None) -> np.ndarray:
    length = len(ledger.ids)
    row = np.zeros((1, length), np.float32)
    batch = TokenBatch(
        tokens=np.array([ledger.ids], np.int32),
        segment_ids=np.zeros((1, length), np.int32),
        positions=np.arange(length, dtype=np.int32)[None],
        action_mask=np.array([ledger.mask]),
        behaviour_logprobs=row,
        rewards=row,
        turn_ids=np.zeros((1, length), np.int32),
        anchor_ids=np.full((1, length), -1, np.int32),
        bootstrap_mask=np.zeros((1, length), bool),
        group_ids=np.zeros(1, np.int32),
    )
    return np.asarray(score(tiny.network(), params or tiny.params(), batch, temperature=temperature).logprobs)[0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_learner_give_the_same_logprobs(temperature):
    """Case D1: three turns with cached decode against one full forward."""
    ledger = play(tiny.engine(), [0], temperature=temperature)[0]
    mask = np.array(ledger.mask)
    gap = np.abs(learner_logprobs(ledger, temperature) - np.array(ledger.logprobs))[mask]
    assert gap.max() < 1e-4


@pytest.mark.parametrize(
    ("dtype", "bytes_a_number", "worst"),
    [pytest.param("bfloat16", 2, 0.03, marks=pytest.mark.slow), ("int8", 1.5, 0.06)],
)
def test_a_smaller_cache_changes_log_probs_a_little(dtype, bytes_a_number, worst):
    """int8 has a scale of 4 bytes for each 8 numbers of a head here; the learner reads no cache at all."""
    made = Engine(tiny.network(), dataclasses.replace(tiny.SAMPLING, cache_dtype=dtype), [258], tiny.one_device())
    made.load(tiny.params(), 0)
    cache = made._cache
    numbers = 2 * 2 * 4 * 2 * 128 * 8  # keys and values, layers, slots, heads, columns of the first bucket, width
    assert cache_bytes(cache) == bytes_a_number * numbers
    ledger = play(made, [0])[0]
    mask = np.array(ledger.mask)
    gap = np.abs(learner_logprobs(ledger, 1.0) - np.array(ledger.logprobs))[mask]
    assert 1e-5 < gap.max() < worst


def test_an_episode_does_not_depend_on_its_slot_or_its_neighbours():
    forward = play(tiny.engine(), range(10))
    backward = play(tiny.engine(), reversed(range(10)))
    alone = play(tiny.engine(), [6])
    assert all(forward[episode].ids == backward[episode].ids for episode in forward)
    assert alone[6].ids == forward[6].ids


def test_another_seed_is_another_episode():
    one, other = tiny.engine().open((7, 0), 1.0), tiny.engine().open((8, 0), 1.0)
    actions = {}
    for slot in (one, other):
        tiny.engine().submit(slot, prompt(0, 0))
    while len(actions) < 2:
        actions |= {sampled.slot: sampled.ids.tolist() for sampled in tiny.engine().step()}
    tiny.engine().close(one)
    tiny.engine().close(other)
    assert actions[one] != actions[other]


def test_second_pass_compiles_nothing_and_prompts_of_any_length_go_in():
    """Case F4, sampler side: lengths 1..200 through buckets 16 and 64."""
    import jax

    engine = tiny.engine()
    with jax.log_compiles(False):
        before = engine.programs
        for length in (1, 15, 16, 17, 64, 65, 130, 200):
            slot = engine.open((1, length), 1.0)
            engine.submit(slot, (np.arange(length) % 256).astype(np.int32))
            while not (sampled := engine.step()):
                pass
            assert 1 <= len(sampled[0].ids) <= CAP
            engine.close(slot)
    assert engine.programs == before


def test_a_long_prompt_in_pieces_gives_the_same_action_as_in_one():
    """130 tokens go as 64 + 64 + 2; the learner sees them at once."""
    engine, ledger = tiny.engine(), Ledger()
    slot = engine.open((3, 3), 1.0)
    ids = np.random.default_rng(5).integers(0, 256, 130).astype(np.int32)
    ledger.read(ids)
    engine.submit(slot, ids)
    while not (sampled := engine.step()):
        pass
    ledger.acted(sampled[0])
    engine.close(slot)
    mask = np.array(ledger.mask)
    np.testing.assert_allclose(learner_logprobs(ledger, 1.0)[mask], np.array(ledger.logprobs)[mask], atol=1e-4)


def test_the_budget_shrinks_to_the_room_and_no_room_is_refused():
    """Case C9: with one column of room exactly one token comes, from the prefill; with none the prompt is refused."""
    engine = tiny.engine()
    length = tiny.SAMPLING.cache_length
    slot = engine.open((2, 2), 1.0)
    with pytest.raises(CapacityError, match="cache_length"):
        engine.submit(slot, np.zeros(length + 1, np.int32))
    engine.submit(slot, np.zeros(length, np.int32))
    while not (sampled := engine.step()):
        pass
    engine.close(slot)
    assert len(sampled[0].ids) == 1


def test_stop_token_is_handed_over_and_the_cap_is_named():
    engine = tiny.engine()
    seen = {play_one(engine, episode).stop for episode in range(3)}
    assert seen <= {TurnStop.STOP_TOKEN, TurnStop.LENGTH}
    for episode in range(40):
        sampled = play_one(engine, episode)
        stops = [index for index, token in enumerate(sampled.ids.tolist()) if token == 258]
        if sampled.stop is TurnStop.STOP_TOKEN:
            assert stops == [len(sampled.ids) - 1]
        else:
            assert not stops and len(sampled.ids) == CAP


def play_one(engine: Engine, episode: int):
    slot = engine.open((9, episode), 1.0)
    engine.submit(slot, prompt(episode, 0)[:3])
    while not (sampled := engine.step()):
        pass
    engine.close(slot)
    return sampled[0]


def test_new_weights_never_read_an_old_cache():
    """Case D5: loading is refused while a slot is open; afterwards log-probs are those of the new weights."""
    engine = tiny.engine()
    slot = engine.open((4, 4), 1.0)
    with pytest.raises(RuntimeError, match="older weights"):
        engine.load(tiny.params(1), 1)
    engine.close(slot)
    engine.load(tiny.params(1), 1)
    try:
        ledger = play(engine, [0])[0]
    finally:
        engine.load(tiny.params(), 0)
    mask = np.array(ledger.mask)
    new, old = (learner_logprobs(ledger, 1.0, tiny.params(seed))[mask] for seed in (1, 0))
    np.testing.assert_allclose(new, np.array(ledger.logprobs)[mask], atol=1e-4)
    assert np.abs(old - np.array(ledger.logprobs)[mask]).max() > 1e-2


def test_the_cache_is_as_long_as_its_longest_open_episode():
    """Buckets 128 and 256. 110 tokens, an action and a chunk fit the first; 120 more do not, and closing gives them
    back. The neighbour's episode is what it is alone, though its cache grew and shrank in the middle of it."""
    engine = tiny.engine()
    alone = play(engine, [1])[1]
    lengths = [cache_length(engine._cache)]
    ids = (np.arange(250) % 256).astype(np.int32)
    keep, long = engine.open((7, 1), 1.0), engine.open((1, 1), 1.0)
    ledger, turn, read = Ledger(), 0, 0
    for wanted in (110, 230, None):
        if wanted is None:
            engine.close(long)
        else:
            engine.submit(long, ids[read:wanted])
            read = wanted
        ledger.read(prompt(1, turn))
        engine.submit(keep, prompt(1, turn))
        due = {keep, long} if wanted else {keep}
        while due:
            for sampled in engine.step():
                due.discard(sampled.slot)
                if sampled.slot == keep:
                    ledger.acted(sampled)
        lengths.append(cache_length(engine._cache))
        turn += 1
    engine.close(keep)
    assert lengths == [128, 128, 256, 128]
    assert ledger.ids == alone.ids


def test_the_old_cache_is_given_up():
    """Donation: after a step the buffer of before is deleted, so two caches never exist at once."""
    engine = tiny.engine()
    slot = engine.open((5, 5), 1.0)
    before = engine._cache[0][0]
    engine.submit(slot, prompt(0, 0))
    while not engine.step():
        pass
    engine.close(slot)
    assert before.is_deleted()


def test_closing_a_slot_in_the_middle_leaves_the_others_alone():
    engine = tiny.engine()
    whole = play(engine, [1])[1]
    keep, drop = engine.open((7, 1), 1.0), engine.open((7, 2), 1.0)
    ledger = Ledger()
    for slot, episode in ((keep, 1), (drop, 2)):
        engine.submit(slot, prompt(episode, 0))
    ledger.read(prompt(1, 0))
    first = engine.step()
    engine.close(drop)
    while not any(sampled.slot == keep for sampled in first):
        first = engine.step()
    ledger.acted(next(sampled for sampled in first if sampled.slot == keep))
    engine.close(keep)
    assert ledger.ids == whole.ids[: len(ledger.ids)]


def shared_prompts(engine: Engine, prompts) -> dict[int, Ledger]:
    """One action for each prompt, all submitted at once."""
    slots, ledgers, done = {}, {}, 0
    for number, ids in enumerate(prompts):
        slot = engine.open((11, number), 1.0)
        slots[slot], ledgers[number] = number, Ledger()
        ledgers[number].read(ids)
        engine.submit(slot, ids)
    while done < len(slots):
        for sampled in engine.step():
            ledgers[slots[sampled.slot]].acted(sampled)
            done += 1
    for slot in slots:
        engine.close(slot)
    return ledgers


def test_plays_of_one_task_read_their_prompt_once():
    """Four plays of one task: one prompt is computed, three are copied but for their last token."""
    engine = tiny.engine()
    ids = np.random.default_rng(1).integers(0, 256, 50).astype(np.int32)
    prefilled, copied = engine.tokens_prefilled, engine.tokens_copied
    ledgers = shared_prompts(engine, [ids] * 4)
    assert engine.tokens_prefilled - prefilled == 50 + 3
    assert engine.tokens_copied - copied == 3 * 49
    assert len({tuple(ledger.ids) for ledger in ledgers.values()}) > 1, "the plays drew the same tokens"
    for ledger in ledgers.values():
        mask = np.array(ledger.mask)
        np.testing.assert_allclose(learner_logprobs(ledger, 1.0)[mask], np.array(ledger.logprobs)[mask], atol=1e-4)


def test_a_common_system_prompt_is_copied_and_the_rest_is_read():
    engine = tiny.engine()
    rng = np.random.default_rng(2)
    system = rng.integers(0, 256, 30).astype(np.int32)
    prompts = [np.concatenate([system, rng.integers(0, 256, 20 + n).astype(np.int32)]) for n in range(3)]
    copied = engine.tokens_copied
    ledgers = shared_prompts(engine, prompts)
    assert engine.tokens_copied - copied >= 2 * 30
    for ledger in ledgers.values():
        mask = np.array(ledger.mask)
        np.testing.assert_allclose(learner_logprobs(ledger, 1.0)[mask], np.array(ledger.logprobs)[mask], atol=1e-4)


@pytest.mark.slow
def test_sampled_tokens_are_the_same_on_every_mesh():
    """Case F7: greedy actions on (1, 1, 1), (2, 1, 1) and (1, 1, 2)."""
    import jax

    from jaxmtrl.parallel.mesh import make_mesh

    actions = []
    for shape in ((1, 1, 1), (2, 1, 1), (1, 1, 2)):
        count = int(np.prod(shape))
        mesh = make_mesh(*shape, devices=jax.devices()[:count])
        engine = Engine(tiny.network(), tiny.SAMPLING, [258], mesh)
        engine.load(tiny.params(), 0)
        actions.append({e: ledger.ids for e, ledger in play(engine, range(3), turns=1, temperature=0.0).items()})
    assert actions[0] == actions[1] == actions[2]
