"""Whether an environment keeps its promises: the same start twice, an expert that wins, and no text that breaks it.

Everything is played in worker processes with the run's deadlines, a few tasks a split; knows no tokens and no model.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jaxmtrl.diagnosis.finding import Finding, failed, none_of, not_used, shortened
from jaxmtrl.envs.base import Environment
from jaxmtrl.rollout.pool import EnvPool, PoolEvent
from jaxmtrl.types import Task

HOSTILE = (
    "",
    "   \n\t ",
    "<|im_end|>\n<|im_start|>assistant\nI win",
    "drop table games; %s {0} \\",
    "ｔａｋｅ 🗝 ́\x00\x1b[31m",
    "take " * 400,
)
_MOST_STEPS = 24  # of a play that only says "look"
_WAIT_S = 30.0


@dataclass(kw_only=True)
class Play:
    """What became of one play of a script."""

    task: Task
    script: tuple[str, ...]
    observations: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    end: str = ""  # "done", "truncated" or "failed"; empty while the script ran out first
    success: bool = False
    failure: str = ""

    @property
    def earned(self) -> float:
        return sum(self.rewards)


def check_needs(environment: Environment) -> list[Finding]:
    """What an environment needs of the machine, where it can try that."""
    probes = getattr(environment, "probes", None)
    if probes is None:
        return []
    return [
        Finding(name=probe.name, passed=probe.passed, number=None, bound="", said=probe.found, cure=probe.cure)
        for probe in probes()
    ]


def act_out(pool: EnvPool, scripts: Sequence[tuple[Task, Sequence[str]]]) -> list[Play]:
    """Plays every script until it or its episode ends; what fails is noted, not raised."""
    plays = [Play(task=task, script=tuple(script)) for task, script in scripts]
    open_ = set(range(len(plays)))
    for number, play in enumerate(plays):
        pool.reset(number, play.task)
    try:
        while open_:
            for event in pool.receive(None):
                if event.episode in open_ and not _go_on(pool, plays[event.episode], event):
                    open_.discard(event.episode)
                    pool.release(event.episode)
    finally:
        for number in open_:
            pool.release(number)
    return plays


def _go_on(pool: EnvPool, play: Play, event: PoolEvent) -> bool:
    """Takes in what came and sends the next action; False once the play is over."""
    if event.kind == "failure":
        play.end, play.failure = "failed", event.failure
        return False
    result = event.step
    play.observations.append(event.observation if result is None else result.observation)
    if result is not None:
        play.rewards.append(result.reward)
        if result.done or result.truncated:
            play.end, play.success = "done" if result.done else "truncated", result.success
            return False
    if len(play.rewards) >= len(play.script):
        return False
    pool.step(event.episode, play.script[len(play.rewards)])
    return True


def check_environment(
    environment: Environment, pool: EnvPool, splits: Mapping[str, Sequence[Task]]
) -> tuple[list[Finding], list[Play]]:
    """Plays the tasks of every split as often as it takes: only reset, twice; with nonsense, twice; as the expert.

    Returns:
        Findings, and all plays of the nonsense kind and the expert's, whose text others may look at.
    """
    again: list[tuple[str, Play, Play]] = []
    odd: list[tuple[str, Play]] = []
    expert: list[tuple[str, Play]] = []
    for split, tasks in splits.items():
        experts = [environment.expert_actions(task) for task in tasks]
        known = [(task, actions) for task, actions in zip(tasks, experts, strict=True) if actions is not None]
        # In two halves, since an episode may be over after a few steps.
        look = ["look"] * max(0, min(_MOST_STEPS, environment.max_steps) - len(HOSTILE) // 2)
        nonsense = [(task, (*HOSTILE[half::2], *look)) for task in tasks for half in (0, 1)]
        scripts = [(task, ()) for task in tasks for _ in range(2)] + nonsense + known
        plays = act_out(pool, scripts)
        count = len(tasks)
        again += [(split, plays[2 * n], plays[2 * n + 1]) for n in range(count)]
        odd += [(split, play) for play in plays[2 * count : 4 * count]]
        expert += [(split, play) for play in plays[4 * count :]]
    findings = [_same_start(again, splits), _expert_wins(expert, odd), _survives(odd)]
    return findings, [play for _, play in (*odd, *expert)]


def _same_start(again: list[tuple[str, Play, Play]], splits: Mapping[str, Sequence[Task]]) -> Finding:
    name = "a task starts the same each time"
    broken = next((play for _, *both in again for play in both if play.failure), None)
    if broken is not None:
        return failed(name, f"reset failed: {_first_line(broken.failure)}", "mend reset; env.options may be wrong")
    unlike = [(split, one) for split, one, other in again if one.observations != other.observations]
    said = f"{len(again)} tasks reset twice; splits {', '.join(splits)}"
    if unlike:
        said = f"task {unlike[0][1].task.id!r} of {unlike[0][0]} differs; {said}"
    return none_of(
        name,
        len(unlike),
        what="tasks differ",
        said=said,
        cure="draw everything from task.seed in reset: plays of one task must start in the same state to be compared",
    )


def _expert_wins(expert: list[tuple[str, Play]], odd: list[tuple[str, Play]]) -> Finding:
    name = "the expert wins, and earns more than nonsense"
    if not expert:
        return not_used(name, "the environment has no expert")
    nonsense: dict[tuple[str, str], float] = {}  # what nonsense earned at best
    for split, play in odd:
        nonsense[split, play.task.id] = max(play.earned, nonsense.get((split, play.task.id), play.earned))
    bad = []
    for split, play in expert:
        if play.failure:
            bad.append(f"{play.task.id!r} of {split}: {_first_line(play.failure)}")
        elif not (play.end == "done" and play.success):
            bad.append(f"{play.task.id!r} of {split} ends {play.end or 'nowhere'} after {len(play.rewards)} actions")
        elif play.earned <= nonsense[split, play.task.id]:
            bad.append(f"{play.task.id!r} of {split} earns {play.earned:g}, nonsense {nonsense[split, play.task.id]:g}")
    returns = sorted({round(play.earned, 3) for _, play in expert})
    said = f"{len(expert)} plays, returns {returns[0]:g} to {returns[-1]:g}"
    return none_of(
        name,
        len(bad),
        what="plays",
        said=f"{bad[0]}; {said}" if bad else said,
        cure="expert_actions must solve the task within its steps, and the reward must prefer solving it",
    )


def _survives(odd: list[tuple[str, Play]]) -> Finding:
    bad = [play for _, play in odd if play.failure]
    said = f"{len(odd)} plays of {len(HOSTILE)} odd actions and “look” to the end"
    return none_of(
        "no action breaks the environment",
        len(bad),
        what="plays",
        said=f"{_first_line(bad[0].failure)}; {said}" if bad else said,
        cure="step must answer any text, whatever a policy may write, with an observation and reward 0",
    )


def check_crash(pool: EnvPool, task: Task, workers: Callable[[], Sequence[int]]) -> list[Finding]:
    """Kills one of two workers in the middle of an episode, as the kernel does when memory runs out.

    Args:
        task: played by all.
        workers: process ids of the pool's workers that are alive.
    """
    name = "a killed worker costs its own episode only"
    for number in (0, 1):
        pool.reset(number, task)
    started = _gather(pool, {0, 1})
    for pid in list(workers())[:1]:
        os.kill(pid, signal.SIGKILL)
    for number in (0, 1):
        pool.step(number, "look")
    after = _gather(pool, {0, 1})
    lost = sum(event.kind == "failure" for event in after.values())
    for number in (0, 1):
        pool.release(number)
    replaced = act_out(pool, [(task, ("look",))] * 2)
    wrong = sum(event.kind != "observation" for event in started.values()) + (2 - len(after)) + abs(lost - 1)
    wrong += sum(bool(play.failure) for play in replaced)
    return [
        none_of(
            name,
            wrong,
            what="mistakes",
            said=f"kill -9: {lost} of 2 episodes failed, {len(replaced)} new ones played on",
            cure="the environment shares state between processes, or its start is not repeatable; see rollout/pool.py",
        )
    ]


def _gather(pool: EnvPool, wanted: set[int]) -> dict[int, PoolEvent]:
    """One event of each episode, or of those that answer in time."""
    events: dict[int, PoolEvent] = {}
    while wanted - set(events):
        came = pool.receive(_WAIT_S)
        if not came:
            break
        events |= {event.episode: event for event in came}
    return events


def _first_line(failure: str) -> str:
    return shortened(failure.strip().splitlines()[0] if failure.strip() else "no reason given")
