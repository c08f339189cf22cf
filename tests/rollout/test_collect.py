"""The collector: real processes and a real sampler on the toy game."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import tiny

from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import EnvironmentFailure, TooManyFailures
from jaxmtrl.learner.score import score
from jaxmtrl.rollout.collect import Player
from jaxmtrl.rollout.demonstrate import demonstrate, explore, scripted_episode
from jaxmtrl.rollout.pack import pack
from jaxmtrl.rollout.plays import seeded_plays
from jaxmtrl.rollout.pool import MultiprocessPool, PoolEvent, Work
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import byte_tokenizer
from jaxmtrl.types import EpisodeStop, Task

TOY = "jaxmtrl.envs.toy:make"
TOKENIZER = byte_tokenizer()
TEMPLATE = chatml(TOKENIZER)
SAMPLING = {"slots": 3, "cache_length": 768, "attention_buckets": (768,), "prefill_buckets": (64, 256)}


@pytest.fixture(scope="module")
def engine():
    from dataclasses import replace

    from jaxmtrl.sampling.engine import Engine

    made = Engine(tiny.network(), replace(tiny.SAMPLING, **SAMPLING), sorted(TEMPLATE.stop_ids), tiny.one_device())
    made.load(tiny.params(), 3)
    return made


def make_pool(factory=TOY, options=None, workers=2, step_timeout_s=20.0, name_states=False):
    return MultiprocessPool(
        factory,
        options or {},
        workers=workers,
        step_timeout_s=step_timeout_s,
        reset_timeout_s=20.0,
        recycle_after=0,
        name_states=name_states,
    )


def test_turns_carry_the_environments_own_state_and_plays_that_meet_share_an_anchor(engine):
    """Two plays of one task begin alike, with one anchor; a game of another task never shares it."""
    tasks = load_environment(TOY, {}).split("train").tasks[:2]
    plays = seeded_plays(tasks, group_size=2, seed=(0,))
    with make_pool(name_states=True) as pool:
        episodes = make_player(engine, pool).play(plays, temperature=1.0)
    assert all(turn.state.startswith("room ") for episode in episodes for turn in episode.turns)
    batch = pack(episodes, row_length=1024)
    first = {(row, segment): batch.anchor_ids[row][(batch.segment_ids[row] == segment) & (batch.turn_ids[row] == 0)]
             for row in range(len(batch.tokens)) for segment in range(4)}  # fmt: skip
    anchors = {segment: set(ids.tolist()) for (_, segment), ids in first.items() if len(ids)}
    assert anchors[0] == anchors[1] and anchors[2] == anchors[3] and not anchors[0] & anchors[2]
    assert ((batch.anchor_ids >= 0) == batch.action_mask).all()


def test_states_are_named_only_where_they_are_wanted(engine):
    task = load_environment(TOY, {}).split("train").tasks[0]
    with make_pool() as pool:
        episode = make_player(engine, pool).play(seeded_plays([task], group_size=1, seed=(0,)), temperature=1.0)[0]
    assert {turn.state for turn in episode.turns} == {""}
    assert (pack([episode], row_length=1024).anchor_ids == -1).all()


def make_player(engine, pool, *, max_failed_share=1.0, open_episodes=5, keep_tokens=0):
    return Player(
        engine,
        pool,
        tokenizer=TOKENIZER,
        template=TEMPLATE,
        system_prompt="",
        open_episodes=open_episodes,
        max_action_tokens=tiny.SAMPLING.max_action_tokens,
        max_failed_share=max_failed_share,
        keep_tokens=keep_tokens,
    )


def outline(episode):
    """What an episode is, without floats that depend on the batch around it in the last bit."""
    ids = [(turn.prompt_ids.tolist(), turn.action_ids.tolist(), turn.reward) for turn in episode.turns]
    return episode.task_id, episode.group, episode.index, episode.stop, episode.success, ids


def test_same_seeds_give_the_same_episodes_whatever_the_workers_and_the_open_number(engine):
    tasks = load_environment(TOY, {}).split("train").tasks[:4]
    plays = seeded_plays(tasks, group_size=2, seed=(0, 1, 2))
    outlines = []
    for workers, open_episodes in ((1, 2), (3, 8)):
        with make_pool(workers=workers) as pool:
            player = make_player(engine, pool, open_episodes=open_episodes)
            outlines.append([outline(episode) for episode in player.play(plays, temperature=1.0)])
    assert outlines[0] == outlines[1]
    assert [(group, index) for _, group, index, *_ in outlines[0]] == [(g, i) for g in range(4) for i in range(2)]
    assert outlines[0][0][5] != outlines[0][1][5], "two plays of one task drew the same tokens"


def test_an_untrained_policy_is_truncated_by_steps_and_keeps_its_tail(engine):
    task = load_environment(TOY, {}).split("train").tasks[0]
    with make_pool() as pool:
        episode = make_player(engine, pool).play(seeded_plays([task], group_size=1, seed=(0,)), temperature=1.0)[0]
    assert episode.stop is EpisodeStop.TRUNCATED and not episode.success
    assert len(episode.tail_ids) > 0 and episode.policy_version == 3
    assert all(len(turn.action_ids) == len(turn.action_logprobs) > 0 for turn in episode.turns)


def test_the_tail_is_cut_to_the_row(engine):
    task = load_environment(TOY, {}).split("train").tasks[0]
    plays = seeded_plays([task], group_size=1, seed=(0,))
    with make_pool() as pool:
        whole = make_player(engine, pool).play(plays, temperature=1.0)[0]
        played = sum(len(turn.prompt_ids) + len(turn.action_ids) for turn in whole.turns)
        cut = make_player(engine, pool).play(plays, temperature=1.0, max_tokens=played + 2)[0]
    np.testing.assert_array_equal(cut.tail_ids, whole.tail_ids[:2])


def test_an_episode_whose_next_prompt_has_no_room_is_truncated_not_lost(engine):
    options = {"max_steps": 100_000}
    task = load_environment(TOY, options).split("train").tasks[0]
    with make_pool(options=options) as pool:
        episode = make_player(engine, pool).play(seeded_plays([task], group_size=1, seed=(0,)), temperature=1.0)[0]
    assert episode.stop is EpisodeStop.TRUNCATED
    played = sum(len(turn.prompt_ids) + len(turn.action_ids) for turn in episode.turns)
    assert played <= SAMPLING["cache_length"] + 1 < played + len(episode.tail_ids)


def test_an_episode_that_outgrows_its_slot_may_go_on_without_its_oldest_turns(engine):
    """Told, not silent; the first observation stays; every action is scored as it was sampled."""
    options = {"max_steps": 32}
    task = load_environment(TOY, options).split("train").tasks[0]
    with make_pool(options=options) as pool:
        player = make_player(engine, pool, keep_tokens=400)
        episode = player.play(seeded_plays([task], group_size=1, seed=(0,)), temperature=1.0)[0]
        short = player.play(seeded_plays([task], group_size=1, seed=(0,)), temperature=1.0, max_tokens=1000)[0]
    assert episode.stop is EpisodeStop.TRUNCATED and len(episode.turns) == 32  # by its steps
    drops = [number for number, turn in enumerate(episode.turns) if turn.fresh]
    assert len(drops) >= 2
    opening = episode.turns[0].prompt_ids
    for number in drops:
        prompt = episode.turns[number].prompt_ids
        assert len(prompt) <= 400 and prompt[: len(opening)].tolist() == opening.tolist()
    assert 3 * len(drops) < len(episode.turns)  # in large jumps

    batch = pack([episode], row_length=4096)
    rows = batch.replace(group_ids=np.zeros(1, np.int32))
    scored = jax.jit(lambda rows: score(tiny.network(), tiny.params(), rows, temperature=1.0))(rows)
    mask = batch.action_mask
    np.testing.assert_allclose(np.asarray(scored.logprobs)[mask], batch.behaviour_logprobs[mask], atol=1e-4)

    assert sum(len(turn.prompt_ids) + len(turn.action_ids) for turn in short.turns) + len(short.tail_ids) <= 1000
    assert short.stop is EpisodeStop.TRUNCATED and len(short.turns) < 32
    assert len(short.tail_ids) < 100  # what was read last, and not a whole new context


def faulty_tasks(*faults):
    return [
        Task(id=f"{index}-{fault}", seed=index, payload={"fault": fault, "at_step": 2})
        for index, fault in enumerate(faults)
    ]


def test_a_worker_that_dies_costs_its_episodes_only_and_they_are_never_scored(engine):
    tasks = faulty_tasks("none", "raise", "garbage", "none")
    with make_pool("faulty_env:make", workers=2) as pool:
        episodes = make_player(engine, pool).play(seeded_plays(tasks, group_size=1, seed=(0,)), temperature=1.0)
    assert [episode.failed for episode in episodes] == [False, True, True, False]
    assert all(episode.error for episode in episodes if episode.failed)
    assert engine.free_slots == SAMPLING["slots"]


class ManySlots:
    """A sampler that never answers, and tells who was given a slot."""

    version = 0
    busy = True

    def __init__(self, slots):
        self.free_slots, self.seeds = slots, []

    def open(self, seed, temperature):
        self.free_slots -= 1
        self.seeds.append(seed)
        return len(self.seeds)

    def room(self, slot):
        return 1 << 20

    def submit(self, slot, ids):
        pass

    def close(self, slot):
        pass

    def start(self):
        raise KeyboardInterrupt  # the player has seated all that it could


class ToldPool:
    """Answers every reset at once, as a pool whose workers are those of `workers` in turn."""

    def __init__(self, workers):
        self.workers, self.events = list(workers), []

    def reset(self, episode, task):
        work = Work(self.workers[episode], 0.0, 0.0)
        self.events.append(PoolEvent(episode=episode, kind="observation", observation="", work=work))

    def release(self, episode):
        pass

    def receive(self, timeout_s):
        events, self.events = self.events, []
        return events


def test_slots_go_to_episodes_of_the_workers_with_the_fewest_in_slots():
    """Six episodes wait, of workers 0 0 0 1 1 2, and four have room. Each worker gets one, in order, then 0 again."""
    sampler = ManySlots(4)
    player = make_player(sampler, ToldPool([0, 0, 0, 1, 1, 2]), open_episodes=6)
    plays = seeded_plays([Task(id=str(n), seed=n) for n in range(6)], group_size=1, seed=(0,))
    with pytest.raises(KeyboardInterrupt):
        player.play(plays, temperature=1.0)
    assert sampler.seeds == [plays[n].seed for n in (0, 3, 5, 1)]


def test_too_many_failures_stop_the_run_with_the_reason(engine):
    with make_pool("faulty_env:make", workers=1) as pool:
        player = make_player(engine, pool, max_failed_share=0.5)
        with pytest.raises(TooManyFailures, match="2 of 2 episodes failed.*max_failed_share"):
            player.play(seeded_plays(faulty_tasks("raise", "raise"), group_size=1, seed=(0,)), temperature=1.0)
    assert engine.free_slots == SAMPLING["slots"]


def test_the_expert_wins_and_its_words_become_a_ledger():
    environment = load_environment(TOY, {})
    tasks = environment.split("train").tasks[:3]
    ended = []
    with make_pool() as pool:
        played = demonstrate(environment, pool, tasks, on_played=lambda: ended.append(1))
    assert len(ended) == 3
    for group, (task, turns) in enumerate(zip(tasks, played, strict=True)):
        assert [turn.action for turn in turns] == list(environment.expert_actions(task) or ())
        episode = scripted_episode(
            task, turns, group=group, tokenizer=TOKENIZER, template=TEMPLATE, system_prompt="Play."
        )
        assert episode.success and sum(turn.reward for turn in episode.turns) == 1.0
        assert all(turn.action_ids[-1] == TEMPLATE.turn_end for turn in episode.turns)


def test_random_play_does_admissible_things_to_the_end_and_is_the_same_again():
    environment = load_environment(TOY, {})
    tasks = environment.split("train").tasks[:4]
    with make_pool() as pool:
        plays = [
            explore(pool, tasks, seed=(seed,), max_failed_share=0.0, at_once=at_once)
            for seed, at_once in ((0, 1), (0, 4), (1, 4))
        ]
    assert plays[0] == plays[1] != plays[2]
    env = environment.make_env()
    for task, turns in zip(tasks, plays[0], strict=True):
        observation, result = env.reset(task), None
        for turn in turns:
            assert turn.observation == observation and turn.action in env.admissible()
            result = env.step(turn.action)
            observation = result.observation
        assert result is not None and (result.done or result.truncated)
        assert env.admissible() == []


def test_random_play_needs_an_environment_that_knows_what_can_be_done():
    with make_pool("faulty_env:make", workers=1) as pool:
        with pytest.raises(EnvironmentFailure, match="no admissible actions.*pretrain.plays"):
            explore(pool, faulty_tasks("none", "none"), seed=(0,), max_failed_share=1.0)


def test_random_plays_that_break_are_counted():
    """Three plays, of which one breaks in its reset: a third."""
    sound = [Task(id=str(seed), seed=seed, payload={"admissible": ["play on"]}) for seed in range(2)]
    broken = Task(id="2", seed=2, payload={"admissible": ["play on"], "observation": 7})
    with make_pool("probe_env:make", workers=1) as pool:
        plays = explore(pool, [*sound, broken], seed=(0,), max_failed_share=0.4)
        assert [len(turns) for turns in plays] == [3, 3, 0]
        with pytest.raises(TooManyFailures, match="1 of 1"):
            explore(pool, [broken], seed=(0,), max_failed_share=1.0)
        with pytest.raises(TooManyFailures, match="1 of 3 random plays failed.*max_failed_share is 0.3.*wanted a str"):
            explore(pool, [*sound, broken], seed=(0,), max_failed_share=0.3)
        # One of these actions breaks the game, most often after some turns; nothing of such a play is kept.
        risky = [Task(id=str(n), seed=n, payload={"admissible": ["play on", "play", "nan"]}) for n in range(16)]
        plays = explore(pool, risky, seed=(0,), max_failed_share=1.0)
        assert {len(turns) for turns in plays} == {0, 3}
