"""The curriculum as the training loop sees it: what to play, what to evaluate, and what follows from either.

Every step is a function of the state that it is given, so that a run goes on from a saved state as if it had never
stopped. It knows neither who plays nor who learns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmtrl.config.curriculum_section import CurriculumSection
from jaxmtrl.curriculum import adaptation, levels
from jaxmtrl.curriculum.budget import steps_for
from jaxmtrl.curriculum.mixture import Portion, draw, portions
from jaxmtrl.curriculum.plan import Plan
from jaxmtrl.curriculum.reach import levels_in_reach, tasks_in_reach
from jaxmtrl.curriculum.regression import Forgotten
from jaxmtrl.curriculum.state import CurriculumState, Step
from jaxmtrl.errors import ConfigError
from jaxmtrl.scores import Evaluated
from jaxmtrl.types import Episode, Task


class Course:
    """A curriculum over the splits of one environment."""

    def __init__(
        self,
        section: CurriculumSection,
        train_split: str,
        tasks: Mapping[str, Sequence[Task]],
        optimal: Callable[[Task], int | None],
    ):
        """
        Args:
            section: with `on`.
            train_split: what is trained on where the section names neither levels nor a mixture.
            tasks: of every split that is named; see `opening.open_course`.
            optimal: commands of the expert's way through a task; None where there is no expert. Asked once a task.
        """
        self._section = section
        self._own = dict(section.mixture) or {train_split: 1.0}  # where there are no levels
        self._tasks = tasks
        self._optimal = optimal
        self._lengths: dict[str, int] = {}  # by task

    def start(self, saved: Mapping[str, Any] | None = None) -> CurriculumState:
        """The state that a run begins with, or goes on from if its position has one (`CurriculumState.as_dict`)."""
        if saved:
            return CurriculumState.of(saved)
        first = self._section.first_level
        return CurriculumState(level=first, trained=(first,) if first else ())

    def plan(self, state: CurriculumState, *, seed: int, iteration: int, count: int) -> Plan:
        """The tasks of an iteration, with their step budgets.

        Args:
            state: before it.
            seed: of the run.
            iteration: 0, 1, … of the stage.
            count: tasks.

        Raises:
            ConfigError: there is no expert by whom a step budget could be set.
        """
        parts = self._portions(state)
        drawn, after = draw(parts, self._tasks, state.drawn, seed=seed, iteration=iteration, count=count)
        if self._section.step_budget:
            factor = adaptation.factor_of(self._section, state)
            drawn = [dataclasses.replace(one, task=self._budgeted(one.task, factor)) for one in drawn]
        return Plan(drawn=tuple(drawn), state=dataclasses.replace(state, drawn=after))

    def after_iteration(self, plan: Plan, episodes: Sequence[Episode], finished: int) -> Step:
        """What follows from an RL iteration; see `adaptation`.

        A stage that plays while the policy stays as it is (critic warm-up) goes on from `plan.state` instead.

        Args:
            plan: of the iteration.
            episodes: its plays, in any order.
            finished: RL iterations, this one included.
        """
        return adaptation.after_iteration(self._section, plan, episodes, finished)

    def due(self, state: CurriculumState, finished: int) -> dict[str, int]:
        """How many tasks of which splits are to be evaluated after `finished` RL iterations; none at most of them."""
        due = levels.due_levels(self._section, state, finished)
        return {self._section.levels[level].evaluate: self._section.evaluation_tasks for level in due}

    def after_evaluation(self, state: CurriculumState, results: Mapping[str, Evaluated], finished: int) -> Step:
        """What follows from the evaluation of all splits that were due; see `levels`."""
        return levels.after_evaluation(self._section, state, results, finished)

    def alarms(self, state: CurriculumState) -> list[Forgotten]:
        """The levels below that are being forgotten, as far as they have been evaluated."""
        return levels.alarms(self._section, state)

    def metrics(self, state: CurriculumState, finished: int) -> dict[str, float]:
        """Where the curriculum stands, under the names it is logged by; successes where they were just measured."""
        section, values = self._section, {}
        if state.level:
            values["curriculum/level"] = float(levels.number_of(section, state))
            values["curriculum/forgotten_levels"] = float(len(self.alarms(state)))
        if section.step_budget:
            values["curriculum/step_factor"] = adaptation.factor_of(section, state)
        if section.mastery == "sample_less":
            parts = [part for part in self._portions(state) if part.role == "own"]
            values |= {f"curriculum/share_{part.split}": part.share for part in parts}
        for level, history in state.histories.items():
            if history.scores and history.scores[-1].iteration == finished:
                values[f"curriculum/success_{level}"] = history.scores[-1].success
        return values

    def in_reach(self, *, seed: int, count: int, warmup: int, iterations: int) -> list[Task]:
        """Every training task that a run may play, once; see `reach`."""
        return tasks_in_reach(
            self._section, self._own, self._tasks, seed=seed, count=count, warmup=warmup, iterations=iterations
        )

    def evaluated(self, iterations: int) -> list[Task]:
        """Every task that may be played in evaluations of levels in so many RL iterations."""
        section = self._section
        splits = dict.fromkeys(section.levels[level].evaluate for level in levels_in_reach(section, iterations))
        return [task for split in splits for task in self._tasks[split][: section.evaluation_tasks]]

    def require_experts(self, made: Sequence[Task]) -> None:
        """Finds out now, by one task of every split, whether a step budget can be set.

        Args:
            made: tasks that the environment has made; others are not asked for.

        Raises:
            ConfigError: there is no expert.
        """
        known = {task.id for task in made}
        for split in self._trained_splits() if self._section.step_budget else ():
            for task in [task for task in self._tasks[split] if task.id in known][:1]:
                self._length(task)

    def _trained_splits(self) -> list[str]:
        section = self._section
        own = [level.train for level in section.levels.values()] or list(self._own)
        return [*own, section.core_split] if section.core_split else own

    def _portions(self, state: CurriculumState) -> list[Portion]:
        section, own = self._section, self._own
        if state.level:
            own = {section.levels[state.level].train: 1.0}
        elif section.mastery == "sample_less":
            mastered = {split for split, streak in state.streaks.items() if streak >= section.mastery_iterations}
            own = {
                split: weight * (section.mastery_weight if split in mastered else 1) for split, weight in own.items()
            }
        below = levels.levels_below(section, state)
        return portions(
            own,
            core=section.core_split,
            core_share=section.core_share,
            replayed=[section.levels[level].train for level in below if level in state.trained],
            replay_share=section.replay_share,
        )

    def _budgeted(self, task: Task, factor: float) -> Task:
        """The same game, cut earlier."""
        steps = steps_for(self._length(task), factor, task.payload["max_steps"])
        return dataclasses.replace(task, payload={**task.payload, "max_steps": steps})

    def _length(self, task: Task) -> int:
        if task.id not in self._lengths:
            length = self._optimal(task)
            if length is None:
                raise ConfigError(
                    "curriculum.step_budget",
                    [
                        f"got true, and the environment has no expert for {task.id}, of whose way the budget is a "
                        "multiple; set curriculum.step_budget to false, or have the environment's expert_actions tell "
                        "one"
                    ],
                )
            self._lengths[task.id] = length
        return self._lengths[task.id]
