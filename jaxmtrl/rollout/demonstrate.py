"""Demonstrations: an environment's expert plays, and its actions become a token ledger like any other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from jaxmtrl.envs.base import Environment
from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.rollout.pool import EnvPool, PoolEvent
from jaxmtrl.text.template import ChatTemplate
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.text.transcript import Transcript
from jaxmtrl.types import Episode, EpisodeStop, Task


@dataclass(frozen=True, kw_only=True)
class ExpertTurn:
    """What the expert saw, did and earned."""

    observation: str
    action: str
    reward: float


def demonstrate(environment: Environment, pool: EnvPool, tasks: Sequence[Task]) -> list[list[ExpertTurn]]:
    """The turns of the expert's play of each task, in the order of `tasks`; every one ends won.

    Raises:
        EnvironmentFailure: there is no expert, its play failed, or it did not win.
    """
    return _ExpertPlays(environment, pool, tasks).run()


def demonstration_episode(
    task: Task,
    turns: Sequence[ExpertTurn],
    *,
    group: int,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    system_prompt: str,
) -> Episode:
    """A won episode whose actions are the expert's; log-probs 0, since no policy sampled them."""
    transcript = Transcript(template, tokenizer, system_prompt)
    for turn in turns:
        transcript.observe(turn.observation)
        transcript.force(turn.action)
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


class _ExpertPlays:
    def __init__(self, environment: Environment, pool: EnvPool, tasks: Sequence[Task]):
        self._pool, self._tasks = pool, tasks
        self._plans = [deque(self._plan(environment, task)) for task in tasks]
        self._turns: list[list[ExpertTurn]] = [[] for _ in tasks]
        self._asked: dict[int, tuple[str, str]] = {}  # observation and action that the environment is answering

    def run(self) -> list[list[ExpertTurn]]:
        open_ = set(range(len(self._tasks)))
        try:
            for index, task in enumerate(self._tasks):
                self._pool.reset(index, task)
            while open_:
                for event in self._pool.receive(None):
                    if event.episode in open_ and self._is_over(event):
                        open_.discard(event.episode)
                        self._pool.release(event.episode)
        finally:
            for index in open_:
                self._pool.release(index)
        return self._turns

    def _is_over(self, event: PoolEvent) -> bool:
        index, task_id, result = event.episode, self._tasks[event.episode].id, event.step
        if event.kind == "failure":
            raise EnvironmentFailure(f"the expert's play of task {task_id} failed: {event.failure}")
        if result is not None:
            observation, action = self._asked.pop(index)
            self._turns[index].append(ExpertTurn(observation=observation, action=action, reward=result.reward))
            if result.done and result.success:
                return True
            if result.done or result.truncated:
                raise EnvironmentFailure(f"the expert did not win task {task_id} in {len(self._turns[index])} steps")
        if not self._plans[index]:
            raise EnvironmentFailure(f"the expert's {len(self._turns[index])} actions do not win task {task_id}")
        observation = result.observation if result is not None else event.observation
        self._asked[index] = (observation, self._plans[index].popleft())
        self._pool.step(index, self._asked[index][1])
        return False

    @staticmethod
    def _plan(environment: Environment, task: Task) -> Sequence[str]:
        actions = environment.expert_actions(task)
        if actions is None:
            raise EnvironmentFailure(f"no expert for task {task.id}; set sft.demonstrations=0 to start RL without SFT")
        return actions
