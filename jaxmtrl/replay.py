"""Plays held-out tasks with a policy that a run has kept, or writes it out as a model folder."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from jaxmtrl.actions.space import staged
from jaxmtrl.assembly import (
    assemble,
    check,
    make_network,
    make_optimizers,
    params_at_end_of,
    set_stage,
    use_compilation_cache,
)
from jaxmtrl.checkpoint import Checkpoints
from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import Config
from jaxmtrl.curriculum.action_stages import StageState, evaluated_stage
from jaxmtrl.envs.base import Environment
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.evaluation import evaluate
from jaxmtrl.learner.objective import Kind
from jaxmtrl.learner.optimizer import Optimizer
from jaxmtrl.learner.state import abstract_state
from jaxmtrl.models.adapters import export_adapters, merged
from jaxmtrl.models.decoder import Network
from jaxmtrl.models.huggingface import export_policy
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.pretrained import frozen_base, read_text
from jaxmtrl.progress import Progress
from jaxmtrl.rollout.collect import Player
from jaxmtrl.rollout.record import episode_record
from jaxmtrl.run_folder import CONFIG_FILE, RunFolder, kept_at
from jaxmtrl.sampling.server import MASKED, ServerEngine
from jaxmtrl.stages import KINDS, STAGES
from jaxmtrl.tasks import tasks_of
from jaxmtrl.text import published
from jaxmtrl.text import tokenizer as tokenizers
from jaxmtrl.text.template import ChatTemplate, chatml
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.types import Episode, Task


def evaluate_run(
    run: str | Path,
    *,
    splits: Sequence[str] | None,
    n: int | None,
    policy: str,
    temperature: float | None,
    episodes_file: str | None,
    server: str = "",
    server_model: str = "",
) -> dict[str, dict[str, Any]]:
    """Plays the first tasks of some splits with one policy of a run; writes nothing into the run folder.

    Args:
        run: run folder.
        splits: names; None means those the run's config evaluates.
        n: tasks a split; None means as many as the config evaluates, or all of a split it does not.
        policy: "latest", or the name of a stage that has ended.
        temperature: None means the config's.
        episodes_file: where to write the episodes, one JSON line each; None writes none.
        server: address of an OpenAI-compatible server that plays instead of the policy, in the run's words; "" none.
        server_model: the server's name of its model; "" takes the only one.

    Returns:
        The figures by split, as in result.json.

    Raises:
        JaxmtrlError: there is no such run, policy, split, or that many tasks.
    """
    config, folder = load_run(run)
    if n is not None and n < 1:
        raise JaxmtrlError(f"--n must be at least 1, got {n}.")
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise JaxmtrlError(f"--temperature must be 0 (greedy) or above, got {temperature:g}.")
    names = list(splits or config.evaluation.splits)
    if not names:
        raise JaxmtrlError(f"{folder.path} evaluates no split (evaluation.splits is empty); name one with --split.")
    if server and config.actions.on and config.actions.enforce == "mask":
        raise JaxmtrlError(f"--server: {MASKED}")
    environment = check(config)
    for name in names:
        tasks_of(environment, name, n if n is not None else config.evaluation.splits.get(name), "--split and --n")
    records_file = _writable(episodes_file) if episodes_file is not None else None
    use_compilation_cache(config.run.compilation_cache)
    with (
        Progress(console_every_s=config.log.console_every_s, stream=sys.stderr) as progress,
        contextlib.ExitStack() as open_,
    ):
        if server:
            player, environment = _served(config, folder, progress, server, server_model, open_)
        else:
            parts = open_.enter_context(contextlib.closing(assemble(config, folder, progress, training=False)))
            parts.engine.load(_params(folder, policy, parts.network, parts.optimizers, parts.mesh), 0)
            player, environment = parts.player, parts.environment
        counts = {}
        for name in names:
            count = n if n is not None else config.evaluation.splits.get(name)
            tasks = tasks_of(environment, name, count, "--split")
            environment.prepare(tasks, lambda done, total: None)
            counts[name] = len(tasks)
        records: list[dict[str, Any]] = []
        who = "evaluate_server" if server else f"evaluate_{policy}"

        def report(split: str, episode: Episode) -> None:
            records.append(episode_record(episode, step=0, stage=who, split=split))

        chosen = config.evaluation.temperature if temperature is None else temperature
        told = {"report": report, "staged": _staged(config, folder, policy)}
        figures = evaluate(player, environment, counts, temperature=chosen, seed=config.run.seed, **told)
    if records_file is not None:
        records_file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return {split: figure.as_dict() for split, figure in figures.items()}


def _staged(config: Config, folder: RunFolder, policy: str) -> Callable[[Sequence[Task]], list[Task]]:
    """Gives tasks the stage of the action space that evaluations of a policy are played in."""
    if not config.actions.on:
        return list
    number = None if policy == "latest" else STAGES.index(policy)
    where = folder.checkpoints if number is None else folder.stages
    kept = Checkpoints(where, keep=None, read_only=True) if where.exists() else None
    step = number if number is not None or kept is None else kept.latest()
    saved = kept.position(step).get("actions") if kept is not None and step in kept.steps() else None
    stage = evaluated_stage(config.actions, StageState.start(config.actions, saved))
    return lambda tasks: [staged(task, stage) for task in tasks]


def _served(
    config: Config, folder: RunFolder, progress: Progress, url: str, model: str, open_: contextlib.ExitStack
) -> tuple[Player, Environment]:
    """A server in the policy's place; what it needs is closed with `open_`."""
    stage = set_stage(config, folder, progress, training=False)
    open_.callback(stage.pool.close)
    engine = ServerEngine(
        url,
        model=model,
        probe=stage.template.first_prompt(config.text.system_prompt, "Hello."),
        decode=stage.tokenizer.decode,
        stop_ids=sorted(stage.template.stop_ids),
        slots=config.sampling.slots,
        cache_length=config.sampling.cache_length,
        max_action_tokens=config.sampling.max_action_tokens,
    )
    open_.callback(engine.shut)
    return stage.player(config, engine), stage.environment


def _writable(file: str) -> Path:
    """The path, after a try to write there: better now than when all has been played."""
    try:
        with open(file, "a", encoding="utf-8"):
            return Path(file)
    except OSError as err:
        raise JaxmtrlError(f"--episodes {file} cannot be written: {err.strerror}. Name a file in a folder.") from err


def export_run(run: str | Path, target: str | Path, *, policy: str, dtype: str, adapters: bool = False) -> None:
    """Writes one policy of a run as a folder that `transformers` loads, whole or not at all.

    Args:
        run: run folder.
        target: must not exist, or be an empty folder.
        policy: "latest", or the name of a stage that has ended.
        dtype: of the written weights, "float32", "bfloat16" or "float16".
        adapters: write the adapters alone, as a folder that `peft` loads beside the model they adapt; False adds them
            into the weights.

    Raises:
        JaxmtrlError: there is no such run or policy, no adapter to write, `target` is taken, or no published family has
            the model's parts.
    """
    config, folder = load_run(run)
    if adapters and not (config.lora.rank and config.model.from_pretrained):
        raise JaxmtrlError(f"{folder.path} has no adapters of a published model (lora.rank, model.from_pretrained).")
    pretrained = config.text.tokenizer == "pretrained"
    tokenizer, template = read_text(folder.tokenizer) if pretrained else _own_text(folder)
    network = make_network(config, tokenizer)
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    learnt = _params(folder, policy, network, make_optimizers(config, network), mesh)["policy"]
    if adapters:
        source = config.model.from_pretrained
        export_adapters(Path(target), network, learnt, base_name=source, source=folder.tokenizer, dtype=dtype)
        return
    if network.adapted:
        base = frozen_base(config, folder, network, mesh, lambda said: None, training=False)
        network, learnt = network.whole, merged(network, base["base"], learnt)
    with tempfile.TemporaryDirectory() as made:
        if not pretrained:
            published.write_chatml(tokenizer, Path(made))
        export_policy(
            Path(target),
            network,
            learnt,
            source=folder.tokenizer if pretrained else Path(made),
            dtype=dtype,
            stop_ids=sorted(template.stop_ids),
            longest=config.sampling.cache_length,
        )


def _own_text(folder: RunFolder) -> tuple[Tokenizer, ChatTemplate]:
    tokenizer = tokenizers.load(folder.tokenizer)
    return tokenizer, chatml(tokenizer)


def load_run(run: str | Path) -> tuple[Config, RunFolder]:
    """The config of a run and its folder.

    Raises:
        JaxmtrlError: there is no such run.
    """
    path = Path(run)
    if not (path / CONFIG_FILE).exists():
        raise JaxmtrlError(f"{path} is no run folder: it holds no {CONFIG_FILE}. Give runs/<run.name>.")
    config = load_config(path / CONFIG_FILE)
    return config, RunFolder(path, kept=kept_at(config, path))


def _params(folder: RunFolder, policy: str, network: Network, optimizers: Mapping[Kind, Optimizer], mesh: Mesh) -> Any:
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
        return params_at_end_of(policy, stage_ends, network, optimizers, mesh)
    checkpoints = Checkpoints(folder.checkpoints, keep=None, read_only=True) if folder.checkpoints.exists() else None
    latest = checkpoints.latest() if checkpoints is not None else None
    if checkpoints is None or latest is None:
        raise JaxmtrlError(f"{folder.path} has no checkpoint yet; wait for the first one (checkpoint.every).")
    position = checkpoints.position(latest)
    abstract = abstract_state(network, optimizers[KINDS.get(position["stage"], "policy")], mesh)
    wanted = {"state": abstract} | ({"best": abstract.params} if position["has_best"] else {})
    return checkpoints.arrays(latest, wanted)["state"].params
