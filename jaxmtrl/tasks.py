"""Which tasks a run plays, and when: the first ones are demonstrated and explored, reinforcement learning shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmtrl.config.sections import Config
from jaxmtrl.curriculum.course import Course
from jaxmtrl.curriculum.order import task_batch
from jaxmtrl.envs.base import Environment, ask
from jaxmtrl.errors import ConfigError
from jaxmtrl.stages import STAGES
from jaxmtrl.types import Task


def tasks_of(environment: Environment, name: str, count: int | None, field: str) -> Sequence[Task]:
    """The first `count` tasks of a split, or all.

    Raises:
        ConfigError: there is no such split or it has fewer tasks; names `field`.
    """
    names = ask("asking the environment for its split names", lambda: list(environment.split_names()))
    if name not in names:
        raise ConfigError("the config", [f"{field}: no split {name!r}; this environment has {', '.join(names)}."])
    tasks = ask(f"asking the environment for its split {name!r}", lambda: environment.split(name).tasks)
    wrong = [f"a {type(task).__name__}" for task in tasks if not isinstance(task, Task)] if _is_list(tasks) else []
    if not _is_list(tasks) or wrong or not tasks:
        got = wrong[0] + " among them" if wrong else "none" if _is_list(tasks) else f"a {type(tasks).__name__}"
        raise ConfigError("the config", [f"{field}: split {name!r} must hold a sequence of Tasks, got {got}."])
    if count is not None and count > len(tasks):
        raise ConfigError(
            "the config",
            [f"{field}: split {name!r} has {len(tasks)} tasks, {count} wanted; lower it or widen the split."],
        )
    return tasks[:count] if count is not None else tasks


def stage_seed(config: Config, stage: str) -> tuple[int, int]:
    """What everything random in a stage is drawn from, with further numbers behind it."""
    return config.run.seed, STAGES.index(stage)


def tasks_to_learn_from(config: Config, train_tasks: Sequence[Task], stage: str, iteration: int) -> list[Task]:
    """The tasks of one iteration of a stage that plays."""
    count = config.rl.tasks_per_iteration
    return task_batch(train_tasks, seed=stage_seed(config, stage), first=iteration * count, count=count)


def tasks_in_use(config: Config, train_tasks: Sequence[Task], course: Course | None = None) -> list[Task]:
    """Every training task that any stage of a run will play, once; with a curriculum, that it may come to.

    Those of the train split stand in its order, or with a curriculum the first ones and then all splits by turns.
    """
    everything = {task.id for task in train_tasks}
    first = train_tasks[: max(config.sft.demonstrations, config.pretrain.plays)]
    if course is not None:
        reached = course.in_reach(
            seed=config.run.seed,
            count=config.rl.tasks_per_iteration,
            warmup=config.critic_warmup.iterations,
            iterations=config.rl.iterations,
        )
        return list({task.id: task for task in (*first, *reached)}.values())
    used = {task.id for task in first}
    for stage, iterations in (("critic_warmup", config.critic_warmup.iterations), ("rl", config.rl.iterations)):
        for iteration in range(iterations):
            if len(used) == len(everything):
                break
            used |= {task.id for task in tasks_to_learn_from(config, train_tasks, stage, iteration)}
    return [task for task in train_tasks if task.id in used]


def tasks_evaluated(config: Config, environment: Environment, course: Course | None = None) -> list[Task]:
    """The tasks of all splits that are evaluated after the stages, and on the way by a curriculum."""
    splits = config.evaluation.splits
    fixed = [task for name, count in splits.items() for task in environment.split(name).tasks[:count]]
    return [*fixed, *(course.evaluated(config.rl.iterations) if course else [])]


def _is_list(tasks: object) -> bool:
    return isinstance(tasks, Sequence) and not isinstance(tasks, str)
