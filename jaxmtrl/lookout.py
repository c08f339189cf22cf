"""Watches a run for trouble: keeps the alarms' state, tells people, and turns what an alarm turns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmtrl.alarms.actions import Turned, turned
from jaxmtrl.alarms.state import AlarmState
from jaxmtrl.alarms.watch import watch
from jaxmtrl.config.sections import Config
from jaxmtrl.learner.dials import Dials, DialState
from jaxmtrl.scores import Evaluated
from jaxmtrl.types import Episode


class Lookout:
    """Told of every iteration that plays, and of every evaluation."""

    def __init__(self, config: Config, saved: Mapping[str, Any], say: Callable[[str], None]):
        """
        Args:
            saved: `saved` of the run that goes on; empty at the start.
        """
        self._config, self._say = config, say
        self._state = AlarmState.of(saved)
        self.stop = ""  # why the run should stop; "" if it should go on

    @property
    def saved(self) -> dict[str, Any]:
        """What a position keeps."""
        return self._state.as_dict()

    def dials(self, state: DialState, stage: str, iteration: int) -> Dials:
        """The dials of an iteration: the config's, but for what an alarm has turned."""
        finished = iteration if stage == "rl" else 0
        dials, ours = state.dials(self._config.algorithm, finished), self._turned(finished)
        if ours.kl_coef is not None:
            dials = dataclasses.replace(dials, kl_coef=np.float32(ours.kl_coef))
        deviation = state.returns.deviation
        if ours.return_variance is not None and deviation > 0:
            dials = dataclasses.replace(dials, reward_scale=np.float32(math.sqrt(ours.return_variance) / deviation))
        return dials

    def played(
        self,
        stage: str,
        episodes: Sequence[Episode],
        values: Mapping[str, float],
        dials: Dials,
        *,
        finished: int,
        tasks: str,
    ) -> dict[str, float]:
        """After an iteration of a stage that plays; gives its figures and the alarms' curves.

        Args:
            values: all that is logged of the iteration so far.
            dials: of the iteration.
            finished: iterations of the stage, this one included.
            tasks: the curriculum's level; "" without.
        """
        ours = self._turned(finished - 1 if stage == "rl" else 0)
        scaled = self._config.algorithm.reward_scale == "running" or ours.return_variance is not None
        seen = watch(
            self._config.alarms,
            self._state,
            episodes,
            values,
            finished=finished,
            iterations=self._config.rl.iterations,
            reward_scale=float(dials.reward_scale) if scaled else None,
            tasks=tasks,
            rl=stage == "rl",
        )
        self._state, self.stop = seen.state, seen.stop
        for message in seen.messages:
            self._say(message)
        return {**seen.values, **ours.named(float(dials.reward_scale))}

    def evaluated(self, figures: Mapping[str, Evaluated], finished: int) -> None:
        """After an evaluation.

        Args:
            finished: RL iterations that were finished; 0 for the policy that RL begins with.
        """
        for split, figure in figures.items():
            self._state = self._state.evaluated(split, finished, figure)

    def _turned(self, finished: int) -> Turned:
        return turned(self._config.alarms, self._state.turned, finished)
