"""From the settings and an environment to a course, or to every mistake between them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxmtrl.config.curriculum_section import CurriculumSection
from jaxmtrl.curriculum.course import Course
from jaxmtrl.envs.base import Environment, ask
from jaxmtrl.errors import ConfigError
from jaxmtrl.types import Task


def open_course(section: CurriculumSection, train_split: str, environment: Environment) -> Course | None:
    """The course of a run; None where the section asks for nothing.

    Args:
        section: whose fields agree with each other.
        train_split: `env.train_split`.
        environment: asked for its splits at once, and for the expert's way through a task when that is first played.

    Raises:
        ConfigError: lists every split that there is not, or that is too small, or of whose tasks some are trained on
            and evaluated, and, where a step budget is wanted, every split whose tasks say nothing of their steps.
    """
    if not section.on:
        return None
    names = ask("asking the environment for its split names", lambda: list(environment.split_names()))
    tasks: dict[str, Sequence[Task]] = {}
    mistakes = []
    for field, split, least, trained in _named(section, train_split):
        if split not in names:
            mistakes.append(f"{field}: no split {split!r}; this environment has {', '.join(names)}.")
            continue
        if split not in tasks:
            tasks[split] = ask(
                f"asking the environment for its split {split!r}", lambda split=split: environment.split(split).tasks
            )
        if len(tasks[split]) < least:
            mistakes.append(
                f"{field}: split {split!r} has {len(tasks[split])} tasks, {least} wanted"
                + ("." if trained else "; lower curriculum.evaluation_tasks or widen the split.")
            )
        elif trained and section.step_budget and not isinstance(tasks[split][0].payload.get("max_steps"), int):
            mistakes.append(
                f"curriculum.step_budget: got true, and the tasks of split {split!r} have no number max_steps in their "
                "payload, by which the environment would cut them; set it to false, or have the environment read "
                'task.payload["max_steps"].'
            )
    mistakes += _played_and_evaluated(section, tasks)
    if mistakes:
        raise ConfigError("the config", list(dict.fromkeys(mistakes)))

    def optimal(task: Task) -> int | None:
        way = ask(f"asking for an expert's way through {task.id}", lambda: environment.expert_actions(task))
        return None if way is None else len(way)

    return Course(section, train_split, tasks, optimal)


def _played_and_evaluated(section: CurriculumSection, tasks: Mapping[str, Sequence[Task]]) -> list[str]:
    """A sentence for every split of a level's evaluation that has tasks of a level's training, or of the core."""
    training = [section.core_split, *(level.train for level in section.levels.values())]
    trained = {task.id for split in training for task in tasks.get(split, ())}
    mistakes = []
    for name, level in section.levels.items():
        shared = [task.id for task in tasks.get(level.evaluate, ()) if task.id in trained]
        if shared:
            mistakes.append(
                f"curriculum.levels.{name}.evaluate: {len(shared)} tasks of split {level.evaluate!r}, such as "
                f"{shared[0]}, are trained on under another split's name; part the splits in env.options."
            )
    return mistakes


def _named(section: CurriculumSection, train_split: str) -> list[tuple[str, str, int, bool]]:
    """Field, split, fewest tasks, and whether they are trained on."""
    named = [(f"curriculum.mixture.{split}", split, 1, True) for split in section.mixture]
    for name, level in section.levels.items():
        named.append((f"curriculum.levels.{name}.train", level.train, 1, True))
        named.append((f"curriculum.levels.{name}.evaluate", level.evaluate, section.evaluation_tasks, False))
    if not named:
        named.append(("env.train_split", train_split, 1, True))
    if section.core_split:
        named.append(("curriculum.core_split", section.core_split, 1, True))
    return named
