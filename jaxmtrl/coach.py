"""Which tasks a run trains on next: those of its curriculum, and without one the train split over and over.

Keeps the curriculum's state from one iteration to the next, and tells people what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmtrl.config.sections import Config
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
    ):
        """
        Args:
            course: None without a curriculum.
            saved: `saved` of the run that goes on; empty at the start.
        """
        self._config, self._train_tasks, self._course, self._say = config, train_tasks, course, say
        self._state = course.start(saved) if course else None
        self._plan: Plan | None = None  # of the newest batch

    @property
    def saved(self) -> dict[str, Any]:
        """What a position keeps; empty without a curriculum."""
        return self._state.as_dict() if self._state else {}

    @property
    def level(self) -> str:
        """What is trained on; "" without levels."""
        return self._state.level if self._state else ""

    @property
    def levels_trained(self) -> int:
        """How many levels were ever trained on."""
        return len(self._state.trained) if self._state else 0

    def tasks(self, stage: str, iteration: int) -> list[Task]:
        """The tasks of one iteration of a stage that plays."""
        config = self._config
        if self._course is None or self._state is None:
            return tasks_to_learn_from(config, self._train_tasks, stage, iteration)
        count = config.rl.tasks_per_iteration
        self._plan = self._course.plan(self._state, seed=config.run.seed, iteration=iteration, count=count)
        return self._plan.tasks

    def split_of(self, group: int) -> str:
        """Where a task of the newest batch is from."""
        return self._plan.drawn[group].split if self._plan else self._config.env.train_split

    def learnt(self, stage: str, episodes: Sequence[Episode], finished: int) -> dict[str, float]:
        """After an iteration of a stage that plays; gives success by part of the batch."""
        if self._course is None or self._plan is None:
            return {}
        if stage == "rl":
            step = self._course.after_iteration(self._plan, episodes, finished)
            self._state = step.state
            self._tell(step.messages)
        else:
            self._state = self._plan.state
        return self._plan.metrics(episodes)

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
