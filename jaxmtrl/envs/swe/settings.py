"""The options of software tasks, `env.options`, and what they come to in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from jaxmtrl.envs.swe.env import Rules
from jaxmtrl.envs.swe.prompt import Wording
from jaxmtrl.envs.swe.sandbox.api import Limits

_MIB = 1 << 20
Share = Annotated[float, Field(ge=0, le=1)]
Place = Annotated[str, Field(min_length=1)]
Mib = Annotated[int, Field(ge=1, le=1 << 24)]  # more than any machine has: beyond it programs take no number
MibOfPrograms = Annotated[int, Field(ge=64, le=1 << 24)]
Seconds = Annotated[float, Field(gt=0, le=1e7)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SplitOptions:
    rows: Annotated[
        list[Place], Field(description="files or folders of rows, in place of env.options.rows; empty: those")
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
    processes: Annotated[int, Field(ge=16, le=1 << 15, description="at once, of an episode")] = 128
    address_space_mib: Annotated[MibOfPrograms, Field(description="MiB of one process")] = 4096
    resident_mib: Annotated[MibOfPrograms, Field(description="MiB of all processes of an episode together")] = 3072
    file_size_mib: Annotated[Mib, Field(description="MiB of one file")] = 256
    workspace_mib: Annotated[Mib, Field(description="MiB of all that an episode writes in its workspace")] = 1024
    temporary_mib: Annotated[Mib, Field(description="MiB of /tmp, and as much of /dev/shm")] = 256
    output_mib: Annotated[Mib, Field(description="MiB; a command that writes more is killed")] = 64


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ObservationOptions:
    head: Annotated[int, Field(ge=100, description="characters shown of an output's beginning")] = 5000
    tail: Annotated[int, Field(ge=0, description="characters shown of an output's end")] = 5000
    tokens: Annotated[
        int, Field(ge=0, description="about as many tokens of an output at most, counted by rule; 0: no such limit")
    ] = 0


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SweOptions:
    rows: Annotated[list[Place], Field(description="files (.jsonl, .json, .parquet) or folders of rows")] = Field(
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
    cache_gib: Annotated[
        float, Field(gt=0, le=1e6, description="GiB; what was not used for longest goes beyond it")
    ] = 20.0
    mirrors: Annotated[
        str | None, Field(min_length=1, description="folder of <owner>__<repo>.git, for rows of repositories")
    ] = None
    venvs: Annotated[
        str | None,
        Field(min_length=1, description="folder of <owner>__<repo>__<version> environments, for rows of repositories"),
    ] = None
    rootfs: Annotated[
        str | None,
        Field(
            min_length=1,
            description="folder of exported container images, each named as its image without registry and tag; rows "
            "of images are played in those, by bwrap",
        ),
    ] = None
    backend: Annotated[
        Literal["auto", "bwrap", "podman", "docker", "local"],
        Field(
            description="where commands run; auto: bwrap, or where rows can be had in containers of images alone, the "
            "first of podman and docker that works"
        ),
    ] = "auto"
    unsafe: Annotated[
        bool, Field(description="allow backend local, which runs the policy's commands with all your rights")
    ] = False
    max_steps: Annotated[int, Field(ge=1, description="turns of an episode, the last of which is graded")] = 20
    command_s: Annotated[Seconds, Field(description="seconds that a command may take")] = 60.0
    commands_s: Annotated[
        Seconds,
        Field(description="seconds of all commands of an episode; then it is graded as it stands"),
    ] = 900.0
    tests_s: Annotated[
        Seconds, Field(description="seconds that the tests may take; less than rollout.step_timeout_s")
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
    hint: Annotated[
        Literal["none", "place"],
        Field(
            description="place: the first observation names some thirty lines of a function in which the known repair "
            "replaces something; for first lessons, as it gives half the work away"
        ),
    ] = "none"
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


def rules(options: SweOptions) -> Rules:
    """What holds for every episode."""
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
        quarantine=folder(options.quarantine),
    )


def option_mistakes(options: SweOptions, splits: Mapping[str, SplitOptions]) -> list[str]:
    """Every rule that no single field can state."""
    mistakes = [
        f"env.options.splits.{name} has no rows; write env.options.rows, or its own."
        for name, split in splits.items()
        if not (split.rows or options.rows)
    ]
    if options.splits == {} and not options.rows:
        mistakes = [
            "env.options.rows is empty: name a file of rows, such as one that python -m jaxmtrl.envs.swe.inject wrote."
        ]
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


def folder(path: str | None) -> Path | None:
    """An absolute path, since workers play in other folders; None for none."""
    return Path(path).absolute() if path else None
