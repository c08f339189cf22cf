"""Plays evaluations in the course of a run: all splits when a stage has ended, some of them on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmtrl.assembly import Parts
from jaxmtrl.config.sections import Config
from jaxmtrl.evaluation import SplitResult, evaluate
from jaxmtrl.metrics import MetricsWriter
from jaxmtrl.progress import Progress
from jaxmtrl.rollout.record import episode_record
from jaxmtrl.stages import EVALUATED, Position
from jaxmtrl.types import Episode, Task


class Examiner:
    """Loads weights into the sampler and has them play splits."""

    def __init__(
        self,
        config: Config,
        parts: Parts,
        progress: Progress,
        staged: Callable[[Sequence[Task]], Sequence[Task]] = lambda tasks: tasks,
    ):
        """
        Args:
            staged: gives tasks the stage of the action space that evaluations are played in, which may change.
        """
        self._config, self._parts, self._progress, self._staged = config, parts, progress, staged

    def at_stage_end(
        self, stage: str, params: Any, position: Position, metrics: MetricsWriter
    ) -> tuple[dict[str, dict[str, dict]], dict[str, SplitResult]]:
        """The position's results with those of a stage's policy, and these; as they were if it has none of its own."""
        splits = self._config.evaluation.splits
        if stage not in EVALUATED or not splits or (stage == "pretrain" and not self._config.pretrain.plays):
            return position.results, {}
        self._progress.stage(f"evaluate {stage}", total=sum(splits.values()))
        kept: list[dict] = []

        def report(split: str, episode: Episode) -> None:
            self._progress.advance(1)
            if episode.group < self._config.log.episodes:  # the first tasks, whichever game ends first
                kept.append(episode_record(episode, step=position.step, stage=f"evaluate_{stage}", split=split))

        figures = self.played(splits, params, position.step, report)
        results = {split: dict(position.results.get(split, {})) for split in splits}
        for split, figure in figures.items():
            results[split][stage] = figure.as_dict()
            low, high = figure.ci95
            self._progress.message(f"{stage} on {split}: success {figure.success:.3f} [{low:.3f}, {high:.3f}]")
        metrics.episodes(kept)
        return results, figures

    def due(self, finished: int) -> dict[str, int]:
        """How many tasks of which splits evaluation.every asks for after an RL iteration: of the first, or none."""
        section = self._config.evaluation
        return dict(list(section.splits.items())[:1]) if section.every and finished % section.every == 0 else {}

    def played(
        self,
        splits: Mapping[str, int],
        params: Any,
        step: int,
        report: Callable[[str, Episode], None] | None = None,
    ) -> dict[str, SplitResult]:
        """What a policy does on some splits."""
        self._parts.load(params, step)
        return evaluate(
            self._parts.player,
            self._parts.environment,
            splits,
            temperature=self._config.evaluation.temperature,
            seed=self._config.run.seed,
            report=report,
            staged=self._staged,
        )
