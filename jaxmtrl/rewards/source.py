"""Which environment a config plays: its own, with its commands in stages and its rewards composed where it says so.

The rest of the package asks here, so that whoever plays earns what the config says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jaxmtrl.config.sections import Config
from jaxmtrl.envs.base import Environment, OwnReturns, ask, load_environment
from jaxmtrl.envs.staged import FACTORY as STAGED
from jaxmtrl.errors import ConfigError
from jaxmtrl.rewards.judge import JudgeSettings, require_judge
from jaxmtrl.rewards.order import order_mistakes
from jaxmtrl.rewards.pattern import require_quick
from jaxmtrl.rewards.recipe import Recipe, recipe_of
from jaxmtrl.rewards.scored import FACTORY, ScoredEnvironment
from jaxmtrl.rewards.style import require_linter
from jaxmtrl.types import Task


def env_source(config: Config) -> tuple[str, dict[str, Any]]:
    """Factory and options for `load_environment`, here and in worker processes."""
    factory, options = _played(config)
    if not config.reward.composed:
        return factory, options
    judge = _judge_settings(config)
    return FACTORY, {
        "factory": factory,
        "options": options,
        "recipe": asdict(recipe_of(config)),
        "judge": None if judge is None else asdict(judge),
    }


def _played(config: Config) -> tuple[str, dict[str, Any]]:
    """What rewards are composed around: the config's environment, its commands in stages if there are any."""
    section = config.actions
    if not section.on:
        return config.env.factory, config.env.options
    return STAGED, {
        "factory": config.env.factory,
        "options": config.env.options,
        "stages": {name: list(adds) for name, adds in section.stages.items()},
        "macros": {written: list(steps) for written, steps in section.macros.items()},
        "enforce": section.enforce,
        "think": config.env.options.get("think") is True,
    }


def load_source(config: Config) -> Environment:
    """The environment of a config, and whatever its rewards need is there.

    Raises:
        ConfigError: the environment cannot be made, or lacks what a part is made of; a library or a key is missing; a
            pattern is too slow.
    """
    if config.reward.format_pattern:
        require_quick(config.reward.format_pattern, config.sampling.max_action_tokens)
    if "style" in config.reward.weights:
        require_linter()
    if (judge := _judge_settings(config)) is not None:
        require_judge(judge)
    environment = load_environment(*env_source(config))
    if isinstance(environment, ScoredEnvironment):
        ask("asking the environment for its parts of rewards", lambda: environment.require_parts(config.env.factory))
    if config.actions.on:
        ask("asking the environment for its commands", environment.require_admissible)  # pyright: ignore
    return environment


def check_order(config: Config, environment: Environment, tasks: Sequence[Task]) -> None:
    """Refuses rewards under which a play that does not solve its task could earn as much as one that does.

    Args:
        tasks: that will be played; their games have been made.

    Raises:
        ConfigError: says what either could earn, and what to change; or that the environment does not tell.
    """
    recipe = recipe_of(config) if config.reward.composed else _OWN
    known = getattr(environment, "own_returns", None)
    own: OwnReturns | None = None
    if known is None and config.reward.composed and "env" in recipe.weights:
        raise ConfigError(
            "reward.parts",
            [
                f"reward.parts.env: got weight {recipe.weights['env']:g} beside other parts or penalties, and the "
                "environment does not tell what a win and a loss earn; give it a method `own_returns` "
                "(jaxmtrl/envs/base.py), or set reward.preset to own and the penalties to 0"
            ],
        )
    if known is not None:
        own = ask("asking the environment for its own returns", lambda: known(tasks))
    mistakes = order_mistakes(recipe, own, environment.max_steps)
    if mistakes:
        raise ConfigError("reward", mistakes)


_OWN = Recipe(
    weights={"env": 1.0}, penalties={}, clip=0.0, gamma=1.0, keeps_truncated=False, stages=0, format_pattern=""
)


def _judge_settings(config: Config) -> JudgeSettings | None:
    if "judge" not in config.reward.weights:
        return None
    section = config.judge
    return JudgeSettings(
        url=section.url,
        model=section.model,
        api_key_env=section.api_key_env,
        instructions=section.instructions,
        deadline_s=section.deadline_s,
        retries=section.retries,
        max_tokens=section.max_tokens,
        cache=str(Path(section.cache).absolute()) if section.cache else "",  # workers may run in another folder
    )
