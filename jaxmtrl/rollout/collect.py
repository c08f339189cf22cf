"""Plays tasks: the loop between the sampler's slots and the environment processes.

Environments step on the CPU while other slots decode; an episode waits only for its own environment. More episodes
than slots may be open, so that a slot whose episode has ended finds the next one already reset.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from jaxmtrl.actions.space import stage_of
from jaxmtrl.errors import TooManyFailures
from jaxmtrl.parallel.hosts import ALONE, Hosts
from jaxmtrl.rollout.plays import Play, shared_plays
from jaxmtrl.rollout.pool import EnvPool, PoolEvent
from jaxmtrl.rollout.timeline import NO_TIMELINE, SAMPLER, Timeline
from jaxmtrl.text.action_mask import ActionMask
from jaxmtrl.text.template import ChatTemplate
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.text.transcript import Transcript
from jaxmtrl.types import Episode, EpisodeStop, TurnStop

PATIENCE = 0.05  # share of a round that the device may be kept waiting for answers that are due
_GLANCE_S = 0.005  # how often the device is looked at while it works


class SampledAction(Protocol):
    """One finished action of a slot; see `sampling.engine.Sampled`."""

    @property
    def slot(self) -> int: ...
    @property
    def ids(self) -> np.ndarray: ...
    @property
    def logprobs(self) -> np.ndarray: ...
    @property
    def stop(self) -> TurnStop: ...


class SlotEngine(Protocol):
    """What a sampler offers to the rollout; see `sampling.engine.Engine`."""

    version: int

    @property
    def free_slots(self) -> int: ...
    @property
    def busy(self) -> bool: ...
    def open(self, seed: Sequence[int], temperature: float, root: int = 0) -> int: ...
    def close(self, slot: int) -> None: ...
    def rewind(self, slot: int) -> None: ...
    def room(self, slot: int) -> int: ...
    def submit(self, slot: int, ids: np.ndarray) -> None: ...
    def start(self) -> None: ...
    @property
    def working(self) -> bool: ...
    def step(self) -> Sequence[SampledAction]: ...


@dataclass(kw_only=True)
class _Open:
    """An episode under way."""

    play: Play
    transcript: Transcript
    slot: int | None = None
    worker: int | None = None  # of the pool, as far as it tells
    waiting: np.ndarray | None = None  # first prompt of an episode that waits for a slot
    metrics: dict[str, float] = field(default_factory=dict)


class Player:
    """Plays with one sampler, one pool and one way of writing text."""

    def __init__(
        self,
        engine: SlotEngine,
        pool: EnvPool,
        *,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        system_prompt: str,
        open_episodes: int,
        max_action_tokens: int,
        max_failed_share: float,
        keep_tokens: int = 0,
        mask: ActionMask | None = None,
        timeline: Timeline = NO_TIMELINE,
        hosts: Hosts = ALONE,
    ):
        """
        Args:
            open_episodes: episodes open at once.
            max_action_tokens: cap of one action.
            keep_tokens: an episode that outgrows its slot goes on with at most so many of its tokens, its oldest turns
                dropped; 0 truncates it.
            max_failed_share: share of failed episodes in one call of `play` above which it raises.
            mask: of actions, which the engine samples under; None without one.
            timeline: is told of the sampler's steps and waits, and of what every environment worker did.
            hosts: the processes that share the plays of a call; all call `play` alike.
        """
        self._hosts = hosts
        self._engine = engine
        self._pool = pool
        self._tokenizer = tokenizer
        self._template = template
        self._system_prompt = system_prompt
        self._open_episodes = open_episodes
        self._max_action_tokens = max_action_tokens
        self._max_failed_share = max_failed_share
        self._keep_tokens, self._mask = keep_tokens, mask
        self._timeline = timeline
        self._next_id = 0

    def play(
        self,
        plays: Sequence[Play],
        *,
        temperature: float,
        max_tokens: int | None = None,
        report: Callable[[Episode], None] | None = None,
    ) -> list[Episode]:
        """Plays all of `plays` and returns their episodes in order of group and index, failed ones included.

        Args:
            temperature: of the sampler; 0 is greedy.
            max_tokens: an episode whose next action might outgrow this is truncated, and what it read last is cut to
                it; None leaves the sampler's cache as the only limit.
            report: called with each episode as it ends.

        Raises:
            TooManyFailures: more than the allowed share failed; carries the last reason.
            EnvironmentFailure: the environment cannot be started at all.
        """
        episodes = shared_plays(
            self._hosts, plays, lambda own: self._play(own, temperature, max_tokens, report), report
        )
        episodes.sort(key=lambda episode: (episode.group, episode.index))
        failed = [episode for episode in episodes if episode.failed]
        if episodes and len(failed) / len(episodes) > self._max_failed_share:
            raise TooManyFailures(
                f"{len(failed)} of {len(episodes)} episodes failed (rollout.max_failed_share is "
                f"{self._max_failed_share:g}). The last one: {failed[-1].error}"
            )
        return episodes

    def _play(
        self,
        plays: Sequence[Play],
        temperature: float,
        max_tokens: int | None,
        report: Callable[[Episode], None] | None,
    ) -> list[Episode]:
        batch = _Batch(self, deque(plays), temperature, max_tokens, report)
        try:
            return batch.run()
        finally:
            batch.abandon()


class _Batch:
    """The state of one call of `Player.play`."""

    def __init__(
        self,
        player: Player,
        plays: deque[Play],
        temperature: float,
        max_tokens: int | None,
        report: Callable[[Episode], None] | None,
    ):
        self._player = player
        self._engine, self._pool, self._timeline = player._engine, player._pool, player._timeline
        self._plays = plays
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._report = report
        self._open: dict[int, _Open] = {}
        self._by_slot: dict[int, int] = {}
        self._slotless: list[int] = []  # episodes whose first prompt waits for a slot
        self._seated: Counter[int | None] = Counter()  # episodes that have a slot, by worker
        self._acting: set[int] = set()  # seated episodes whose environment is at work
        self._round_s = 0.0  # how long the device's last round took
        self._ended: list[Episode] = []

    def run(self) -> list[Episode]:
        while self._plays or self._open:
            self._open_more()
            self._gather()
            if self._engine.busy:
                began = time.monotonic()
                self._engine.start()
                while self._engine.working:  # what environments answer is read while the device is busy
                    self._hear(_GLANCE_S)
                actions = self._engine.step()
                ended = time.monotonic()
                self._round_s = ended - began
                self._timeline.add(SAMPLER, "prefill and decode", began, ended)
                for sampled in actions:
                    self._act(sampled)
        return self._ended

    def _open_more(self) -> None:
        while self._plays and len(self._open) < self._player._open_episodes:
            self._start(self._plays.popleft())

    def _gather(self) -> None:
        """Takes in what environments have answered, and waits a moment for what is still due.

        A round of the device costs about the same for few slots as for many, and an answer that just misses one waits
        for the whole of it: a short wait for the others is worth it, so long as it is a small part of a round.
        """
        self._hear(0.0 if self._engine.busy else None)
        until = time.monotonic() + PATIENCE * self._round_s
        while self._due() and (left := until - time.monotonic()) > 0:
            self._hear(left)

    def _due(self) -> bool:
        """Whether an environment is at work for an episode that has a slot, or for one that would get one."""
        free = self._engine.free_slots
        return bool(self._acting or (free and len(self._open) > len(self._by_slot) + len(self._slotless)))

    def _hear(self, timeout_s: float | None) -> None:
        """Handles what environments answer within this time, and seats episodes that are ready to begin."""
        began = time.monotonic()
        events = self._pool.receive(timeout_s)
        if not self._engine.busy:
            self._timeline.add(SAMPLER, "wait for environments", began, time.monotonic())
        for event in events:
            if self._timeline.on and event.work is not None:
                name = "reset" if event.kind == "observation" else event.kind
                self._timeline.add(f"environments {event.work.worker}", name, event.work.began, event.work.ended)
            if event.episode in self._open:
                self._acting.discard(event.episode)
                self._handle(event.episode, event)
        self._open_more()
        while self._slotless and self._engine.free_slots:
            self._seat(self._next_in())

    def abandon(self) -> None:
        """Frees slots and environments of whatever is still open, after an error."""
        for episode in list(self._open):
            self._leave(episode)

    def _start(self, play: Play) -> None:
        player = self._player
        episode, player._next_id = player._next_id, player._next_id + 1
        transcript = Transcript(player._template, player._tokenizer, player._system_prompt)
        self._open[episode] = _Open(play=play, transcript=transcript)
        self._pool.reset(episode, play.task)

    def _handle(self, episode: int, event: PoolEvent) -> None:
        state = self._open[episode]
        if event.kind == "failure":
            self._end(episode, EpisodeStop.FAILED, error=event.failure)
        elif event.kind == "observation":
            state.worker = None if event.work is None else event.work.worker
            state.waiting = state.transcript.observe(event.observation, event.state)
            self._slotless.append(episode)
        else:
            result = event.step
            assert result is not None  # the pool checks what environments return
            state.transcript.reward(result.reward, result.metrics)
            if result.done:
                self._end(episode, EpisodeStop.DONE, success=result.success)
                return
            ids = state.transcript.observe(result.observation, event.state)
            if result.truncated:
                self._end(episode, EpisodeStop.TRUNCATED, success=result.success)
            else:
                self._submit(episode, ids)

    def _next_in(self) -> int:
        """Takes the waiting episode whose worker has the fewest in slots, as a long step holds up all of its worker."""
        episode = min(self._slotless, key=lambda episode: self._seated[self._open[episode].worker])  # first of equals
        self._slotless.remove(episode)
        return episode

    def _seat(self, episode: int) -> None:
        state = self._open[episode]
        assert state.waiting is not None
        self._seated[state.worker] += 1
        root = () if self._player._mask is None else (self._root(state),)
        state.slot = self._engine.open(state.play.seed, self._temperature, *root)
        self._by_slot[state.slot] = episode
        self._submit(episode, state.waiting)
        state.waiting = None

    def _root(self, state: _Open) -> int:
        """Where in the mask the actions of an episode begin."""
        mask = self._player._mask
        return 0 if mask is None else mask.root(stage_of(state.play.task.payload))

    def _submit(self, episode: int, ids: np.ndarray) -> None:
        """Hands the prompt to the sampler; an episode whose next action has no room is truncated here."""
        state = self._open[episode]
        slot = state.slot
        assert slot is not None
        cap = self._player._max_action_tokens
        if len(ids) > self._engine.room(slot) and self._player._keep_tokens:
            longest = None if self._max_tokens is None else self._max_tokens - cap
            shorter = state.transcript.drop_turns(self._player._keep_tokens, longest)
            if shorter is not None:
                ids = shorter
                self._engine.rewind(slot)
        outgrown = self._max_tokens is not None and state.transcript.length + cap > self._max_tokens
        if outgrown or len(ids) > self._engine.room(slot):
            self._end(episode, EpisodeStop.TRUNCATED)
        else:
            self._engine.submit(slot, ids)

    def _act(self, sampled: SampledAction) -> None:
        episode = self._by_slot[sampled.slot]
        state, mask = self._open[episode], self._player._mask
        supports = None if mask is None else mask.states(self._root(state), sampled.ids)
        text = state.transcript.act(sampled.ids, sampled.logprobs, sampled.stop, supports)
        self._acting.add(episode)
        self._pool.step(episode, text)

    def _end(self, episode: int, stop: EpisodeStop, *, success: bool = False, error: str = "") -> None:
        state = self._leave(episode)
        turns = state.transcript.turns
        tail = state.transcript.tail_ids if stop is EpisodeStop.TRUNCATED else np.zeros(0, np.int32)
        if self._max_tokens is not None:
            played = sum(len(turn.prompt_ids) + len(turn.action_ids) for turn in turns)
            tail = tail[: max(self._max_tokens - played, 0)]
        ended = Episode(
            task_id=state.play.task.id,
            group=state.play.group,
            index=state.play.index,
            turns=turns,
            stop=stop,
            success=success,
            policy_version=self._engine.version,
            tail_ids=tail,
            error=error,
        )
        self._ended.append(ended)
        if self._report is not None:
            self._report(ended)

    def _leave(self, episode: int) -> _Open:
        state = self._open.pop(episode)
        self._acting.discard(episode)
        if state.slot is not None:
            del self._by_slot[state.slot]
            self._engine.close(state.slot)
            self._seated[state.worker] -= 1
        elif episode in self._slotless:  # it failed while it waited
            self._slotless.remove(episode)
        self._pool.release(episode)
        return state
