"""What a study file may say, and the runs that its grid stands for.

A grid is a list of cells, or axes whose levels are combined; a cell is a few fields of the config. Every cell is
trained once a seed, and each of these runs is one ordinary run in a folder of its own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from jaxmtrl.config.sections import TextSection
from jaxmtrl.config.setting import CONFIG, NonNegative, setting

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NAME_FORM = "of letters, digits, '.', '_' and '-' that begins with a letter or a digit"
Name = Annotated[str, setting("a name", form=NAME_FORM, pattern=_NAME)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]  # as run.seed
PAPER = "the paper's numbers"  # who claims what nobody else is named for
Overrides = dict[str, Any]
OWN_FIELDS = ("run.dir", "run.name", "run.seed")  # that a study gives to its runs
# The exported folder says how large its vocabulary is, and agrees with the default alone.
_TEXT_OF_EXPORTED = {"text.tokenizer": "pretrained", "text.vocab_size": TextSection().vocab_size}


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Cell:
    set: Annotated[Overrides, setting("fields of the config by dotted path, as rl.iterations: 40")] = Field(
        default_factory=dict
    )
    after: Annotated[str, setting('cell whose policy, of the same seed, this one begins with; "" begins anew')] = ""
    policy: Annotated[Literal["pretrain", "sft", "rl"], setting("which policy of the cell before")] = "rl"
    shown: Annotated[bool, setting("false keeps a cell that others begin with out of table and picture")] = True


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Claim:
    says: Annotated[str, setting("what is claimed, as a sentence", min_length=1)]
    higher: Annotated[str, setting("cell/split/policy that the claim puts above", min_length=1)]
    lower: Annotated[str, setting("cell/split/policy that it puts below", min_length=1)]
    by: Annotated[
        str, setting("who claims it; the published numbers are shown beside their own claims", min_length=1)
    ] = PAPER


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Smoke:
    cells: Annotated[list[str], setting("cells of the smoke grid, by name", min_length=1)]
    seeds: Annotated[list[Seed], setting("its seeds", min_length=1)] = Field(default_factory=lambda: [0])
    set: Annotated[Overrides, setting("fields that make its runs small, laid over those of base and cell")] = Field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Study:
    """A study file. Lists of cells and axes exclude each other."""

    name: Annotated[str, setting("name of the study and of its files", form=NAME_FORM, pattern=_NAME)]
    about: Annotated[str, setting("what is asked, a sentence or two", min_length=1)]
    base: Annotated[str, setting("config that every cell begins with, from the study file's folder", min_length=1)]
    set: Annotated[Overrides, setting("fields of the config that all cells share, by dotted path")] = Field(
        default_factory=dict
    )
    cells: Annotated[dict[Name, Cell], setting("cells by name, in the order of the table")] = Field(
        default_factory=dict
    )
    axes: Annotated[
        dict[Name, dict[Name, Overrides]],
        setting("axis to level to fields; cells are named by their levels with _ between"),
    ] = Field(default_factory=dict)
    seeds: Annotated[list[Seed], setting("seeds of every cell, at least 3", min_length=3)] = Field(
        default_factory=lambda: [0, 1, 2]
    )
    sources: Annotated[list[str], setting("tables of the source that this study stands beside, as T1")] = Field(
        default_factory=list
    )
    published: Annotated[dict[str, str], setting("cell/split/policy to the source's number, as T1/w2-o3-q4/PPO")] = (
        Field(default_factory=dict)
    )
    claims: Annotated[list[Claim], setting("whose direction is looked at")] = Field(default_factory=list)
    notes: Annotated[list[str], setting("what a reader should know, printed under the tables")] = Field(
        default_factory=list
    )
    minutes_per_run: Annotated[NonNegative, setting("expected time of one run, until one has been timed", unit="min")]
    minutes_before: Annotated[NonNegative, setting("expected time of building all games, once", unit="min")] = 0.0
    smoke: Annotated[Smoke, setting("a grid small enough for a test")]

    @property
    def grid(self) -> dict[str, Cell]:
        """Every cell by name, whichever way the grid is written."""
        return dict(self.combined) if self.axes else dict(self.cells)

    @property
    def combined(self) -> list[tuple[str, Cell]]:
        """The cells that axes stand for; only a mistaken file has two of one name."""
        found = []
        for levels in itertools.product(*(axis.items() for axis in self.axes.values())):
            fields: Overrides = {}
            for _, its in levels:
                fields |= its
            found.append(("_".join(name for name, _ in levels), Cell(set=fields)))
        return found


@plain_dataclass(frozen=True, kw_only=True)
class Run:
    """One cell with one seed."""

    cell: str
    seed: int
    folder: Path  # its run folder
    config: Path  # that it begins with
    overrides: tuple[str, ...]  # as on the command line of `jaxmtrl.train`, run.dir, run.name and run.seed among them
    before: Path | None = None  # run folder whose policy it begins with
    policy: str = ""  # which of that run's policies
    exported: Path | None = None  # where that policy is put

    @property
    def name(self) -> str:
        return self.folder.name


def run_name(cell: str, seed: int) -> str:
    """The run's name, and that of its folder."""
    return f"{cell}_s{seed}"


def runs_of(study: Study, base: Path, root: Path, *, smoke: bool = False) -> list[Run]:
    """Every run of a study, all cells of a seed before the next seed, so that what is there is always comparable.

    Args:
        base: the base config.
        root: folder that gets the study's run folders.
        smoke: the smoke grid instead, with the cells that its cells begin with.
    """
    grid = study.grid
    chosen = _with_predecessors(grid, study.smoke.cells) if smoke else list(grid)
    return [
        _run(study, grid[cell], cell, seed, base, root, study.smoke.set if smoke else {})
        for seed in (study.smoke.seeds if smoke else study.seeds)
        for cell in chosen
    ]


def _run(study: Study, cell: Cell, name: str, seed: int, base: Path, root: Path, last: Overrides) -> Run:
    folder = root / run_name(name, seed)
    own = {"run.dir": str(root), "run.name": folder.name, "run.seed": seed}
    fields = _laid_over(study.set, cell.set, last, own)
    before = root / run_name(cell.after, seed) if cell.after else None
    exported = root / "exported" / f"{before.name}_{cell.policy}" if before else None
    if exported:
        fields = _laid_over(fields, {"model.from_pretrained": str(exported), **_TEXT_OF_EXPORTED})
    return Run(
        cell=name,
        seed=seed,
        folder=folder,
        config=base,
        overrides=as_overrides(fields),
        before=before,
        policy=cell.policy if before else "",
        exported=exported,
    )


def _laid_over(*layers: Overrides) -> Overrides:
    """Layers of fields as one, in the order in which they are to be set: a later whole replaces an earlier part."""
    fields: Overrides = {}
    for path, value in itertools.chain.from_iterable(layer.items() for layer in layers):
        fields.pop(path, None)
        fields[path] = value
    return fields


def as_overrides(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields by dotted path as a command line has them; the values are JSON, which YAML reads back unchanged."""
    return tuple(f"{path}={json.dumps(value)}" for path, value in fields.items())


def _with_predecessors(grid: Mapping[str, Cell], names: list[str]) -> list[str]:
    """The named cells and all that they begin with, in the order of the grid."""
    wanted = set(names)
    for _ in grid:
        wanted |= {grid[name].after for name in wanted if name in grid and grid[name].after}
    return [name for name in grid if name in wanted]
