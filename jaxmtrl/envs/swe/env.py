"""One software task as it is played: commands in a sandbox, then a verdict.

What the policy does wrong is told to it and costs it turns; what the machine does wrong raises, so that the episode
counts as failed and nobody learns from it.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jaxmtrl.envs.swe.actions import Command, FormatMistake, read_action
from jaxmtrl.envs.swe.edits import ENVIRONMENT, SHOWN
from jaxmtrl.envs.swe.files import write_whole
from jaxmtrl.envs.swe.grade import MAX_BYTES, MAX_FILES, Grade, Prepared, grade, persist
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.observe import observation, shorten
from jaxmtrl.envs.swe.patches import make_patch
from jaxmtrl.envs.swe.prompt import Wording, after_command, after_mistake, first_observation
from jaxmtrl.envs.swe.rewards import KINDS, f2p_gated, worth
from jaxmtrl.envs.swe.row_rules import OURS
from jaxmtrl.envs.swe.sandbox.api import Backend, Limits, Sandbox
from jaxmtrl.envs.swe.screen import base_file
from jaxmtrl.errors import SandboxFailure
from jaxmtrl.types import StepResult, Task

_LONGEST_DIFF = 200_000  # bytes of a file whose changes are told line by line
# Options of a package's own pytest settings often want plugins that its tests do without, such as pytest-cov.
_PLAIN_PYTEST = {"PYTEST_ADDOPTS": "-o addopts="}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What holds for every episode, in plain values."""

    wording: Wording
    limits: Limits
    tests_s: float  # the most that the tests may take; three times what they take on the clean base, if that is less
    commands_s: float  # of all commands of an episode together
    format_limit: int  # answers in a row that cannot be read, after which an episode ends; 0 for no such limit
    head: int  # characters shown of an output's beginning
    tail: int  # and of its end
    tokens: int  # about as many at most, in all; 0 for no such limit
    reward: str  # one of rewards.KINDS
    quarantine: Path | None  # where changes that look like a cheat are kept for people


class Workshop(Protocol):
    """Where instances come from."""

    def take(self, task: Task) -> tuple[SweInstance, Prepared]:
        """The instance of a task, ready to be played until `give_back`."""
        ...

    def hint(self, instance: SweInstance) -> str:
        """Where to look, as the policy is told; "" where it is not. The instance has been taken."""
        ...

    def give_back(self, instance: SweInstance) -> None: ...


@dataclass
class _Play:
    """An episode under way."""

    instance: SweInstance
    prepared: Prepared
    turns: int  # that are left
    sandbox: Sandbox
    format_errors: int = 0  # in a row
    commands_s: float = 0.0
    retries: int = 0  # of opening its sandbox


class SweEnv:
    """Plays one task at a time; implements `envs.base.TextEnv`."""

    def __init__(self, workshop: Workshop, backend: Backend, rules: Rules):
        self._workshop = workshop
        self._backend = backend
        self._rules = rules
        self._play: _Play | None = None
        self._code = ""

    def reset(self, task: Task) -> str:
        self.close()
        self._code = ""
        instance, prepared = self._workshop.take(task)
        try:
            hint = self._workshop.hint(instance)
            retries, sandbox = persist(lambda tried: (tried, self._backend.open(prepared.base, self._rules.limits)))
        except BaseException:
            self._workshop.give_back(instance)
            raise
        turns = task.payload["max_steps"]
        self._play = _Play(instance=instance, prepared=prepared, turns=turns, sandbox=sandbox, retries=retries)
        return first_observation(instance, self._rules.wording, turns, hint)

    def step(self, action: str) -> StepResult:
        """Runs one command, or grades; raises SandboxFailure where the machine fails."""
        play = self._play
        if play is None:
            raise RuntimeError("the episode is over; call reset")
        play.turns -= 1
        try:
            return self._answer(play, action)
        except SandboxFailure:
            self.close()
            raise

    def code(self) -> str:
        """The Python files that were changed, whole; nothing where no failing test passes by the change."""
        return self._code

    def close(self) -> None:
        play, self._play = self._play, None
        if play is not None:
            try:
                play.sandbox.close()
            finally:
                self._workshop.give_back(play.instance)

    def _answer(self, play: _Play, action: str) -> StepResult:
        read = read_action(action, self._rules.wording.form)
        if isinstance(read, FormatMistake):
            return self._mistake(play, read)
        play.format_errors = 0
        if not isinstance(read, Command):
            return self._verdict(play, {"swe/submitted": 1.0})
        rules = self._rules
        result = play.sandbox.run(read.text, environment=_around(play), shown=SHOWN)
        play.commands_s += result.wall_s
        seen = observation(
            result,
            head=rules.head,
            tail=rules.tail,
            tokens=rules.tokens,
            output_kept=rules.limits.output_kept,
            seconds=rules.limits.command_s,
        )
        metrics = {"swe/commands": 1.0, "swe/command_timeouts": float(result.why == "timeout")}
        if play.turns <= 0 or play.commands_s > rules.commands_s:
            return self._verdict(play, metrics)
        return _going_on(after_command(seen, play.turns), metrics)

    def _mistake(self, play: _Play, mistake: FormatMistake) -> StepResult:
        play.format_errors += 1
        metrics = {"invalid_action": 1.0, "swe/format_errors": 1.0}
        if 0 < self._rules.format_limit <= play.format_errors:
            self.close()
            ended = {**dict.fromkeys(_measures(None), 0.0), **metrics, "swe/format_limit": 1.0}
            told = f"Nothing was run: {mistake.reason}. The episode ends after {play.format_errors} such answers."
            return StepResult(observation=told, reward=0.0, done=True, metrics=ended)
        if play.turns <= 0:
            return self._verdict(play, metrics)
        return _going_on(after_mistake(mistake, self._rules.wording.form, play.turns), metrics)

    def _verdict(self, play: _Play, metrics: Mapping[str, float]) -> StepResult:
        """Ends the episode by what lies in the workspace, submitted or not."""
        rules = self._rules
        changes = play.sandbox.changes(max_files=MAX_FILES, max_bytes=MAX_BYTES)
        play.sandbox.close()
        verdict = grade(
            self._backend,
            play.prepared,
            play.instance,
            changes,
            limits=rules.limits,
            tests_s=grading_limit(rules.tests_s, play.prepared.baseline_s),
        )
        diff = _diff(play.prepared, verdict)
        if f2p_gated(verdict) > 0:
            self._code = _python(verdict)
        if (verdict.screened.flags or verdict.status == "canary") and rules.quarantine is not None:
            _set_aside(rules.quarantine, play.instance, verdict, diff)
        self.close()
        return StepResult(
            observation=shorten(_told(verdict, diff), head=rules.head, tail=rules.tail),
            reward=worth(rules.reward, verdict),
            done=True,
            success=verdict.status == "resolved",
            metrics={**_measures(verdict, play.retries), **metrics},
        )


def grading_limit(most: float, baseline_s: float) -> float:
    """Seconds that the tests of an instance may take: three times what they do on the clean base, 60 at least."""
    return min(most, max(60.0, 3 * baseline_s)) if baseline_s else most


def _around(play: _Play) -> dict[str, str]:
    """Variables of the policy's commands. Packages have no settings of pytest there, as in grading."""
    more = _PLAIN_PYTEST if play.instance.source in OURS else {}
    return {**play.prepared.environment, **ENVIRONMENT, **more}


def _going_on(seen: str, metrics: Mapping[str, float]) -> StepResult:
    return StepResult(observation=seen, reward=0.0, done=False, metrics=metrics)


def _measures(verdict: Grade | None, retries: int = 0) -> dict[str, float]:
    """What the dashboard shows of a verdict. Every name is there at every end, so that means are over all episodes.

    Args:
        verdict: None for names alone.
        retries: of opening the policy's sandbox.
    """
    verdict = verdict or Grade(status="no_change", fail_to_pass={}, pass_to_pass={})
    status = verdict.status
    return {
        "pass_ratio": f2p_gated(verdict),
        **{f"swe/{kind}": measure(verdict) for kind, measure in KINDS.items()},
        "swe/submitted": 0.0,
        "swe/format_limit": 0.0,
        "swe/flag": float(bool(verdict.screened.flags)),
        "swe/canary": float(status == "canary"),
        "swe/dropped_files": float(len(verdict.screened.dropped)),
        "swe/no_change": float(status == "no_change"),
        "swe/tests_timeout": float(status == "timeout"),
        "swe/tests_died": float(status in ("runner_died", "no_report", "exit_mismatch")),
        "swe/patch_refused": float(status in ("patch_too_large", "apply_error")),
        "swe/infra_retries": float(retries + verdict.retries),
    }


def _told(verdict: Grade, diff: str) -> str:
    """The verdict in words, for people and judges; no policy reads on after its end."""
    failing, others = verdict.fail_to_pass.values(), verdict.pass_to_pass.values()
    counts = f"{sum(failing)} of {len(failing)} failing tests pass now, {sum(others)} of {len(others)} others still do"
    lines = [f"[{verdict.status}] {counts}"]
    lines += [verdict.detail] if verdict.detail else []
    lines += [f"left out: {', '.join(verdict.screened.dropped[:20])}"] if verdict.screened.dropped else []
    nothing = "Nothing was changed." if verdict.status == "no_change" else "No change is shown."
    return "\n".join([*lines, "", diff or nothing])


def _diff(prepared: Prepared, verdict: Grade) -> str:
    """What was changed, line by line where it is text of a usual length."""
    parts = []
    for change in verdict.screened.files:
        before = base_file(prepared.base, change.path)
        sizes = [len(content) for content in (before, change.content) if content is not None]
        if sum(sizes) > _LONGEST_DIFF:
            parts.append(f"{change.path}: {len(change.content or b'')} bytes\n")
            continue
        texts = [
            {change.path: content.decode("utf-8", "replace")} if content is not None else {}
            for content in (before, change.content)
        ]
        parts.append(make_patch(texts[0], texts[1]))
    return "".join(parts)


def _python(verdict: Grade) -> str:
    return "\n".join(
        change.content.decode("utf-8", "replace")
        for change in verdict.screened.files
        if change.content is not None and change.path.endswith(".py")
    )


def _set_aside(folder: Path, instance: SweInstance, verdict: Grade, diff: str) -> None:
    """Keeps what looks like a cheat, for a person to look at; the verdict stands where the disk is full."""
    kept = {
        "instance": instance.id,
        "status": verdict.status,
        "flags": verdict.screened.flags,
        "detail": verdict.detail,
        "patch": diff,
    }
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in instance.id)
    try:
        write_whole(folder / f"{name[:100]}-{time.time_ns()}.json", json.dumps(kept, indent=1))
    except OSError as err:  # a failed episode would count for nothing, and a cheat must not earn that
        warnings.warn(f"{folder}: {err.strerror}; a change that looks like a cheat was not kept", stacklevel=2)
