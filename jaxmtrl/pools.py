"""The environment processes of a run, and what its settings want them to tell."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxmtrl.config.sections import Config
from jaxmtrl.envs.base import Environment
from jaxmtrl.errors import ConfigError, EnvironmentFailure
from jaxmtrl.rewards.source import env_source
from jaxmtrl.rollout.pool import EnvPool, MultiprocessPool
from jaxmtrl.types import Task


def make_pool(config: Config) -> EnvPool:
    """Starts the workers of `rollout.backend`.

    Raises:
        ConfigError: the backend is ray, and the library is missing or there is no cluster at `rollout.ray_address`.
    """
    section = config.rollout
    kind: Callable[..., EnvPool] = MultiprocessPool
    if section.backend == "ray":
        kind = partial(_ray_pool(), address=section.ray_address, cpus=section.ray_cpus)
    return kind(
        *env_source(config),
        workers=section.workers,
        step_timeout_s=section.step_timeout_s,
        reset_timeout_s=section.reset_timeout_s,
        recycle_after=section.recycle_after,
        name_states=config.algorithm.name == "gigpo",
        called=config.env.factory,  # and not what wraps it
    )


def _ray_pool() -> Callable[..., EnvPool]:
    try:
        from jaxmtrl.rollout.ray_pool import RayPool
    except ModuleNotFoundError as err:
        if err.name != "ray":
            raise
        raise ConfigError(
            "rollout.backend",
            [
                'got ray, and the library ray is not installed; install it (pip install -e ".[ray]" -c '
                "constraints.txt), or set rollout.backend to multiprocess"
            ],
        ) from err
    return RayPool


def require_patience(config: Config, environment: Environment) -> None:
    """Raises ConfigError where a step that is within its own limits would be taken for one that hangs."""
    longest, patience = getattr(environment, "longest_step_s", 0.0), config.rollout.step_timeout_s
    if patience <= longest:
        raise ConfigError(
            "rollout.step_timeout_s",
            [
                f"rollout.step_timeout_s: got {patience:g}, and a step of this environment may take {longest:g} s by "
                f"its own limits (env.options), so that sound episodes would fail; set it to {1.5 * longest:g}, or "
                "lower those"
            ],
        )


def require_states(pool: EnvPool, task: Task) -> None:
    """Raises EnvironmentFailure if the environment cannot name its states, by which gigpo compares turns."""
    pool.reset(0, task)
    event = pool.receive(None)[0]
    pool.release(0)
    if event.kind != "failure" and not event.state:
        raise EnvironmentFailure(
            "algorithm.name gigpo compares turns that began in the same state, and the environment names none. Have it "
            "tell (env.options.track_state: true for TextWorld, a method `state` for your own), or set algorithm.name "
            "to grpo."
        )


def require_admissible(pool: EnvPool, task: Task) -> None:
    """Raises EnvironmentFailure if the environment lists no admissible commands, which the action space shows."""
    pool.reset(0, task)
    event = pool.receive(None)[0]
    if event.kind != "failure":
        pool.ask_admissible(0)
        event = pool.receive(None)[0]
    pool.release(0)
    if event.kind != "failure" and not event.admissible:
        raise EnvironmentFailure(
            "actions.enforce admissible lists what can be done, and the environment tells none of it. Have it list "
            "them (env.options.show_admissible: true for TextWorld), or set actions.enforce to prompt or mask."
        )
