"""Software tasks as an environment: rows of SWE-Gym and the like, or faults put into packages, played in sandboxes.

Rows name repositories and tests; what a sandbox needs of them is made once into a cache (`trees.py`). No task is played
without a sandbox unless the config says `unsafe`.
"""

from __future__ import annotations

import dataclasses
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from jaxmtrl.envs.base import OwnReturns, Split
from jaxmtrl.envs.options import read_options
from jaxmtrl.envs.probe import Probe
from jaxmtrl.envs.swe.env import SweEnv
from jaxmtrl.envs.swe.expert import gold_actions
from jaxmtrl.envs.swe.files import must_take_files
from jaxmtrl.envs.swe.grade import Prepared
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.loading import load_instances
from jaxmtrl.envs.swe.places import hint
from jaxmtrl.envs.swe.preparing import Preparer
from jaxmtrl.envs.swe.rewards import junk_worth, most_of_losing
from jaxmtrl.envs.swe.sandbox.api import Backend
from jaxmtrl.envs.swe.sandbox.choice import choose
from jaxmtrl.envs.swe.selection import mix, select
from jaxmtrl.envs.swe.settings import SplitOptions, SweOptions, folder, option_mistakes, rules
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.errors import ConfigError, EnvironmentFailure
from jaxmtrl.types import Task

_OVERHEAD_S = 15.0  # of opening sandboxes and reading changes, on a busy machine


class SweEnvironment:
    """Splits, experts and players; implements `envs.base.Environment` and `env.Workshop`."""

    reports = ("invalid_action", "pass_ratio")

    def __init__(self, options: SweOptions):
        self._options = options
        self._splits = dict(options.splits) or {
            "train": SplitOptions(share=(0.0, 0.9)),
            "heldout": SplitOptions(share=(0.9, 1.0)),
        }
        mistakes = option_mistakes(options, self._splits)
        if mistakes:
            raise ConfigError("env.options", mistakes)
        self._files = {
            name: [str(folder(path)) for path in split.rows or options.rows] for name, split in self._splits.items()
        }
        self._cache = TreeCache(
            folder(options.cache),
            mirrors=folder(options.mirrors),
            venvs=folder(options.venvs),
            rootfs=folder(options.rootfs),
            max_bytes=int(options.cache_gib * (1 << 30)),
        )
        self._rules = rules(options)
        self._preparer = Preparer(self._cache, self._rules.limits)
        self._hints: dict[str, str] = {}  # by instance id

    @property
    def max_steps(self) -> int:
        """The largest of all splits; a task's own limit is in its payload."""
        return max(split.max_steps or self._options.max_steps for split in self._splits.values())

    @property
    def longest_step_s(self) -> float:
        """A command that takes all its time, and then the tests."""
        return self._options.command_s + self._options.tests_s + _OVERHEAD_S

    def split_names(self) -> Sequence[str]:
        return tuple(self._splits)

    def split(self, name: str) -> Split:
        """The tasks of one split. Raises ConfigError: no such split, or its rows cannot be had."""
        if name not in self._splits:
            raise ConfigError("env", [f"there is no split {name!r}; there are: {', '.join(self._splits)}."])
        steps = self._splits[name].max_steps or self._options.max_steps
        tasks = [
            Task(id=instance.id, seed=0, payload={"kind": instance.repo, "max_steps": steps})
            for instance in self._selected[name]
        ]
        return Split(name=name, tasks=tasks)

    def make_env(self) -> SweEnv:
        return SweEnv(self, self._backend, self._rules)

    def expert_actions(self, task: Task) -> Sequence[str] | None:
        """The known repair by `edit` and `submit`.

        None where nobody knows one, it is not of text, or the files that it edits lie in a container image.
        """
        instance = self._instance(task)
        if not instance.patch:
            return None
        base = self._cache.base(instance)
        try:
            if base.image:
                return None
            gold = self._cache.gold(instance).files
            told = self._options.hint == "place" and self._options.expert == "looking"
            return gold_actions(base, gold, form=self._options.actions, way="told" if told else self._options.expert)
        finally:
            self._cache.release(instance)

    def prepare(self, tasks: Sequence[Task], report: Callable[[int, int], None]) -> None:
        """Makes trees and environments, and opens one sandbox, so that a machine that cannot is known now.

        Raises:
            SandboxFailure, SourceError: with the cure.
        """
        instances = [self._instance(task) for task in tasks]
        if self._options.reward == "study_ratio" and instances:
            junk = junk_worth(instances).values()
            warnings.warn(
                f"reward study_ratio pays {statistics.median(junk):.3f} (median; most {max(junk):.3f}) for a comment "
                "that mends nothing; it is for comparison with the study only",
                stacklevel=2,
            )
        for done, task in enumerate(tasks):
            report(done, len(tasks))
            instance, prepared = self.take(task)
            try:
                if done == 0:
                    self._try_out(prepared)
            finally:
                self.give_back(instance)
        report(len(tasks), len(tasks))

    def _try_out(self, prepared: Prepared) -> None:
        """Runs the smallest command that starts others, as episodes will, and writes where they will write."""
        if self._rules.quarantine is not None:
            must_take_files(self._rules.quarantine, "env.options.quarantine")
        sandbox = self._backend.open(prepared.base, self._rules.limits)
        try:
            result = sandbox.run("ls | cat", environment=prepared.environment)
        finally:
            sandbox.close()
        if result.exit_code != 0:
            how = f"ended with {result.exit_code if result.exit_code is not None else result.why}"
            said = result.output[-200:].decode("utf-8", "replace").strip()
            raise EnvironmentFailure(
                f"in a sandbox `ls | cat` {how}: {said or 'no output'}; give more by env.options.limits and "
                "env.options.command_s"
            )

    def own_returns(self, tasks: Sequence[Task]) -> OwnReturns:
        """A solved task is worth 1, whatever the reward; others less."""
        instances = [self._instance(task) for task in tasks]
        least = -1.0 if self._options.reward == "normalized" else 0.0
        most = most_of_losing(self._options.reward, instances)
        return OwnReturns(win_least=1.0, other_most=most, step_least=least)

    def warm_up(self) -> None:
        """Reads the rows and tries the backend while nobody waits."""
        _ = self._by_id, self._backend

    def probes(self) -> Sequence[Probe]:
        """What the sandbox must be able to do on this machine, tried."""
        return self._backend.probe()

    def take(self, task: Task) -> tuple[SweInstance, Prepared]:
        """See `env.Workshop`."""
        instance = self._instance(task)
        return instance, self._preparer.prepare(self._backend, instance)

    def hint(self, instance: SweInstance) -> str:
        """See `env.Workshop`."""
        if self._options.hint == "none" or not instance.patch:
            return ""
        if instance.id not in self._hints:
            base = self._cache.base(instance)
            try:
                self._hints[instance.id] = "" if base.image else hint(base, self._cache.gold(instance).files)
            finally:
                self._cache.release(instance)
        return self._hints[instance.id]

    def give_back(self, instance: SweInstance) -> None:
        self._cache.release(instance)

    @cached_property
    def _backend(self) -> Backend:
        images = self._cache.needs_containers(self._by_id.values())
        return choose(self._options.backend, unsafe=self._options.unsafe, images=images)

    @cached_property
    def _selected(self) -> dict[str, list[SweInstance]]:
        """The instances of every split. Raises ConfigError where one that is trained on is tested on too."""
        files = self._read_files()
        found: dict[str, list[SweInstance]] = {}
        mistakes: list[str] = []
        for name, split in self._splits.items():
            try:
                found[name] = _selection(
                    f"env.options.splits.{name}", split, [files[path] for path in self._files[name]]
                )
            except ConfigError as err:
                mistakes += err.mistakes
        if mistakes:
            raise ConfigError("env.options", mistakes)
        trained = {instance.id for instance in found.get("train", ())}
        for name, instances in found.items():
            shared = [instance.id for instance in instances if name != "train" and instance.id in trained]
            if shared:
                raise ConfigError(
                    "env.options",
                    [
                        f"env.options.splits.train and env.options.splits.{name} share {len(shared)} tasks, such as "
                        f"{shared[0]}; give them other shares, repos or kinds."
                    ],
                )
        return found

    def _read_files(self) -> dict[str, list[SweInstance]]:
        """The rows of every file that a split names. Raises ConfigError: what is wrong with any of them."""
        files: dict[str, list[SweInstance]] = {}
        mistakes: list[str] = []
        for path in dict.fromkeys(path for paths in self._files.values() for path in paths):
            try:
                files[path] = [self._as_played(i) for i in load_instances(path, source=self._options.source)]
            except ConfigError as err:
                mistakes += [f"{path}: {mistake}" for mistake in err.mistakes]
        if mistakes:
            raise ConfigError("the files of env.options.rows", mistakes)
        return files

    @cached_property
    def _by_id(self) -> dict[str, SweInstance]:
        return {instance.id: instance for instances in self._selected.values() for instance in instances}

    def _instance(self, task: Task) -> SweInstance:
        return self._by_id[task.id]

    def _as_played(self, instance: SweInstance) -> SweInstance:
        visible = self._options.tests == "visible" and instance.hidden_files
        return dataclasses.replace(instance, hidden_files=()) if visible else instance


def _selection(where: str, split: SplitOptions, files: Sequence[Sequence[SweInstance]]) -> list[SweInstance]:
    rows = {instance.id: instance for instances in files for instance in instances}
    try:
        chosen = select(
            list(rows.values()),
            repos=split.repos,
            without_repos=split.without_repos,
            kinds=split.kinds,
            without_kinds=split.without_kinds,
            share=split.share,
        )
        if not chosen:
            raise ConfigError(where, [f"{where}: none of {len(rows)} rows passes its filters; widen them."])
        return mix(chosen, weights=split.weights, count=split.count, seed=split.seed, where=where)
    except ConfigError as err:
        if err.source.startswith("env.options"):
            raise
        raise ConfigError("env.options", [f"{where}: {mistake}" for mistake in err.mistakes]) from err


def make(options: Mapping[str, Any]) -> SweEnvironment:
    """The environment behind `env.factory: jaxmtrl.envs.swe:make`; for `options` see `SweOptions`."""
    return SweEnvironment(read_options(SweOptions, options))
