"""What the runs of a study have come to, and whether the folders are theirs at all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import Config
from jaxmtrl.errors import JaxmtrlError, ResumeError
from jaxmtrl.fields import dotted, show
from jaxmtrl.run_folder import CONFIG_FILE, RESULT_FILE, RunFolder
from jaxmtrl.studies.grid import Run

_Share = Annotated[float, Field(ge=0.0, le=1.0)]
_Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class _Played:
    """What the pages read of a policy on a split; a mean over no episode is null."""

    success: _Share | None
    n: Annotated[int, Field(ge=0)]
    failed: Annotated[int, Field(ge=0)]
    turns: _Amount | None
    invalid_action_rate: _Share | None


@dataclass(frozen=True, kw_only=True)
class _Result:
    """What the pages read of a result.json."""

    splits: dict[str, dict[str, _Played]]
    seed: int
    model_params: Annotated[int, Field(ge=0)]
    wall_s: _Amount


_RESULT = TypeAdapter(_Result)


def result_of(run: Run, config: Config) -> dict[str, Any] | None:
    """What a run's result.json holds; None if it has not ended.

    Raises:
        ResumeError: the folder was trained with another config, is being trained right now, or its weights came from
            a run that has been trained anew.
        JaxmtrlError: result.json cannot be read.
    """
    path = run.folder / RESULT_FILE
    if not path.exists():
        return None
    RunFolder.open(_as_resolved(config, run.folder)).close()  # refuses what is not this run's
    if run.exported and run.before and run.exported.exists():
        begun = run.before / RESULT_FILE
        if begun.exists() and begun.stat().st_mtime > run.exported.stat().st_mtime:
            raise ResumeError(
                f"{run.folder} began with {run.exported}, which is older than {begun}; remove both folders, and the "
                "same command makes them again."
            )
    try:
        text = path.read_text(encoding="utf-8")
        known = _RESULT.validate_json(text, strict=True)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        place = f"{dotted(first['loc'])}: " if first["loc"] else ""
        raise _unreadable(path, f"{place}{first['msg']}, got {show(first['input'])}") from err
    except (OSError, UnicodeDecodeError) as err:
        raise _unreadable(path, str(err)) from err
    if known.seed != run.seed:
        raise _unreadable(path, f"seed: got {known.seed}, wanted {run.seed}, as the folder is named")
    return json.loads(text)


def _unreadable(path: Path, why: str) -> JaxmtrlError:
    return JaxmtrlError(
        f"{path} cannot be read as a run's result ({why}); remove this file, and the same command writes it anew from "
        "the run's last checkpoint, or its folder, to train anew."
    )


def results_of(configs: Mapping[Run, Config]) -> dict[Run, dict[str, Any]]:
    """The results of all runs that have ended.

    Raises:
        ResumeError: lists every folder that belongs to something else.
    """
    results, wrong = {}, []
    for run, config in configs.items():
        try:
            result = result_of(run, config)
        except JaxmtrlError as err:
            wrong.append(str(err))
            continue
        if result is not None:
            results[run] = result
    if wrong:
        raise ResumeError("\n".join(wrong))
    return results


def _as_resolved(config: Config, folder: Path) -> Config:
    """The config with what its published model decided of sizes and text, as the run folder has noted it."""
    if not config.model.from_pretrained or not (folder / CONFIG_FILE).exists():
        return config
    noted = load_config(folder / CONFIG_FILE)
    if noted.model.from_pretrained != config.model.from_pretrained:
        return config
    return dataclasses.replace(config, model=noted.model, text=noted.text)
