"""From a study file to a valid `Study`, or to one error that lists every mistake, those of each cell's config as well.

Whether a config can be trained is looked at as far as that goes without jax: its fields, its rules, its environment's
options and splits.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import Config
from jaxmtrl.config.yaml_format import YamlError, read_yaml
from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import ConfigError, JaxmtrlError
from jaxmtrl.fields import SettingInfo, describe, dotted, lookup, nearest, show, siblings
from jaxmtrl.stages import EVALUATED
from jaxmtrl.studies.grid import NAME_FORM, OWN_FIELDS, PAPER, Claim, Run, Smoke, Study, runs_of
from jaxmtrl.studies.published import TABLES, all_references, published_value
from jaxmtrl.tasks import tasks_of

LEAST_TASKS = 100  # of every split that a study evaluates; smoke grids excepted
_STUDY = TypeAdapter(Study)
_ROOT = "study"  # of the paths in `_known`; a user's paths do not have it


def read_study(path: str | os.PathLike[str]) -> tuple[Study, Path]:
    """Reads and validates a study file.

    Returns:
        The study, and the path of its base config.

    Raises:
        ConfigError: lists all mistakes: of the file, of its fields, and between them.
    """
    path = Path(path)
    try:
        data, mistakes = read_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = nearest(path.stem, [other.stem for other in path.parent.glob("*.yaml")])
        cure = f"did you mean {path.with_name(near)}.yaml?" if near else "give the path of a study, as studies/*.yaml"
        raise ConfigError(str(path), [f"file not found; {cure}"]) from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(str(path), [f"cannot be read as a text file ({err}); give a study file"]) from err
    except YamlError as err:
        raise ConfigError(str(path), [str(err)]) from err
    if not isinstance(data, dict):
        raise ConfigError(str(path), [f"got {show(data)}, wanted a mapping with name, about, base, cells and so on"])
    try:
        study = _STUDY.validate_json(json.dumps(data), strict=True)
    except ValidationError as err:
        known = _known()
        raise ConfigError(str(path), mistakes + [_sentence(mistake, known) for mistake in err.errors()]) from err
    base = Path(os.path.normpath(path.parent / study.base))
    mistakes += [*_between_fields(study), *([] if base.is_file() else [f"base: {base} is no file"])]
    if mistakes:
        raise ConfigError(str(path), mistakes)
    return study, base


def read_configs(study: Study, base: Path, root: Path, *, smoke: bool = False) -> dict[Run, Config]:
    """The valid config of every run of the grid.

    Args:
        base: the base config.
        root: folder that gets the study's run folders.
        smoke: of the smoke grid instead, which may evaluate few tasks.

    Raises:
        ConfigError: lists the mistakes of all cells, and splits with too few tasks for a study.
    """
    runs = runs_of(study, base, root, smoke=smoke)
    first = {run.cell: run for run in reversed(runs)}  # seeds differ in nothing that could be wrong
    configs: dict[str, Config] = {}
    found: dict[str, list[str]] = {}  # mistake -> cells
    for cell, run in reversed(first.items()):
        try:
            configs[cell] = load_config(run.config, run.overrides)
            least = (1 if smoke else LEAST_TASKS) if study.grid[cell].shown else 0
            mistakes = list(_of_evaluation(configs[cell], least))
        except ConfigError as err:
            mistakes = list(err.mistakes)
        except JaxmtrlError as err:
            mistakes = [str(err)]
        for mistake in mistakes:
            found.setdefault(mistake, []).append(cell)
    listed = [
        f"{'every cell' if len(cells) == len(first) else ', '.join(cells)}: {text}" for text, cells in found.items()
    ]
    listed = listed or ([] if smoke else list(_of_references(study, configs)))
    if listed:
        raise ConfigError(f"the cells of {study.name}", listed)
    return {run: _with_seed(configs[run.cell], run) for run in runs}


def _with_seed(config: Config, run: Run) -> Config:
    """A cell's config as this run's overrides would make it."""
    section = replace(config.run, name=run.name, seed=run.seed)
    model = replace(config.model, from_pretrained=str(run.exported)) if run.exported else config.model
    return replace(config, run=section, model=model)


def _of_evaluation(config: Config, least: int) -> Iterator[str]:
    """What is wrong with a config's splits: fewer than `least` tasks are, and none to evaluate where `least` > 0."""
    splits = config.evaluation.splits
    if least and not splits:
        yield "evaluation.splits: names none, so there would be nothing to compare"
    for name, count in splits.items():
        if count < least:
            yield f"evaluation.splits.{name}: got {count}, wanted >= {least} tasks in a study"
    environment = load_environment(config.env.factory, config.env.options)
    for name, count in splits.items():
        try:
            tasks_of(environment, name, count, f"evaluation.splits.{name}")
        except ConfigError as err:
            yield from err.mistakes


def _between_fields(study: Study) -> Iterator[str]:
    """Every rule that no single field can state."""
    if bool(study.cells) == bool(study.axes):
        yield f"cells and axes: got {'both' if study.cells else 'neither'}, wanted one of them"
    for place, seeds in (("seeds", study.seeds), ("smoke.seeds", study.smoke.seeds)):
        if len(set(seeds)) < len(seeds):
            yield f"{place}: {seeds} names one twice; give each once"
    yield from _of_cells(study)
    grid = study.grid
    for index, name in enumerate(study.smoke.cells):
        if name not in grid:
            yield f"smoke.cells[{index}]: {name!r} is no cell; {_near(name, list(grid))}"
    for index, name in enumerate(study.sources):
        if name not in TABLES:
            yield f"sources[{index}]: {name!r} is no table; known are {', '.join(TABLES)}"
    for ours, theirs in study.published.items():
        if published_value(theirs) is None:
            yield f"published.{ours}: there is no number {theirs!r}; {_near(theirs, all_references())}"
    for index, claim in enumerate(study.claims):
        pair = published_pair(study, claim)
        if pair and pair[0] < pair[1]:
            yield (
                f"claims[{index}]: the source has {pair[0]:g} for {claim.higher} and {pair[1]:g} for {claim.lower}; "
                "swap higher and lower, or say with `by` who claims it"
            )


def _of_cells(study: Study) -> Iterator[str]:
    """Cells that would not be trained as they are written."""
    counted = Counter(name for name, _ in study.combined)
    for name in (name for name, count in counted.items() if count > 1):
        yield f"axes: two combinations of levels are named {name}; rename a level"
    before: list[str] = []
    said: dict[str, str] = {}  # what a cell says -> the first that says so
    for name, cell in study.grid.items():
        if cell.after and cell.after not in before:
            yield f"cells.{name}.after: {cell.after!r} {_why_not_before(cell.after, name, study)}"
        if cell.after and "model.from_pretrained" in cell.set:
            yield (
                f"cells.{name}.set: got model.from_pretrained with after {cell.after!r}, and a policy begins with one "
                "of them; remove the other"
            )
        says = json.dumps([cell.set, cell.after, cell.policy if cell.after else "", cell.shown], sort_keys=True)
        if says in said:
            yield f"cells.{name}: says the same as {said[says]}, and would be trained alike; change or remove one"
        said.setdefault(says, name)
        before.append(name)
    layers = [("set", study.set), ("smoke.set", study.smoke.set)]
    layers += [(f"cells.{name}.set", cell.set) for name, cell in study.cells.items()]
    layers += [(f"axes.{axis}.{level}", its) for axis, levels in study.axes.items() for level, its in levels.items()]
    for place, fields in layers:
        for path in fields:
            if path.startswith(OWN_FIELDS):
                yield f"{place}: got {path}, which a study gives to each of its runs; remove it (seeds: has them)"


def _why_not_before(after: str, name: str, study: Study) -> str:
    """Why a cell cannot begin with another's policy."""
    if after == name:
        return "is the cell itself; name one before it"
    if after in study.grid:
        return "comes later; put it first"
    return f"is no cell; {_near(after, list(study.grid))}"


def published_pair(study: Study, claim: Claim) -> tuple[float, float] | None:
    """The source's numbers for the two sides of one of its own claims; None if it has none."""
    if claim.by != PAPER:
        return None
    values = [published_value(study.published.get(side, "")) for side in (claim.higher, claim.lower)]
    return None if values[0] is None or values[1] is None else (values[0], values[1])


def _of_references(study: Study, configs: Mapping[str, Config]) -> Iterator[str]:
    """References to figures that no run of the study will make, or that are not shown."""
    known = [
        f"{cell}/{split}/{policy}"
        for cell, config in configs.items()
        if study.grid[cell].shown
        for split in config.evaluation.splits
        for policy in EVALUATED
    ]
    places = [(f"published.{ours}", ours) for ours in study.published]
    for index, claim in enumerate(study.claims):
        places += [(f"claims[{index}].higher", claim.higher), (f"claims[{index}].lower", claim.lower)]
    for place, reference in places:
        if reference not in known:
            yield f"{place}: {reference!r} is no cell/split/policy of this study; {_near(reference, known)}"


def _near(name: str, names: list[str]) -> str:
    close = nearest(name, names)
    return f"did you mean {close}?" if close else f"known are {', '.join(names[:12]) or 'none'}"


def _known() -> dict[str, SettingInfo]:
    inner = describe(Smoke, f"{_ROOT}.smoke") | describe(Claim, f"{_ROOT}.claims.NAME")
    return describe(Study, _ROOT) | inner


def _sentence(mistake: Mapping[str, Any], known: Mapping[str, SettingInfo]) -> str:
    """One line for one mistake that pydantic found."""
    loc = tuple(part for part in mistake["loc"] if part != "[key]")
    place, rooted = dotted(loc), (_ROOT, *loc)
    if mistake["type"] == "unexpected_keyword_argument":
        names = siblings(known, rooted)
        return f"{place}: unknown field; {_near(str(loc[-1]), names)}"
    info = lookup(known, rooted)
    if info is None:
        return f"{place}: {mistake['msg']}, got {show(mistake['input'])}"
    if "[key]" in mistake["loc"]:
        return f"{place}: got {show(str(loc[-1]))} for a name, wanted one {NAME_FORM}"
    return info.mistake(place, mistake["input"], missing=mistake["type"] == "missing")
