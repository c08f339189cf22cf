"""An environment whose rewards are composed of parts; in all else the one that it wraps.

The step is composed where it is played, in the worker process, so that learning, evaluation, demonstrations and play at
random earn alike, and what takes long (a judge, a linter) is done side by side and under the pool's deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from jaxmtrl.envs.base import Environment, Split, TextEnv, load_environment
from jaxmtrl.errors import ConfigError, EnvironmentFailure
from jaxmtrl.rewards import parts
from jaxmtrl.rewards.judge import Judge, JudgeSettings
from jaxmtrl.rewards.parts import Exchange, Moment, Part
from jaxmtrl.rewards.recipe import PREFIX, Recipe
from jaxmtrl.rewards.style import style_score
from jaxmtrl.types import StepResult, Task

FACTORY = "jaxmtrl.rewards.scored:make"


class ScoredEnv:
    """Plays one game at a time; implements `envs.base.TextEnv`. What the wrapped one has besides, it has too."""

    def __init__(self, inner: TextEnv, recipe: Recipe, measures: Mapping[str, Part]):
        """
        Args:
            measures: the function behind each name that the recipe weighs or charges for, and of "env" in any case.
        """
        self._inner = inner
        self._recipe = recipe
        self._measures = measures
        self._asks = {"progress", "style"} & set(recipe.weights)
        self._turns: list[Exchange] = []
        self._metrics: dict[str, float] = {}
        self._seen = ""
        self._potential = 0.0

    def reset(self, task: Task) -> str:
        self._seen = self._inner.reset(task)
        self._turns, self._metrics = [], {}
        self._potential = self._progress()
        return self._seen

    def step(self, action: str) -> StepResult:
        """The wrapped step with the composed reward, and each part's own value as the metric reward/<part>.

        Raises:
            EnvironmentFailure: a part cannot be told: the judge did not answer, a metric is missing or out of range.
        """
        result = self._inner.step(action)
        if not isinstance(result, StepResult):
            return result  # the worker says what is wrong with it
        self._turns.append(Exchange(observation=self._seen, action=action, answer=result.observation))
        self._seen = result.observation
        self._metrics.update(result.metrics)
        before, self._potential = self._potential, self._reached(result)
        if "style" in self._asks and (result.done or result.truncated) and hasattr(self._inner, "code"):
            self._metrics["style"] = style_score(self._inner.code())  # pyright: ignore[reportAttributeAccessIssue]
        moment = Moment(result=result, turns=self._turns, metrics=self._metrics, before=before, after=self._potential)
        values = {name: measure(moment) for name, measure in self._measures.items()}
        told = {PREFIX + name: value for name, value in values.items()}
        return replace(result, reward=self._recipe.reward(values), metrics={**result.metrics, **told})

    def close(self) -> None:
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        """What an environment need not have: `admissible`, `state`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def _reached(self, result: StepResult) -> float:
        """The potential after a step: 0 once the task is over, or cut where the learner goes on with no value."""
        if result.done or (result.truncated and not self._recipe.keeps_truncated):
            return 0.0
        return self._progress()

    def _progress(self) -> float:
        if "progress" not in self._asks:
            return 0.0
        value: object = self._inner.progress()  # pyright: ignore[reportAttributeAccessIssue]
        if not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise EnvironmentFailure(f"progress returned {value!r}, wanted a number in 0..1.")
        return self._recipe.potential(float(value))


class ScoredEnvironment:
    """Implements `envs.base.Environment`. What the wrapped one has besides, it has too."""

    def __init__(self, inner: Environment, recipe: Recipe, judge: JudgeSettings | None):
        self._inner = inner
        self._recipe = recipe
        self._measures = _measures(recipe, judge)

    @property
    def max_steps(self) -> int:
        return self._inner.max_steps

    def split(self, name: str) -> Split:
        return self._inner.split(name)

    def split_names(self) -> Sequence[str]:
        return self._inner.split_names()

    def make_env(self) -> ScoredEnv:
        return ScoredEnv(self._inner.make_env(), self._recipe, self._measures)

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        return self._inner.expert_actions(task)

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        self._inner.prepare(tasks, report)

    def __getattr__(self, name: str) -> Any:
        """What an environment need not have: `warm_up`, `own_returns`, `reports`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def require_parts(self, factory: str) -> None:
        """Finds out at start-up what a player would find out too late.

        Args:
            factory: of the environment that a config names, for the message.

        Raises:
            ConfigError: something is to be paid or charged for that the environment does not tell.
        """
        reports = frozenset(getattr(self._inner, "reports", ()))
        tells = self._told_by_players() | (reports & {"style", "pass_ratio", "invalid_action"})
        asked = {name: (f"reward.parts.{name}", "weight ") for name in ("progress", "style", "pass_ratio")}
        asked["invalid_action"] = ("reward.invalid_action_penalty", "")
        amounts = {**self._recipe.weights, **self._recipe.penalties}
        lacking = [
            f"{place}: got {kind}{amounts[name]:g}, and {factory} {_LACK[name]} (it reports "
            f"{', '.join(sorted(reports)) or 'no metrics'}); {_GIVE[name]} (jaxmtrl/envs/base.py), or "
            + ("choose reward.parts without it" if kind else "set it to 0")
            for name, (place, kind) in asked.items()
            if name in amounts and name not in tells
        ]
        if lacking:
            raise ConfigError("reward", lacking)

    def _told_by_players(self) -> set[str]:
        """The parts that a player's methods tell, of those that count."""
        methods = {part: name for part, name in _METHODS.items() if part in self._recipe.weights}
        if not methods:
            return set()
        player = self._inner.make_env()
        try:
            return {part for part, name in methods.items() if hasattr(player, name)}
        finally:
            player.close()


_METHODS = {"progress": "progress", "style": "code"}
_LACK = {
    "progress": "tells no progress",
    "style": "tells no code and reports no metric style",
    "pass_ratio": "reports no metric pass_ratio",
    "invalid_action": "reports no metric invalid_action",
}
_GIVE = {
    "progress": "give its player a method `progress`",
    "style": "give its player a method `code`",
    "pass_ratio": "let the last step report it and name it in the environment's `reports`",
    "invalid_action": "let its steps report it and name it in the environment's `reports`",
}


def _measures(recipe: Recipe, judge: JudgeSettings | None) -> dict[str, Part]:
    """The functions behind the names of a recipe; the environment's own reward is always among them, for its curve."""
    known: dict[str, Part] = {
        "env": parts.env,
        "progress": parts.progress(recipe.gamma),
        "success": parts.success,
        "pass_ratio": parts.pass_ratio,
        "style": parts.style,
        "invalid_action": parts.invalid_action,
        "format": parts.wrong_format(recipe.format_pattern),
        "repetition": parts.repetition,
        "diversity": parts.sameness,
    }
    if judge is not None:
        asked = Judge(judge)
        known["judge"] = lambda moment: asked.score(moment.turns) if moment.ended and parts.is_mended(moment) else 0.0
    wanted = {"env", *recipe.weights, *recipe.penalties}
    return {name: part for name, part in known.items() if name in wanted}


def make(options: Mapping[str, Any]) -> ScoredEnvironment:
    """The environment behind `FACTORY`, which `source.py` puts in place of a config's own.

    Args:
        options: factory and options of the environment to wrap; recipe: fields of `Recipe`; judge: fields of
            `JudgeSettings`, or None.
    """
    judge = options["judge"]
    return ScoredEnvironment(
        load_environment(options["factory"], options["options"]),
        Recipe(**options["recipe"]),
        None if judge is None else JudgeSettings(**judge),
    )
