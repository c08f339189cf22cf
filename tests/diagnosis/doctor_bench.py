"""A bench for tests of the doctor: the smallest network, the short game, no processes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from short_env import TASKS, ShortEnv, ShortEnvironment

from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import Config
from jaxmtrl.diagnosis.bench import Bench, Rehearsal, make_bench, rehearse
from jaxmtrl.diagnosis.finding import Finding
from jaxmtrl.diagnosis.gauge import Gauge
from jaxmtrl.diagnosis.material import with_made_up_credit
from jaxmtrl.diagnosis.shrink import shrink
from jaxmtrl.rollout.pool import PoolEvent
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import byte_tokenizer
from jaxmtrl.types import Episode, Task

TINY = Path(__file__).parents[1] / "training" / "tiny.yaml"


class DirectPool:
    """An `EnvPool` without processes: what an environment raises is its episode's failure."""

    def __init__(self, environment: ShortEnvironment | None = None):
        self._environment = environment or ShortEnvironment({})
        self._envs: dict[int, ShortEnv] = {}
        self._events: list[PoolEvent] = []

    def reset(self, episode: int, task: Task) -> None:
        self._envs[episode] = self._environment.make_env()

        def answer() -> PoolEvent:
            return PoolEvent(episode=episode, kind="observation", observation=self._envs[episode].reset(task))

        self._ask(episode, answer)

    def step(self, episode: int, action: str) -> None:
        self._ask(episode, lambda: PoolEvent(episode=episode, kind="step", step=self._envs[episode].step(action)))

    def ask_admissible(self, episode: int) -> None:
        self._events.append(PoolEvent(episode=episode, kind="admissible"))

    def release(self, episode: int) -> None:
        self._envs.pop(episode, None)

    def receive(self, timeout_s: float | None) -> list[PoolEvent]:
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        pass

    def _ask(self, episode: int, answer: Callable[[], PoolEvent]) -> None:
        try:
            self._events.append(answer())
        except Exception as err:
            self._events.append(PoolEvent(episode=episode, kind="failure", failure=f"raised {err!r}"))


@functools.cache
def small_config(*overrides: str) -> Config:
    """tests/training/tiny.yaml with one layer, no remat and short rows, and the given overrides."""
    sizes = (
        "model.layers=1",
        "model.remat=none",
        "model.embed=16",
        "model.head_dim=8",
        "model.mlp=16",
        "model.critic=head",
    )
    short = ("sampling.max_action_tokens=4", "sampling.temperature=0.7", "algorithm.entropy_coef=0.01")
    return shrink(load_config(TINY, [*sizes, *short, *overrides]), tokens=128).config


@functools.cache
def bench(*overrides: str) -> Bench:
    """The parts; `overrides` of anything but the model share the network and its parameters."""
    if overrides:
        return dataclasses.replace(bench(), config=small_config(*overrides))
    tokenizer = byte_tokenizer()
    return make_bench(small_config(), tokenizer, chatml(tokenizer))


@functools.cache
def rehearsal() -> Rehearsal:
    """Two sound iterations of the default bench."""
    return rehearse(bench(), DirectPool(), TASKS)


@functools.cache
def episodes(turns: int = 2) -> list[Episode]:
    """Four played episodes with made-up rewards."""
    return with_made_up_credit(rehearsal().episodes, turns=turns, seed=0)


@functools.cache
def sound_gauge(*overrides: str) -> Gauge:
    """Measures with the programs as they are; never asked first inside a test that plants a bug."""
    return fresh_gauge(*overrides)


def fresh_gauge(*overrides: str) -> Gauge:
    """Compiles anew, with whatever bug is planted."""
    parts = bench(*overrides)
    return Gauge(parts.network, parts.mesh, parts.config.algorithm, parts.config.sampling.temperature)


def by_name(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def failures(findings: Sequence[Finding]) -> list[str]:
    return [finding.name for finding in findings if not finding.passed]
