"""Plays held-out tasks with a policy that a run has kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxmtrl.assembly import assemble, check, use_compilation_cache
from jaxmtrl.checkpoint import Checkpoints
from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.evaluation import evaluate
from jaxmtrl.learner.state import abstract_state
from jaxmtrl.progress import Progress
from jaxmtrl.rollout.record import episode_record
from jaxmtrl.run_folder import CONFIG_FILE, RunFolder
from jaxmtrl.stages import KINDS, STAGES
from jaxmtrl.tasks import tasks_of
from jaxmtrl.types import Episode


def evaluate_run(
    run: str | Path,
    *,
    splits: Sequence[str] | None,
    n: int | None,
    policy: str,
    temperature: float | None,
    episodes_file: str | None,
) -> dict[str, dict[str, Any]]:
    """Plays the first tasks of some splits with one policy of a run; writes nothing into the run folder.

    Args:
        run: run folder.
        splits: names; None means those the run's config evaluates.
        n: tasks a split; None means as many as the config evaluates, or all of a split it does not.
        policy: "latest", or the name of a stage that has ended.
        temperature: None means the config's.
        episodes_file: where to write the episodes, one JSON line each; None writes none.

    Returns:
        The figures by split, as in result.json.

    Raises:
        JaxmtrlError: there is no such run, policy, split, or that many tasks.
    """
    path = Path(run)
    if not (path / CONFIG_FILE).exists():
        raise JaxmtrlError(f"{path} is no run folder: it holds no {CONFIG_FILE}. Give runs/<run.name>.")
    if n is not None and n < 1:
        raise JaxmtrlError(f"--n must be at least 1, got {n}.")
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise JaxmtrlError(f"--temperature must be 0 (greedy) or above, got {temperature:g}.")
    config = load_config(path / CONFIG_FILE)
    names = list(splits or config.evaluation.splits)
    if not names:
        raise JaxmtrlError(f"{path} evaluates no split (evaluation.splits is empty); name one with --split.")
    environment = check(config)
    for name in names:
        tasks_of(environment, name, n if n is not None else config.evaluation.splits.get(name), "--split and --n")
    records_file = _writable(episodes_file) if episodes_file is not None else None
    use_compilation_cache(config.run.compilation_cache)
    folder = RunFolder(path)
    with Progress(console_every_s=config.log.console_every_s, stream=sys.stderr) as progress:
        parts = assemble(config, folder, progress, training=False)
        try:
            counts = {}
            for name in names:
                count = n if n is not None else config.evaluation.splits.get(name)
                tasks = tasks_of(parts.environment, name, count, "--split")
                parts.environment.prepare(tasks, lambda done, total: None)
                counts[name] = len(tasks)
            params = _params(folder, policy, parts)
            parts.engine.load(params, 0)
            records: list[dict[str, Any]] = []

            def report(split: str, episode: Episode) -> None:
                records.append(episode_record(episode, step=0, stage=f"evaluate_{policy}", split=split))

            chosen = config.evaluation.temperature if temperature is None else temperature
            figures = evaluate(
                parts.player, parts.environment, counts, temperature=chosen, seed=config.run.seed, report=report
            )
        finally:
            parts.close()
    if records_file is not None:
        records_file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return {split: figure.as_dict() for split, figure in figures.items()}


def _writable(file: str) -> Path:
    """The path, after a try to write there: better now than when all has been played."""
    try:
        with open(file, "a", encoding="utf-8"):
            return Path(file)
    except OSError as err:
        raise JaxmtrlError(f"--episodes {file} cannot be written: {err.strerror}. Name a file in a folder.") from err


def _params(folder: RunFolder, policy: str, parts: Any) -> Any:
    """The policy's parameters, placed on the run's mesh."""
    stage_ends = Checkpoints(folder.stages, keep=None, read_only=True) if folder.stages.exists() else None
    if policy != "latest":
        number = STAGES.index(policy)
        ended = stage_ends.steps() if stage_ends is not None else []
        if number not in ended:
            have = ", ".join(STAGES[step] for step in ended) or "none yet"
            raise JaxmtrlError(f"{folder.path} has no policy {policy!r}; stages that have ended: {have}.")
        assert stage_ends is not None
        kept = stage_ends.position(number)["stage"]
        if kept != policy:
            raise JaxmtrlError(
                f"{folder.path} was written by a version with other stages: its policy {number} is {kept!r}, not "
                f"{policy!r}. Evaluate it with that version."
            )
        abstract = abstract_state(parts.network, parts.optimizers["sft"], parts.mesh)
        return stage_ends.arrays(number, {"params": abstract.params})["params"]
    checkpoints = Checkpoints(folder.checkpoints, keep=None, read_only=True) if folder.checkpoints.exists() else None
    latest = checkpoints.latest() if checkpoints is not None else None
    if checkpoints is None or latest is None:
        raise JaxmtrlError(f"{folder.path} has no checkpoint yet; wait for the first one (checkpoint.every).")
    position = checkpoints.position(latest)
    optimizer = parts.optimizers[KINDS.get(position["stage"], "policy")]
    abstract = abstract_state(parts.network, optimizer, parts.mesh)
    wanted = {"state": abstract} | ({"best": abstract.params} if position["has_best"] else {})
    return checkpoints.arrays(latest, wanted)["state"].params
