"""Everything that a study's pages are made of, put together from its run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxmtrl.config.sections import Config
from jaxmtrl.studies.grid import Run, Study
from jaxmtrl.studies.prepare import machines
from jaxmtrl.studies.results import results_of
from jaxmtrl.studies.table import Figure, Verdict, figures_of, verdicts_of


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was found, and how."""

    study: Study
    figures: Sequence[Figure]
    verdicts: Sequence[Verdict]
    seeds: Sequence[int]  # that were asked for
    missing: Sequence[Run]  # runs that have not ended
    ended: int  # runs that have
    minutes: float  # of training, all of those together
    machines: Sequence[str]  # a line each
    command: str
    smoke: bool


def findings_of(study: Study, configs: Mapping[Run, Config], root: Path, command: str, *, smoke: bool) -> Findings:
    """The findings of the runs that have ended.

    Args:
        configs: of every run of the grid.
        root: the study's folder of run folders.
        command: that makes them, for the page.

    Raises:
        ResumeError: a run folder belongs to something else.
    """
    results = results_of(configs)
    figures = figures_of(study, results)
    return Findings(
        study=study,
        figures=figures,
        verdicts=verdicts_of(study, figures),
        seeds=list(dict.fromkeys(run.seed for run in configs)),
        missing=[run for run in configs if run not in results],
        ended=len(results),
        minutes=sum(float(result["wall_s"]) for result in results.values()) / 60,
        machines=machines(root),
        command=command,
        smoke=smoke,
    )
