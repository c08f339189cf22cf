"""From a study file to a valid `Study`, or to one error that lists every mistake, those of each cell's config as well.

Whether a config can be trained is looked at as far as that goes without jax: its fields, its rules, its environment's
options and splits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
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
from jaxmtrl.studies.grid import Claim, Run, Smoke, Study, runs_of
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
    except (OSError, UnicodeDecodeError, YamlError) as err:
        raise ConfigError(str(path), [str(err)]) from err
    if not isinstance(data, dict):
        raise ConfigError(str(path), [f"got {show(data)}, wanted a mapping with name, about, base, cells and so on"])
    try:
        study = _STUDY.validate_json(json.dumps(data), strict=True)
    except ValidationError as err:
        known = _known()
        raise ConfigError(str(path), mistakes + [_sentence(mistake, known) for mistake in err.errors()]) from err
    base = path.parent / study.base
    mistakes += [*_between_fields(study), *([] if base.is_file() else [f"base: {base} is no file"])]
    if mistakes:
        raise ConfigError(str(path), mistakes)
    return study, base


def read_configs(study: Study, base: Path, root: Path, *, smoke: bool = False) -> dict[Run, Config]:
    """The valid config of every run of the grid.

    Raises:
        ConfigError: lists the mistakes of all cells, and splits with too few tasks for a study.
    """
    configs: dict[Run, Config] = {}
    found: dict[str, list[str]] = {}  # mistake -> cells
    for run in runs_of(study, base, root, smoke=smoke):
        try:
            configs[run] = load_config(run.config, run.overrides)
            mistakes = (
                []
                if run.cell in {other.cell for other in configs if other is not run}
                else _of_environment(configs[run], LEAST_TASKS if not smoke else 1)
            )
        except ConfigError as err:
            mistakes = list(err.mistakes)
        except JaxmtrlError as err:
            mistakes = [str(err)]
        for mistake in mistakes:
            cells = found.setdefault(mistake, [])
            cells += [run.cell] if run.cell not in cells else []
    everywhere = {run.cell for run in runs_of(study, base, root, smoke=smoke)}
    listed = [
        f"{'every cell' if set(cells) == everywhere else ', '.join(cells)}: {text}" for text, cells in found.items()
    ]
    if not listed and not smoke:
        listed = list(_of_references(study, configs))
    if listed:
        raise ConfigError(f"the cells of {study.name}", listed)
    return configs


def _of_environment(config: Config, least: int) -> Iterator[str] | list[str]:
    """What is wrong with the options and splits of a config's environment; splits of fewer than `least` tasks are."""
    if not config.evaluation.splits:
        return ["evaluation.splits: names none, so there would be nothing to compare"]
    mistakes = [
        f"evaluation.splits.{name}: got {count}, wanted >= {least} tasks in a study"
        for name, count in config.evaluation.splits.items()
        if count < least
    ]
    environment = load_environment(config.env.factory, config.env.options)
    for name, count in {**config.evaluation.splits, config.env.train_split: None}.items():
        field = "env.train_split" if count is None else f"evaluation.splits.{name}"
        try:
            tasks_of(environment, name, count, field)
        except ConfigError as err:
            mistakes += err.mistakes
    return mistakes


def _between_fields(study: Study) -> Iterator[str]:
    """Every rule that no single field can state."""
    if bool(study.cells) == bool(study.axes):
        yield f"cells and axes: got {'both' if study.cells else 'neither'}, wanted one of them"
    if len(set(study.seeds)) < len(study.seeds):
        yield f"seeds: {study.seeds} names one twice; give each once"
    grid, seen = study.grid, []
    for name, cell in grid.items():
        if cell.after and cell.after not in seen:
            why = "comes later; put it first" if cell.after in grid else f"is no cell; {_near(cell.after, seen)}"
            yield f"cells.{name}.after: {cell.after!r} {why}"
        seen.append(name)
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


def published_pair(study: Study, claim: Claim) -> tuple[float, float] | None:
    """The source's numbers for the two sides of one of its own claims; None if it has none."""
    if claim.by != field_default(Claim, "by"):
        return None
    values = [published_value(study.published.get(side, "")) for side in (claim.higher, claim.lower)]
    return None if values[0] is None or values[1] is None else (values[0], values[1])


def field_default(kind: Any, name: str) -> Any:
    """The default of one field of a settings class."""
    return kind.__pydantic_fields__[name].default


def _of_references(study: Study, configs: Mapping[Run, Config]) -> Iterator[str]:
    """References to figures that no run of the study will make."""
    known = [
        f"{run.cell}/{split}/{policy}"
        for run, config in configs.items()
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
    return f"did you mean {close}?" if close else f"known are {', '.join(names[:12])}"


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
        return f"{place}: is no name {'of letters, digits, dots, dashes and underscores'}"
    return info.mistake(place, mistake["input"], missing=mistake["type"] == "missing")
