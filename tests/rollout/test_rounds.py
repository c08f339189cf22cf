"""Rounds of the device: who takes part, and what is heard while it works. Scripted device and environments."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from jaxmtrl.rollout import collect
from jaxmtrl.rollout.collect import Player
from jaxmtrl.rollout.plays import seeded_plays
from jaxmtrl.rollout.pool import PoolEvent
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import byte_tokenizer
from jaxmtrl.types import StepResult, Task, TurnStop

TOKENIZER = byte_tokenizer()
TEMPLATE = chatml(TOKENIZER)
TURNS = 4


@dataclass
class Action:
    """One token, which ends the turn."""

    slot: int
    ids: np.ndarray
    logprobs: np.ndarray
    stop: TurnStop


class Device:
    """Ends every action in one round, which takes 40 ms; tells how many prompts each round began with."""

    version, working_until = 0, 0.0

    def __init__(self):
        self.free = [5, 4, 3, 2, 1, 0]
        self.submitted, self.sent, self.rounds = [], [], []

    free_slots = property(lambda self: len(self.free))
    busy = property(lambda self: bool(self.submitted or self.sent))
    working = property(lambda self: time.monotonic() < self.working_until)

    def open(self, seed, temperature):
        return self.free.pop()

    def close(self, slot):
        self.free.append(slot)

    def room(self, slot):
        return 1 << 20

    def submit(self, slot, ids):
        self.submitted.append(slot)

    def start(self):
        self.sent, self.submitted = self.submitted, []
        self.rounds.append(len(self.sent))
        self.working_until = time.monotonic() + 0.04

    def step(self):
        time.sleep(max(0.0, self.working_until - time.monotonic()))
        ended, self.sent = self.sent, []
        end = np.array([TEMPLATE.turn_end], np.int32)
        return [Action(slot, end, np.zeros(1, np.float32), TurnStop.STOP_TOKEN) for slot in ended]


class OneByOne:
    """Answers one message a call, in order, `late_s` after it was asked; tells when each was heard."""

    def __init__(self, late_s=0.0):
        self.late_s, self.asked, self.turns, self.heard = late_s, deque(), {}, []

    def reset(self, episode, task):
        self.turns[episode] = 0
        self.asked.append((time.monotonic(), PoolEvent(episode=episode, kind="observation", observation="look")))

    def step(self, episode, action):
        self.turns[episode] += 1
        step = StepResult(observation="on", reward=0.0, done=self.turns[episode] == TURNS)
        self.asked.append((time.monotonic() + self.late_s, PoolEvent(episode=episode, kind="step", step=step)))

    def release(self, episode):
        pass

    def receive(self, timeout_s):
        due = self.asked[0][0] if self.asked else float("inf")
        time.sleep(max(0.0, min(due - time.monotonic(), 60.0 if timeout_s is None else timeout_s)))
        if time.monotonic() < due:
            return []
        self.heard.append(time.monotonic())
        return [self.asked.popleft()[1]]


def play(device, pool):
    player = Player(
        device,
        pool,
        tokenizer=TOKENIZER,
        template=TEMPLATE,
        system_prompt="",
        open_episodes=6,
        max_action_tokens=4,
        max_failed_share=0.0,
    )
    return player.play(
        seeded_plays([Task(id=str(n), seed=n) for n in range(6)], group_size=1, seed=(0,)), temperature=1
    )


def test_answers_that_come_one_by_one_go_into_one_round(monkeypatch):
    """Only the first round cannot know how long a round is: it begins with what is there."""
    monkeypatch.setattr(collect, "PATIENCE", 5.0)  # 200 ms, more than a busy machine keeps an answer back
    device = Device()
    episodes = play(device, OneByOne())
    assert all(len(episode.turns) == TURNS for episode in episodes)
    assert sum(device.rounds) == 6 * TURNS
    assert device.rounds == [1, 6, 6, 6, 5]


def test_without_patience_a_round_begins_with_whatever_is_there(monkeypatch):
    monkeypatch.setattr(collect, "PATIENCE", 0.0)
    device = Device()
    play(device, OneByOne())
    assert sum(device.rounds) == 6 * TURNS and device.rounds.count(1) > 2


def test_a_late_answer_does_not_hold_up_the_others():
    """All but one answer at once; that one takes 0.1 s a step, two rounds and more, in which the others go on."""

    class OneIsSlow(OneByOne):
        def step(self, episode, action):
            self.late_s = 0.1 if episode == 0 else 0.0
            super().step(episode, action)
            self.asked = deque(sorted(self.asked, key=lambda item: item[0]))

    device = Device()
    began = time.monotonic()
    play(device, OneIsSlow())
    assert time.monotonic() - began < 4 * (0.1 + 0.04) + 6 * 0.04 + 0.15
    assert max(device.rounds) >= 5


def test_answers_are_read_while_the_device_works():
    """An environment that answers 10 ms into a round of 40 ms is heard before the round ends."""
    device, pool = Device(), OneByOne(late_s=0.01)
    ends = []
    right = device.step
    device.step = lambda: (ends.append(device.working_until), right())[1]
    play(device, pool)
    inside = [heard for heard in pool.heard if any(end - 0.035 < heard < end - 0.001 for end in ends)]
    assert inside
