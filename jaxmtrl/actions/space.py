"""The commands of a run in stages: what each stage adds, which macros there are, and what may be used where.

Knows neither games nor tokens; `envs/staged.py` plays by it and `text/action_mask.py` samples by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxmtrl.actions.macros import Macro, Step, bound, contract, expand, filled
from jaxmtrl.actions.verbs import verb_of
from jaxmtrl.types import Task

STAGE = "action_stage"  # of a task's payload: number of the stage that it is played in; without it nothing is refused


@dataclass(frozen=True)
class ActionSpace:
    """Stages are counted from 0; each has what the ones before it have."""

    stages: tuple[tuple[str, ...], ...]  # what each adds: verbs, those of macros among them
    macros: tuple[Macro, ...]

    @classmethod
    def of(cls, stages: Mapping[str, Sequence[str]], macros: Mapping[str, Sequence[str]]) -> ActionSpace:
        """As a config has them."""
        made = tuple(Macro.of(template, steps) for template, steps in macros.items())
        return cls(tuple(tuple(adds) for adds in stages.values()), made)

    @cached_property
    def known(self) -> frozenset[str]:
        """Every verb of any stage."""
        return frozenset(verb for adds in self.stages for verb in adds)

    def allowed(self, stage: int | None) -> tuple[str, ...]:
        """The verbs of a stage in the order they were added; of None all there are."""
        last = len(self.stages) if stage is None else stage + 1
        return tuple(verb for adds in self.stages[:last] for verb in adds)

    def may_use(self, command: str, stage: int | None) -> bool:
        """Whether a command, as `verbs.plain` writes it, has a verb of the stage; of None anything goes."""
        return stage is None or verb_of(command, self.known) in self.allowed(stage)

    def macros_of(self, stage: int | None) -> list[Macro]:
        """The macros that may be used."""
        return [macro for macro in self.macros if macro.verb in self.allowed(stage)]

    def legend(self, stage: int | None) -> str:
        """What may be used, in words."""
        said = {macro.verb: macro.says() for macro in self.macros}
        return f"You may use: {'; '.join(said.get(verb, verb) for verb in self.allowed(stage))}."

    def expansion(self, command: str) -> list[Step] | None:
        """What a macro's command stands for; None for a command of the game."""
        macro = next((macro for macro in self.macros if macro.verb == verb_of(command, self.known)), None)
        return None if macro is None else expand(macro, command)

    def offered(self, admissible: Sequence[str], stage: int | None) -> list[str]:
        """What can be done now and may be used.

        A macro is among it once for every admissible command that its first step could be, if that tells all of its
        parameters; what a macro finds on its way cannot be listed before.
        """
        plain = [command for command in admissible if self.may_use(command, stage)]
        return list(dict.fromkeys([*plain, *self._begun(admissible, stage)]))

    def _begun(self, admissible: Sequence[str], stage: int | None) -> list[str]:
        begun = []
        for macro in self.macros_of(stage):
            first = next(step for step in macro.steps if not step.optional)
            for command in admissible:
                values = bound(first.template, command)
                if values is not None and macro.parameters <= values.keys():
                    begun.append(filled(macro.template, values))
        return begun

    def expressed(self, commands: Sequence[str], stage: int | None) -> list[str] | None:
        """A way through a game in a stage's commands, macros wherever they fit; None where it cannot be said."""
        return contract(commands, self.macros_of(stage), self.allowed(stage), self.known)


def staged(task: Task, stage: int) -> Task:
    """The same task with the stage that it is played in."""
    return dataclasses.replace(task, payload={**task.payload, STAGE: stage})


def stage_of(payload: Mapping[str, Any]) -> int | None:
    """The stage that a task's payload names; None where everything may be used."""
    return payload.get(STAGE)
