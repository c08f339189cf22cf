"""Play without a policy: an environment's expert, or its admissible actions at random.

Either becomes a token ledger like any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from jaxmtrl.actions.space import stage_of
from jaxmtrl.envs.base import Environment, ask
from jaxmtrl.errors import EnvironmentFailure, TooManyFailures
from jaxmtrl.rollout.pool import EnvPool, PoolEvent
from jaxmtrl.text.action_mask import ActionMask
from jaxmtrl.text.template import ChatTemplate
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.text.transcript import Transcript
from jaxmtrl.types import Episode, EpisodeStop, StepResult, Task


@dataclass(frozen=True, kw_only=True)
class ScriptedTurn:
    """What was seen, done and earned."""

    observation: str
    action: str
    reward: float


def demonstrate(
    environment: Environment,
    pool: EnvPool,
    tasks: Sequence[Task],
    *,
    at_once: int = 64,
    on_played: Callable[[], None] = lambda: None,
) -> list[list[ScriptedTurn]]:
    """The turns of the expert's play of each task, in the order of `tasks`; every one ends won.

    Args:
        at_once: games open at a time; each costs its simulator's memory.
        on_played: called after every play.

    Raises:
        EnvironmentFailure: there is no expert, its play failed, or it did not win.
    """
    experts = [_Expert(environment, task) for task in tasks]
    _play(pool, tasks, experts, at_once, on_played)
    return [expert.turns for expert in experts]


def explore(
    pool: EnvPool,
    tasks: Sequence[Task],
    *,
    seed: Sequence[int],
    max_failed_share: float,
    at_once: int = 64,
    on_played: Callable[[], None] = lambda: None,
) -> list[list[ScriptedTurn]]:
    """The turns of one random play of each task, in the order of `tasks`: any admissible action, to the end.

    A play that fails has no turns. The same seed gives the same plays, whichever game answers first.

    Args:
        max_failed_share: share of failed plays above which it raises; it also does if all failed.
        at_once: games open at a time; each costs its simulator's memory.
        on_played: called after every play.

    Raises:
        TooManyFailures: names the last failure.
        EnvironmentFailure: the environment tells no admissible actions.
    """
    explorers = [_Explorer(task, np.random.default_rng((*seed, index))) for index, task in enumerate(tasks)]
    _play(pool, tasks, explorers, at_once, on_played)
    failed = [explorer for explorer in explorers if explorer.failure]
    if tasks and (len(failed) == len(tasks) or len(failed) / len(tasks) > max_failed_share):
        raise TooManyFailures(
            f"{len(failed)} of {len(tasks)} random plays failed (rollout.max_failed_share is {max_failed_share:g}). "
            f"The last one: {failed[-1].failure}"
        )
    if tasks and not any(explorer.turns for explorer in explorers):
        raise EnvironmentFailure(
            "random play found nothing to do, because the environment tells no admissible actions. Have it list them "
            "(env.options.show_admissible: true for TextWorld, a method `admissible` for your own), or set "
            "pretrain.plays to 0."
        )
    return [explorer.turns for explorer in explorers]


def scripted_episode(
    task: Task,
    turns: Sequence[ScriptedTurn],
    *,
    group: int,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    system_prompt: str,
    mask: ActionMask | None = None,
) -> Episode:
    """Turns as an episode to imitate; log-probs 0, since no policy sampled them, and won, however it ended.

    Args:
        mask: of actions, under which they are imitated; None without one.
    """
    supports = None if mask is None else partial(mask.states, mask.root(stage_of(task.payload)))
    transcript = Transcript(template, tokenizer, system_prompt)
    for turn in turns:
        transcript.observe(turn.observation)
        transcript.force(turn.action, supports)
        transcript.reward(turn.reward)
    return Episode(
        task_id=task.id,
        group=group,
        index=0,
        turns=transcript.turns,
        stop=EpisodeStop.DONE,
        success=True,
        policy_version=-1,
    )


class _Scripted(Protocol):
    """Plays one task."""

    def answer(self, pool: EnvPool, event: PoolEvent) -> bool:
        """Takes in what came of the last message and sends the next; False once the play is over."""
        ...


def _play(
    pool: EnvPool, tasks: Sequence[Task], players: Sequence[_Scripted], at_once: int, on_played: Callable[[], None]
) -> None:
    waiting, open_ = deque(range(len(tasks))), set[int]()
    try:
        while waiting or open_:
            while waiting and len(open_) < at_once:
                index = waiting.popleft()
                open_.add(index)
                pool.reset(index, tasks[index])
            for event in pool.receive(None):
                if event.episode in open_ and not players[event.episode].answer(pool, event):
                    open_.discard(event.episode)
                    pool.release(event.episode)
                    on_played()
    finally:
        for index in open_:
            pool.release(index)


class _Recorder:
    """Pairs what was seen with what was done about it."""

    def __init__(self, task: Task):
        self.task = task
        self.turns: list[ScriptedTurn] = []
        self._observation = self._action = ""

    def _note(self, event: PoolEvent) -> StepResult | None:
        """Takes in an observation or a step's result, which it returns."""
        result = event.step
        if result is not None:
            self.turns.append(ScriptedTurn(observation=self._observation, action=self._action, reward=result.reward))
        self._observation = result.observation if result is not None else event.observation
        return result

    def _do(self, pool: EnvPool, episode: int, action: str) -> None:
        self._action = action
        pool.step(episode, action)


class _Expert(_Recorder):
    def __init__(self, environment: Environment, task: Task):
        super().__init__(task)
        actions = ask(f"asking for the expert of task {task.id}", lambda: environment.expert_actions(task))
        if actions is None:
            raise EnvironmentFailure(f"no expert for task {task.id}; set sft.demonstrations=0 to start RL without SFT")
        if isinstance(actions, str) or not all(isinstance(action, str) for action in actions):
            raise EnvironmentFailure(f"the expert of task {task.id} answered {actions!r}, wanted a sequence of str")
        self._plan = deque(actions)

    def answer(self, pool: EnvPool, event: PoolEvent) -> bool:
        if event.kind == "failure":
            raise EnvironmentFailure(f"the expert's play of task {self.task.id} failed: {event.failure}")
        result = self._note(event)
        if result is not None and result.done and result.success:
            return False
        if result is not None and (result.done or result.truncated):
            raise EnvironmentFailure(f"the expert did not win task {self.task.id} in {len(self.turns)} steps")
        if not self._plan:
            raise EnvironmentFailure(f"the expert's {len(self.turns)} actions do not win task {self.task.id}")
        self._do(pool, event.episode, self._plan.popleft())
        return True


class _Explorer(_Recorder):
    def __init__(self, task: Task, rng: np.random.Generator):
        super().__init__(task)
        self._rng = rng
        self.failure = ""

    def answer(self, pool: EnvPool, event: PoolEvent) -> bool:
        if event.kind == "failure":
            self.failure = event.failure.strip()
            self.turns.clear()  # how far it came before it broke may depend on the machine
            return False
        if event.kind != "admissible":
            result = self._note(event)
            if result is not None and (result.done or result.truncated):
                return False
            pool.ask_admissible(event.episode)
            return True
        if not event.admissible:
            return False
        self._do(pool, event.episode, event.admissible[int(self._rng.integers(len(event.admissible)))])
        return True
