"""An environment of which only some commands may be used, by the stage that a task names; in all else the one inside.

The stage is in the task (`actions/space.py`), so that whoever plays it, an expert, chance or a policy, in training or
evaluation, has the same commands. A macro-action is played here as the commands it stands for, within one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxmtrl.actions.macros import Step
from jaxmtrl.actions.space import ActionSpace, stage_of
from jaxmtrl.actions.verbs import plain, verb_of
from jaxmtrl.envs.actions import tagged_action, with_tags
from jaxmtrl.envs.base import Environment, OwnReturns, Split, TextEnv, load_environment
from jaxmtrl.envs.state_template import feedback_of, with_feedback
from jaxmtrl.errors import ConfigError
from jaxmtrl.types import StepResult, Task

FACTORY = "jaxmtrl.envs.staged:make"
REFUSED, MACRO = "action_refused", "action_macro"  # metrics of a turn, 1 where it was one
_LISTED = "You can: "  # begins the last line of an observation in which an environment lists what can be done


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How the stage is made known."""

    enforce: str  # "prompt", "admissible" or "mask", as config/actions_section.py has them
    think: bool  # the command stands between tags


class StagedEnv:
    """Plays one game at a time; implements `envs.base.TextEnv`. What the wrapped one has besides, it has too.

    A refused command costs a step and never reaches the game, so that the limit of steps is kept here as well. A macro
    costs as many steps of the game as it took; it ends with the game, or at a command that the game did not understand.
    """

    def __init__(self, inner: TextEnv, space: ActionSpace, manner: Manner, max_steps: int):
        """
        Args:
            max_steps: of a task that names no limit of its own.
        """
        self._inner, self._space, self._manner, self._most = inner, space, manner, max_steps
        self._stage: int | None = None
        self._over = True
        if hasattr(inner, "admissible"):
            self.admissible = self._admissible  # else it has none either

    def reset(self, task: Task) -> str:
        self._stage = stage_of(task.payload)
        self._limit: int = task.payload.get("max_steps", self._most)
        self._used, self._over = 0, False
        self._seen = self._inner.reset(task)  # last, by the game's own account
        seen = self._shown(self._seen)
        if self._stage is None or self._manner.enforce != "prompt":
            return seen
        return f"{self._space.legend(self._stage)}\n{seen}"

    def step(self, action: str) -> StepResult:
        if self._over:
            raise RuntimeError("the game is over; call reset")
        said = tagged_action(action) if self._manner.think else action
        command = plain(said or "")
        if command and not self._space.may_use(command, self._stage):
            return self._counted(self._refusal(command), 1)
        steps = self._space.expansion(command)
        if steps is None:
            result = self._inner.step(action)
            if not isinstance(result, StepResult):
                return result  # the worker says what is wrong with it
            self._seen = result.observation
            return self._counted(replace(result, observation=self._shown(result.observation)), 1)
        return self._macro(steps)

    def close(self) -> None:
        self._over = True
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        """What an environment need not have: `state`, `progress`, `code`."""
        if name.startswith("_") or name == "admissible":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def _admissible(self) -> list[str]:
        """What can be done now and may be used, macros that can be begun among it; none after the end."""
        offered = [] if self._over else self._offered()
        return [with_tags(command) for command in offered] if self._manner.think else offered

    def _commands(self) -> list[str]:
        """The admissible commands of the game, without tags."""
        listed = self._inner.admissible()  # pyright: ignore[reportAttributeAccessIssue]
        return [tagged_action(command) or "" for command in listed] if self._manner.think else list(listed)

    def _offered(self) -> list[str]:
        return self._space.offered(self._commands(), self._stage)

    def _shown(self, seen: str) -> str:
        """An observation whose list of admissible commands, if there is one or should be, is that of the stage."""
        if self._stage is None:
            return seen
        text, listed = _parted(seen)
        if listed is None:
            if self._manner.enforce != "admissible":
                return seen
            listed = self._commands()
        return _with_list(text, self._space.offered(listed, self._stage))

    def _refusal(self, command: str) -> StepResult:
        """What is true did not change, so that a state is told again, with the refusal as feedback."""
        verb = verb_of(command, self._space.known)
        told = f'You may not use "{verb}". {self._space.legend(self._stage)}'
        text, listed = _parted(self._seen)
        seen = _with_list(with_feedback(text, told) or told, listed or ())
        metrics = {"invalid_action": 1.0, REFUSED: 1.0}
        return StepResult(observation=self._shown(seen), reward=0.0, done=False, metrics=metrics)

    def _macro(self, steps: Sequence[Step]) -> StepResult:
        """Plays commands one after the other, and tells of them as of one."""
        results: list[StepResult] = []
        wrong = False
        for step in steps:
            if step.optional and self._is_known_to_fail(step.template):
                continue
            action = with_tags(step.template) if self._manner.think else step.template
            result = self._inner.step(action)
            if not isinstance(result, StepResult):
                return result  # the worker says what is wrong with it
            results.append(result)
            self._seen = result.observation
            wrong = not step.optional and result.metrics.get("invalid_action", 0.0) > 0
            if wrong or result.done or result.truncated:
                break
        return self._counted(self._joined(results, wrong), len(results))

    def _is_known_to_fail(self, command: str) -> bool:
        """Whether the environment lists what can be done now, and that is not among it."""
        listed = self._commands() if hasattr(self._inner, "admissible") else []
        return bool(listed) and command not in listed

    def _joined(self, results: Sequence[StepResult], wrong: bool) -> StepResult:
        """Several steps as one: what was seen one below the other, rewards added, the end and the metrics of the last.

        Of states the last is told, with the feedback of all.

        Args:
            wrong: whether the last command was not understood.
        """
        last = results[-1]
        feedback = [feedback_of(result.observation) for result in results]
        if None in feedback:
            told = [*(_parted(result.observation)[0] for result in results[:-1]), self._shown(last.observation)]
            seen = "\n".join(told)
        else:
            seen = self._shown(with_feedback(last.observation, " ".join(map(str, feedback))) or "")
        metrics = {name: value for result in results for name, value in result.metrics.items()}
        if "invalid_action" in metrics:
            metrics["invalid_action"] = float(wrong)
        reward = sum(result.reward for result in results)
        return replace(last, observation=seen, reward=reward, metrics={**metrics, MACRO: 1.0})

    def _counted(self, result: StepResult, steps: int) -> StepResult:
        """The result after so many steps, cut where the task's limit is reached."""
        self._used += steps
        if self._used >= self._limit and not result.done:
            result = replace(result, truncated=True)
        self._over = result.done or result.truncated
        return result


def _parted(seen: str) -> tuple[str, list[str] | None]:
    """An observation without its list of admissible commands, and that list; None where it has none."""
    text, _, last = seen.rpartition("\n")
    if not last.startswith(_LISTED):
        return seen, None
    return text, last.removeprefix(_LISTED).removesuffix(".").split("; ")


def _with_list(text: str, commands: Sequence[str]) -> str:
    """An observation with its list of admissible commands, where there are any."""
    return "\n".join([*([text] if text else []), *([_LISTED + "; ".join(commands) + "."] if commands else [])])


class StagedEnvironment:
    """Implements `envs.base.Environment`. What the wrapped one has besides, it has too."""

    def __init__(self, inner: Environment, space: ActionSpace, manner: Manner):
        self._inner, self._space, self._manner = inner, space, manner
        if hasattr(inner, "own_returns"):
            self.own_returns = self._own_returns

    @property
    def max_steps(self) -> int:
        return self._inner.max_steps

    @property
    def reports(self) -> frozenset[str]:
        """What the game reports, and refusals."""
        return frozenset(getattr(self._inner, "reports", ())) | {"invalid_action"}

    def split(self, name: str) -> Split:
        return self._inner.split(name)

    def split_names(self) -> Sequence[str]:
        return self._inner.split_names()

    def make_env(self) -> StagedEnv:
        return StagedEnv(self._inner.make_env(), self._space, self._manner, self.max_steps)

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        """The expert's way in the stage's commands; of a task without a stage as it is.

        None too where the way cannot be said in them.
        """
        actions, stage = self._inner.expert_actions(task), stage_of(task.payload)
        if actions is None or stage is None:
            return actions
        said = self._space.expressed(self._commands(actions), stage)
        if said is None:
            return None
        return [with_tags(command) for command in said] if self._manner.think else said

    def lacking_verbs(self, task: Task) -> set[str]:
        """Verbs of the expert's way that may not be used, if for want of them it cannot be said; else none."""
        stage, actions = stage_of(task.payload), self._inner.expert_actions(task)
        commands = self._commands(actions or ())
        if self._space.expressed(commands, stage) is not None:
            return set()
        return {verb_of(command, self._space.known) for command in commands} - set(self._space.allowed(stage))

    def _commands(self, actions: Sequence[str]) -> list[str]:
        """Actions without tags, as verbs are told by."""
        return [plain((tagged_action(action) or "") if self._manner.think else action) for action in actions]

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        self._inner.prepare(tasks, report)

    def __getattr__(self, name: str) -> Any:
        """What an environment need not have: `warm_up`."""
        if name.startswith("_") or name == "own_returns":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def _own_returns(self, tasks: Sequence[Task]) -> OwnReturns:
        """As of the game, but that one step may be all that a macro stands for, or a refusal, which earns nothing."""
        own = self._inner.own_returns(tasks)  # pyright: ignore[reportAttributeAccessIssue]
        longest = max((len(macro.steps) for macro in self._space.macros), default=1)
        return replace(own, step_least=min(0.0, longest * own.step_least), step_most=max(0.0, longest * own.step_most))

    def require_admissible(self) -> None:
        """Raises ConfigError where commands are to be listed, and the game's player lists none."""
        player = self._inner.make_env()
        try:
            known = hasattr(player, "admissible")
        finally:
            player.close()
        if self._manner.enforce == "admissible" and not known:
            raise ConfigError(
                "actions.enforce",
                [
                    f"actions.enforce: got admissible, and a {type(player).__name__} lists no admissible commands; "
                    "give it a method `admissible` (jaxmtrl/envs/base.py), or set it to prompt or mask"
                ],
            )


def make(options: Mapping[str, Any]) -> StagedEnvironment:
    """The environment behind `FACTORY`, which `rewards/source.py` puts in place of a config's own.

    Args:
        options: factory and options of the environment to wrap; stages and macros as a config has them; fields of
            `Manner`.
    """
    return StagedEnvironment(
        load_environment(options["factory"], options["options"]),
        ActionSpace.of(options["stages"], options["macros"]),
        Manner(enforce=options["enforce"], think=options["think"]),
    )
