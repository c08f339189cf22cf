"""Which tasks a run trains on next, and with which commands: by its curriculum, or the train split over and over.

Keeps the curriculum's state and the stage of the action space from one iteration to the next, and tells people what was
decided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmtrl.actions.space import staged
from jaxmtrl.config.sections import Config
from jaxmtrl.curriculum import action_stages
from jaxmtrl.curriculum.action_stages import StageState
from jaxmtrl.curriculum.course import Course
from jaxmtrl.curriculum.plan import Plan
from jaxmtrl.scores import Evaluated
from jaxmtrl.tasks import tasks_to_learn_from
from jaxmtrl.types import Episode, Task


class Coach:
    """Chooses tasks; told of what became of them."""

    def __init__(
        self,
        config: Config,
        train_tasks: Sequence[Task],
        course: Course | None,
        saved: Mapping[str, Any],
        say: Callable[[str], None],
        saved_actions: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            course: None without a curriculum.
            saved, saved_actions: those of the run that goes on; empty at the start.
        """
        actions = config.actions
        self._actions = StageState.start(actions, saved_actions) if actions.on else None
        self._config, self._train_tasks, self._course, self._say = config, train_tasks, course, say
        self._state = course.start(saved) if course else None
        self._plan: Plan | None = None  # of the newest batch

    @property
    def saved(self) -> dict[str, Any]:
        """What a position keeps; empty without a curriculum."""
        return self._state.as_dict() if self._state else {}

    @property
    def saved_actions(self) -> dict[str, Any]:
        """What a position keeps of the action space; empty without stages."""
        return dataclasses.asdict(self._actions) if self._actions else {}

    @property
    def level(self) -> str:
        """What is trained on: the level and the stage of the action space; "" without either."""
        return f"{self._own_level}/{self._actions.stage}" if self._actions else self._own_level

    @property
    def _own_level(self) -> str:
        return self._state.level if self._state else ""

    @property
    def levels_trained(self) -> int:
        """How many levels were ever trained on."""
        return len(self._state.trained) if self._state else 0

    def tasks(self, stage: str, iteration: int) -> list[Task]:
        """The tasks of one iteration of a stage that plays."""
        config = self._config
        if self._course is None or self._state is None:
            return self.staged(tasks_to_learn_from(config, self._train_tasks, stage, iteration))
        count = config.rl.tasks_per_iteration
        self._plan = self._course.plan(self._state, seed=config.run.seed, iteration=iteration, count=count)
        return self.staged(self._plan.tasks)

    def staged(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks to be played with the commands of the stage that the run is in."""
        return [staged(task, self._actions.stage) for task in tasks] if self._actions else list(tasks)

    def examined(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks to be played with the commands of evaluations."""
        if self._actions is None:
            return list(tasks)
        stage = action_stages.evaluated_stage(self._config.actions, self._actions)
        return [staged(task, stage) for task in tasks]

    def split_of(self, group: int) -> str:
        """Where a task of the newest batch is from."""
        return self._plan.drawn[group].split if self._plan else self._config.env.train_split

    def learnt(self, stage: str, episodes: Sequence[Episode], finished: int) -> dict[str, float]:
        """After an iteration of a stage that plays; gives success by part of the batch, and what was refused."""
        values = self._learnt_actions(stage, episodes, finished)
        if self._course is None or self._plan is None:
            return values
        if stage == "rl":
            step = self._course.after_iteration(self._plan, episodes, finished)
            self._state = step.state
            self._tell(step.messages)
        else:
            self._state = self._plan.state
        return values | self._plan.metrics(episodes)

    def _learnt_actions(self, stage: str, episodes: Sequence[Episode], finished: int) -> dict[str, float]:
        if self._actions is None:
            return {}
        values = {"actions/stage": float(self._actions.stage), **action_stages.figures(episodes)}
        if stage == "rl":
            step = action_stages.after_iteration(
                self._config.actions, self._actions, episodes, finished, tasks=self._own_level
            )
            self._actions = step.state
            self._tell([step.message] if step.message else [])
        return values

    def due(self, stage: str, finished: int) -> dict[str, int]:
        """How many tasks of which splits are to be evaluated after an iteration; none at most of them."""
        if self._course is None or self._state is None or stage != "rl":
            return {}
        return self._course.due(self._state, finished)

    def evaluated(self, results: Mapping[str, Evaluated], finished: int) -> None:
        """After the evaluation of what was due."""
        assert self._course is not None and self._state is not None
        step = self._course.after_evaluation(self._state, results, finished)
        self._state = step.state
        self._tell(step.messages)

    def metrics(self, finished: int) -> dict[str, float]:
        """Where the curriculum stands, under the names it is logged by."""
        return self._course.metrics(self._state, finished) if self._course and self._state else {}

    def _tell(self, messages: Sequence[str]) -> None:
        for message in messages:
            self._say(message)
