"""What an environment is: strings in, strings out, and a list of tasks for every split.

An environment module offers `make(options) -> Environment`, named in a config by import string such as
`jaxmtrl.envs.textworld:make`. `Environment` describes tasks and makes `TextEnv`s; both live in worker processes
too, so neither may import jax.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from jaxmtrl.errors import ConfigError, EnvironmentFailure, JaxmtrlError
from jaxmtrl.types import StepResult, Task

Answer = TypeVar("Answer")


class TextEnv(Protocol):
    """One game at a time. A new task is a new `reset`; after `done` or `truncated` only `reset` may follow."""

    def reset(self, task: Task) -> str:
        """Starts `task` and returns the first observation (with the goal in it)."""
        ...

    def step(self, action: str) -> StepResult:
        """Does `action`, the policy's text as it wrote it, and returns what follows."""
        ...

    def close(self) -> None:
        """Frees what the game holds; called once, also after an error."""
        ...

    # An environment that knows what could be done may also have, for play at random:
    #
    #     def admissible(self) -> Sequence[str]: the actions that would do something now; none after the end
    #
    # and one that can name the state it is in, for credit between plays that met in it (algorithm gigpo):
    #
    #     def state(self) -> str: equal for two moments of plays of one task exactly if what follows is the same; holds
    #         what is carried and what is hidden, but no counter of steps
    #
    # one that can tell how far it is, for rewards of getting nearer (reward.parts.progress):
    #
    #     def progress(self) -> float: 0..1, 0 where winning has become impossible; asked right after a reset and after
    #         every step but one that is done; what is asked for there costs nothing where it never is
    #
    # and one in which Python is written, for its style (reward.parts.style):
    #
    #     def code(self) -> str: all that was written so far; asked when the episode has ended


@dataclass(frozen=True, kw_only=True)
class Split:
    """A named, fixed list of tasks, for example "train", "heldout" or "harder"."""

    name: str
    tasks: Sequence[Task]


@dataclass(frozen=True, kw_only=True)
class OwnReturns:
    """What plays can earn under an environment's own reward, its own penalties taken: sums over an episode."""

    win_least: float  # the least that solving any of the tasks earns
    other_most: float  # the most that a play earns which does not solve its task
    step_least: float = -1.0  # the least that one step earns
    step_most: float = 1.0


class Environment(Protocol):
    """A family of tasks.

    One that knows what its own rewards come to has a method `own_returns(self, tasks: Sequence[Task]) -> OwnReturns`.
    It is asked once at start-up, when the games of `tasks` are made, whether a loss could pay like a win; composed
    rewards (`config/reward_section.py`) that build upon the environment's want it.

    One whose steps report metrics names them in an attribute `reports: Collection[str]`; each is known by the end of
    every episode. Rewards that are made of one (`pass_ratio`, `style`, `invalid_action`) want it named there.

    One whose steps may take long has a property `longest_step_s`: start-up refuses a rollout.step_timeout_s that would
    kill its workers at work.

    One that takes long over its first reset may have a method `warm_up(self) -> None` as well. A worker process calls
    it once, as soon as it has started and while nobody waits for it; what it raises is ignored.

    One that needs something of the machine (a sandbox, a program) may have a method `probes(self) -> Sequence[Probe]`
    (`envs/probe.py`), which tries it in a few seconds; the doctor tells what it finds.
    """

    def split(self, name: str) -> Split:
        """The tasks of one split, always the same in the same order. Raises ConfigError for an unknown name."""
        ...

    def split_names(self) -> Sequence[str]: ...

    def make_env(self) -> TextEnv:
        """A fresh player of this environment's tasks; called in a worker process."""
        ...

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        """Actions that solve `task`, or None where there is no expert."""
        ...

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        """Makes whatever `tasks` need on disk (compiled games); safe to run twice at once, cheap when all is there.

        Args:
            report: called with (done, total) as the work goes on.
        """
        ...

    @property
    def max_steps(self) -> int:
        """Steps after which `step` says truncated."""
        ...


def load_environment(factory: str, options: Mapping[str, Any]) -> Environment:
    """Resolves an import string `package.module:function` and calls it with `options`.

    Raises:
        ConfigError: the string, the module or the function is wrong, or the environment refuses its options.
    """
    module_name, _, function_name = factory.partition(":")
    if not module_name or not function_name:
        raise ConfigError("env.factory", [f'env.factory must look like "package.module:function", got {factory!r}.'])
    try:
        module = importlib.import_module(module_name)
    except ImportError as err:
        raise ConfigError(
            "env.factory",
            [f"env.factory {factory!r} cannot be imported: {err}. Install the extra it needs or correct the name."],
        ) from err
    except (Exception, SystemExit) as err:  # SystemExit: a module that gives up must not end us with its exit code
        raise ConfigError("env.factory", [f"env.factory {factory!r} cannot be imported: {blame(err)}."]) from err
    make = getattr(module, function_name, None)
    if make is None:
        offered = ", ".join(name for name in dir(module) if name.startswith("make")) or "none"
        raise ConfigError("env.factory", [f"{module_name} has no {function_name!r}; it offers: {offered}."])
    try:
        environment = make(dict(options))
    except JaxmtrlError:
        raise
    except (Exception, SystemExit) as err:
        raise ConfigError(
            "env.factory", [f"env.factory {factory!r} did not make an environment: {blame(err)}."]
        ) from err
    if not hasattr(environment, "make_env"):
        raise ConfigError(
            "env.factory",
            [
                f"env.factory {factory!r} returned {type(environment).__name__}, which has no make_env; see "
                "jaxmtrl/envs/base.py for what an environment is."
            ],
        )
    return environment


def ask(what: str, question: Callable[[], Answer]) -> Answer:
    """Asks an environment something in this process; whatever it raises becomes one error that names the place.

    Args:
        what: what was asked, as the beginning of a sentence that goes on with "failed: ...".

    Raises:
        JaxmtrlError: as the environment raised it; EnvironmentFailure for any other exception.
    """
    try:
        return question()
    except JaxmtrlError:
        raise
    except (Exception, SystemExit) as err:
        raise EnvironmentFailure(f"{what} failed: {blame(err)}") from err


def blame(err: BaseException) -> str:
    """An exception with the file and line it came from."""
    frames = traceback.extract_tb(err.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(err).__name__}: {err}{place}"
