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
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from jaxmtrl.envs.base import OwnReturns, Split
from jaxmtrl.envs.options import read_options
from jaxmtrl.envs.swe.env import Rules, SweEnv
from jaxmtrl.envs.swe.expert import gold_actions
from jaxmtrl.envs.swe.grade import Prepared
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.loading import load_instances
from jaxmtrl.envs.swe.prompt import Wording
from jaxmtrl.envs.swe.rewards import junk_worth, most_of_losing
from jaxmtrl.envs.swe.sandbox.api import WORKDIR, Backend, Limits
from jaxmtrl.envs.swe.sandbox.owner import sandbox_user
from jaxmtrl.envs.swe.selection import mix, select
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.errors import ConfigError
from jaxmtrl.types import Task

_MIB = 1 << 20
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SplitOptions:
    rows: Annotated[
        list[str], Field(description="files or folders of rows, in place of env.options.rows; empty: those")
    ] = Field(default_factory=list)
    repos: Annotated[
        list[str], Field(description="only these, as owner/name or either part where that is unique; empty: all")
    ] = Field(default_factory=list)
    without_repos: Annotated[list[str], Field(description="none of these")] = Field(default_factory=list)
    kinds: Annotated[list[str], Field(description="only faults of these kinds; empty: all")] = Field(
        default_factory=list
    )
    without_kinds: Annotated[list[str], Field(description="no faults of these kinds")] = Field(default_factory=list)
    share: Annotated[
        tuple[Share, Share],
        Field(description="[low, high): those whose id, as a number drawn from it in 0..1, lies there"),
    ] = (0.0, 1.0)
    count: Annotated[int | None, Field(ge=1, description="tasks; none: all that there are")] = None
    seed: Annotated[int, Field(ge=0, description="of the order, and so of which tasks a count takes")] = 0
    weights: Annotated[
        dict[str, float],
        Field(
            description="a mix by repository: name to its part of the tasks; others is shared evenly by those that are "
            "not named; empty: as many of each as come"
        ),
    ] = Field(default_factory=dict)
    max_steps: Annotated[int | None, Field(ge=1, description="turns of an episode; none: as env.options")] = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class LimitOptions:
    processes: Annotated[int, Field(ge=4, description="at once, of an episode")] = 128
    address_space_mib: Annotated[int, Field(ge=64, description="MiB of one process")] = 4096
    resident_mib: Annotated[int, Field(ge=64, description="MiB of all processes of an episode together")] = 3072
    file_size_mib: Annotated[int, Field(ge=1, description="MiB of one file")] = 256
    workspace_mib: Annotated[int, Field(ge=1, description="MiB of all that an episode writes in its workspace")] = 1024
    temporary_mib: Annotated[int, Field(ge=1, description="MiB of /tmp, and as much of /dev/shm")] = 256
    output_mib: Annotated[int, Field(ge=1, description="MiB; a command that writes more is killed")] = 64


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ObservationOptions:
    head: Annotated[int, Field(ge=100, description="characters shown of an output's beginning")] = 5000
    tail: Annotated[int, Field(ge=0, description="characters shown of an output's end")] = 5000
    tokens: Annotated[
        int, Field(ge=0, description="about as many tokens of an output at most, counted by rule; 0: no such limit")
    ] = 0


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SweOptions:
    rows: Annotated[list[str], Field(description="files (.jsonl, .json, .parquet) or folders of rows")] = Field(
        default_factory=list
    )
    source: Annotated[
        Literal["", "swe-gym", "swe-bench", "swe-smith", "injected", "release"],
        Field(description="where rows come from that do not say it themselves"),
    ] = ""
    splits: Annotated[
        dict[str, SplitOptions],
        Field(description="by name; empty: train, nine tenths of all rows, and heldout, the rest"),
    ] = Field(default_factory=dict)
    cache: Annotated[
        str | None, Field(min_length=1, description="folder of trees and environments; none: the user's cache")
    ] = None
    cache_gib: Annotated[float, Field(gt=0, description="GiB; what was not used for longest goes beyond it")] = 20.0
    mirrors: Annotated[
        str | None, Field(min_length=1, description="folder of <owner>__<repo>.git, for rows of repositories")
    ] = None
    venvs: Annotated[
        str | None,
        Field(min_length=1, description="folder of <owner>__<repo>__<version> environments, for rows of repositories"),
    ] = None
    backend: Annotated[
        Literal["auto", "bwrap", "podman", "docker", "local"],
        Field(description="where commands run; auto: the first of bwrap, podman, docker that is installed"),
    ] = "auto"
    unsafe: Annotated[
        bool, Field(description="allow backend local, which runs the policy's commands with all your rights")
    ] = False
    max_steps: Annotated[int, Field(ge=1, description="turns of an episode, the last of which is graded")] = 20
    command_s: Annotated[float, Field(gt=0, description="seconds that a command may take")] = 60.0
    commands_s: Annotated[
        float, Field(gt=0, description="seconds of all commands of an episode; then it is graded as it stands")
    ] = 900.0
    tests_s: Annotated[
        float, Field(gt=0, description="seconds that the tests may take; less than rollout.step_timeout_s")
    ] = 300.0
    limits: Annotated[LimitOptions, Field(description="of one episode's sandbox")] = Field(default_factory=LimitOptions)
    reward: Annotated[
        Literal["binary", "f2p_gated", "normalized", "study_ratio"],
        Field(
            description="binary: 1 where solved; f2p_gated: share of the failing tests that pass, 0 where another "
            "broke; normalized: (mended - broken) / failing, -1..1; study_ratio: share of all tests, as in the study, "
            "which pays for changes that do nothing"
        ),
    ] = "f2p_gated"
    statement: Annotated[
        Literal["a", "b", "c"],
        Field(description="of rows that have several: a: which tests fail; b: how they do; c: what is wrong"),
    ] = "b"
    tests: Annotated[
        Literal["hidden", "visible"], Field(description="whether the workspace has the tests that decide")
    ] = "hidden"
    actions: Annotated[
        Literal["fenced", "xml_function"],
        Field(description="an answer's form: one ```bash block, or <function=bash><parameter=command>"),
    ] = "fenced"
    instructions: Annotated[
        Literal["full", "short"], Field(description="what the first observation says of the rules")
    ] = "full"
    format_limit: Annotated[
        int, Field(ge=0, description="answers in a row that cannot be read, after which an episode ends; 0: no limit")
    ] = 5
    observation: Annotated[ObservationOptions, Field(description="how much of an output is shown")] = Field(
        default_factory=ObservationOptions
    )
    expert: Annotated[
        Literal["looking", "direct"],
        Field(description="demonstrations edit as the repair does; looking: and show the lines beforehand"),
    ] = "looking"
    quarantine: Annotated[
        str, Field(description='folder of changes that look like a cheat, for you to look at; "": they are not kept')
    ] = ".cache/swe_quarantine"


class SweEnvironment:
    """Splits, experts and players; implements `envs.base.Environment` and `env.Workshop`."""

    def __init__(self, options: SweOptions):
        self._options = options
        self._splits = dict(options.splits) or {
            "train": SplitOptions(share=(0.0, 0.9)),
            "heldout": SplitOptions(share=(0.9, 1.0)),
        }
        mistakes = _mistakes(options, self._splits)
        if mistakes:
            raise ConfigError("env.options", mistakes)
        # Workers play in other folders.
        self._files = {
            name: [str(Path(path).absolute()) for path in split.rows or options.rows]
            for name, split in self._splits.items()
        }
        user = sandbox_user()
        self._cache = TreeCache(
            _folder(options.cache),
            mirrors=_folder(options.mirrors),
            venvs=_folder(options.venvs),
            max_bytes=int(options.cache_gib * (1 << 30)),
            owner=None if user is None else (user, user),
        )
        self._rules = _rules(options)

    @property
    def max_steps(self) -> int:
        """The largest of all splits; a task's own limit is in its payload."""
        return max(split.max_steps or self._options.max_steps for split in self._splits.values())

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
        """The known repair by `edit` and `submit`; None where nobody knows one, or it is not of text."""
        instance = self._instance(task)
        if not instance.patch:
            return None
        base = self._cache.base(instance)
        try:
            gold = self._cache.gold(instance).files
            return gold_actions(base, gold, form=self._options.actions, way=self._options.expert)
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
                    self._backend.open(prepared.base, self._rules.limits).close()
            finally:
                self.give_back(instance)
        report(len(tasks), len(tasks))

    def own_returns(self, tasks: Sequence[Task]) -> OwnReturns:
        """A solved task is worth 1, whatever the reward; others less."""
        instances = [self._instance(task) for task in tasks]
        least = -1.0 if self._options.reward == "normalized" else 0.0
        most = most_of_losing(self._options.reward, instances)
        return OwnReturns(win_least=1.0, other_most=most, step_least=least)

    def warm_up(self) -> None:
        """Reads the rows while nobody waits."""
        _ = self._by_id

    def take(self, task: Task) -> tuple[SweInstance, Prepared]:
        """See `env.Workshop`."""
        instance = self._instance(task)
        base = self._cache.base(instance)
        roots = [f"{WORKDIR}/{root}".rstrip("/.") for root in instance.extra.get("roots") or ("src", ".")]
        prepared = Prepared(
            base=base,
            tests=self._cache.tests(instance),
            roots=tuple(roots),
            baseline_s=float(instance.extra.get("baseline_s") or 0.0),
        )
        return instance, prepared

    def give_back(self, instance: SweInstance) -> None:
        self._cache.release(instance)

    @cached_property
    def _backend(self) -> Backend:
        return open_backend(self._options.backend, unsafe=self._options.unsafe)

    @cached_property
    def _selected(self) -> dict[str, list[SweInstance]]:
        """The instances of every split. Raises ConfigError where one that is trained on is tested on too."""
        files: dict[str, list[SweInstance]] = {}
        found: dict[str, list[SweInstance]] = {}
        for name, split in self._splits.items():
            for path in self._files[name]:
                if path not in files:
                    files[path] = [self._as_played(i) for i in load_instances(path, source=self._options.source)]
            found[name] = _selection(f"env.options.splits.{name}", split, [files[path] for path in self._files[name]])
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

    @cached_property
    def _by_id(self) -> dict[str, SweInstance]:
        return {instance.id: instance for instances in self._selected.values() for instance in instances}

    def _instance(self, task: Task) -> SweInstance:
        return self._by_id[task.id]

    def _as_played(self, instance: SweInstance) -> SweInstance:
        visible = self._options.tests == "visible" and instance.hidden_files
        return dataclasses.replace(instance, hidden_files=()) if visible else instance


def open_backend(name: str, *, unsafe: bool) -> Backend:
    """The backend of a config. Raises SandboxFailure where it cannot be had; never falls back to no sandbox."""
    from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap

    return Bubblewrap()


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


def _rules(options: SweOptions) -> Rules:
    limits = options.limits
    return Rules(
        wording=Wording(
            form=options.actions,
            level=options.statement,
            instructions=options.instructions,
            tests_hidden=options.tests == "hidden",
            command_s=options.command_s,
        ),
        limits=Limits(
            command_s=options.command_s,
            processes=limits.processes,
            address_space=limits.address_space_mib * _MIB,
            resident=limits.resident_mib * _MIB,
            file_size=limits.file_size_mib * _MIB,
            workspace=limits.workspace_mib * _MIB,
            temporary=limits.temporary_mib * _MIB,
            output_killed=limits.output_mib * _MIB,
        ),
        tests_s=options.tests_s,
        commands_s=options.commands_s,
        format_limit=options.format_limit,
        head=options.observation.head,
        tail=options.observation.tail,
        tokens=options.observation.tokens,
        reward=options.reward,
        quarantine=_folder(options.quarantine),
    )


def _mistakes(options: SweOptions, splits: Mapping[str, SplitOptions]) -> list[str]:
    """Every rule that no single field can state."""
    mistakes = [
        f"env.options.splits.{name} has no rows; write env.options.rows, or its own."
        for name, split in splits.items()
        if not (split.rows or options.rows)
    ]
    if options.splits == {} and not options.rows:
        mistakes = ["env.options.rows is empty: name a file of rows, such as one that scripts/make_swe_tasks.py wrote."]
    mistakes += [
        f"env.options.splits.{name}.share must be [low, high] with low < high, got {list(split.share)}."
        for name, split in splits.items()
        if not split.share[0] < split.share[1]
    ]
    if options.backend == "local" and not options.unsafe:
        mistakes.append(
            "env.options.backend: local runs whatever a policy writes with your rights, network and files; set "
            "env.options.unsafe to true if that is what you want, or backend to auto."
        )
    return mistakes


def _folder(path: str | None) -> Path | None:
    return Path(path).absolute() if path else None


def make(options: Mapping[str, Any]) -> SweEnvironment:
    """The environment behind `env.factory: jaxmtrl.envs.swe:make`; for `options` see `SweOptions`."""
    return SweEnvironment(read_options(SweOptions, options))
