"""What the runs of a study have come to, and whether the folders are theirs at all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import Config
from jaxmtrl.errors import JaxmtrlError, ResumeError
from jaxmtrl.run_folder import CONFIG_FILE, RESULT_FILE, RunFolder
from jaxmtrl.studies.grid import Run

_WANTED = ("splits", "seed", "model_params", "wall_s")  # of a result.json


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
        result = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for name in _WANTED if name not in result]
        if missing:
            raise KeyError(*missing)
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise JaxmtrlError(
            f"{path} cannot be read as a run's result ({err!r}); remove its folder to train anew."
        ) from err
    return result


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
