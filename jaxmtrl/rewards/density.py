"""How often an environment pays: steps per reward, the study's measure of density."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmtrl.envs.base import Environment
from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.types import Task


def steps_per_reward(plays: Sequence[Sequence[float]]) -> float:
    """Mean over plays of steps / rewards that are not 0.

    Of each play first, as the study has it for the expert's ways through tw-simple: 10.17, 2.89 and 1.17 for sparse,
    balanced and dense (table 11 of arXiv 2510.01132 prints 10.22, 2.89 and 1.17). The curve reward/steps_per_reward
    divides all steps by all rewards instead, since a lost play may have none.

    Args:
        plays: the rewards of each one's steps.

    Raises:
        ValueError: there is no play, or one without a reward.
    """
    counts = [(len(rewards), sum(reward != 0 for reward in rewards)) for rewards in plays]
    if not counts or not all(paid for _, paid in counts):
        raise ValueError("steps per reward are of plays that earned something")
    return sum(steps / paid for steps, paid in counts) / len(counts)


def expert_rewards(environment: Environment, task: Task) -> list[float]:
    """The rewards of the expert's play of a task, in this process; its game has been made.

    Raises:
        EnvironmentFailure: there is no expert, or it does not win.
    """
    actions = environment.expert_actions(task)
    env = environment.make_env()
    try:
        env.reset(task)
        results = []
        for action in actions or ():
            results.append(env.step(action))
            if results[-1].done or results[-1].truncated:
                break
    finally:
        env.close()
    if not results or not results[-1].success:
        raise EnvironmentFailure(f"the expert did not win task {task.id}, so that its rewards say nothing")
    return [result.reward for result in results]
