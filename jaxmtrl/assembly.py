"""Builds the parts of a run from its config; the only place that knows which part is made of which section."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.batch import as_text
from jaxmtrl.checkpoint import Checkpoints
from jaxmtrl.config.sections import BatchingSection, Config
from jaxmtrl.curriculum.course import Course
from jaxmtrl.curriculum.opening import open_course
from jaxmtrl.devices import check_devices, check_hosts, mesh_of
from jaxmtrl.envs.base import Environment, ask
from jaxmtrl.errors import TokenizerError
from jaxmtrl.learner.device import DeviceBatch, put_batch
from jaxmtrl.learner.objective import Kind
from jaxmtrl.learner.optimizer import Optimizer, make_optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.state import abstract_state
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.hosts import ALONE, Hosts, share_a_place, this_host
from jaxmtrl.parallel.mesh import sampling_mesh
from jaxmtrl.parallel.sharding import replicated
from jaxmtrl.pools import make_pool, require_admissible, require_patience, require_states
from jaxmtrl.pretrained import frozen_base, keep_text, read_text, resolve
from jaxmtrl.progress import Progress
from jaxmtrl.rewards.source import check_order, load_source
from jaxmtrl.rollout.collect import Player, SlotEngine
from jaxmtrl.rollout.demonstrate import explore
from jaxmtrl.rollout.pack import pack, packing_efficiency
from jaxmtrl.rollout.pool import EnvPool
from jaxmtrl.rollout.timeline import NO_TIMELINE, WEIGHTS, Timeline
from jaxmtrl.run_folder import RunFolder
from jaxmtrl.sampling.engine import Engine
from jaxmtrl.stages import STAGES
from jaxmtrl.tasks import tasks_evaluated, tasks_in_use, tasks_of
from jaxmtrl.text import tokenizer as tokenizers
from jaxmtrl.text.action_mask import ActionMask, action_mask
from jaxmtrl.text.template import ChatTemplate, audit, chatml
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.types import Episode, Task
from jaxmtrl.vocabulary import make_tokenizer


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything a run is made of, ready to play and to learn."""

    environment: Environment
    train_tasks: Sequence[Task]
    course: Course | None  # None without a curriculum
    tokenizer: Tokenizer
    template: ChatTemplate
    network: Network
    mesh: Mesh
    optimizers: dict[Kind, Optimizer]
    learner: Learner
    engine: Engine
    pool: EnvPool
    player: Player
    batching: BatchingSection
    timeline: Timeline
    hosts: Hosts
    mask: ActionMask | None  # of actions; None without one
    supports: jax.Array | None  # what it allows, on the devices

    def load(self, params: Any, version: int) -> None:
        """Has the sampler play with `params` from here on."""
        with self.timeline.span(WEIGHTS, "load"):
            self.engine.load(params, version)

    def put(self, episodes: Sequence[Episode], *, capacity: int, text: bool = False) -> tuple[DeviceBatch, float]:
        """Packs and places episodes; returns the batch and the share of its columns that hold tokens.

        Args:
            capacity: the most episodes there can be, so that every batch has one shape.
            text: every token is to be learnt, not the actions alone.
        """
        batching = self.batching
        batch = pack(
            episodes,
            row_length=batching.row_length,
            num_episodes=capacity,
            pad_id=self.tokenizer.pad_id,
            masked=self.mask is not None,
        )
        placed = put_batch(
            as_text(batch) if text else batch,
            micro_batch_rows=batching.micro_batch_rows,
            max_rows=capacity,
            mesh=self.mesh,
            supports=self.supports,
        )
        return placed, packing_efficiency(batch)

    def close(self) -> None:
        """Ends the environment processes and writes the timeline."""
        self.pool.close()
        self.timeline.close()


def use_compilation_cache(folder: str) -> None:
    """Keeps compiled programs in `folder` between runs; empty keeps none."""
    if folder:
        jax.config.update("jax_compilation_cache_dir", str(Path(folder).absolute()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def resolved(config: Config) -> Config:
    """`pretrained.resolve`, once the tasks are found to be there: a model that must be fetched takes its time."""
    if config.model.from_pretrained:
        check_tasks(config)
    return resolve(config)


def check(config: Config, *, training: bool = False) -> Environment:
    """Finds what is wrong between the config, the environment and the devices without making anything.

    Raises:
        ConfigError: a section asks for what the environment or the devices do not have.
    """
    mesh = mesh_of(config)
    check_devices(config, mesh, mesh.devices.flat[0].platform, training=training)
    check_hosts(config)
    return check_tasks(config)


def check_tasks(config: Config) -> Environment:
    """The part of `check` that asks the environment alone, and no device."""
    environment = load_source(config)
    require_patience(config, environment)
    tasks_of(environment, config.env.train_split, None, "env.train_split")
    tasks_of(environment, config.env.train_split, config.sft.demonstrations, "sft.demonstrations")
    for name, count in config.evaluation.splits.items():
        tasks_of(environment, name, count, f"evaluation.splits.{name}")
    open_course(config.curriculum, config.env.train_split, environment)
    return environment


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What is played and in which words, without anyone to play it."""

    environment: Environment
    train_tasks: Sequence[Task]
    course: Course | None
    pool: EnvPool
    tokenizer: Tokenizer
    template: ChatTemplate

    def player(
        self,
        config: Config,
        engine: SlotEngine,
        timeline: Timeline = NO_TIMELINE,
        hosts: Hosts = ALONE,
        mask: ActionMask | None = None,
    ) -> Player:
        """Someone to play it: `engine` samples (under `mask`, if there is one), the pool's environments answer."""
        sampling = config.sampling
        return Player(
            engine,
            self.pool,
            tokenizer=self.tokenizer,
            template=self.template,
            system_prompt=config.text.system_prompt,
            open_episodes=config.rollout.open_episodes,
            max_action_tokens=sampling.max_action_tokens,
            max_failed_share=config.rollout.max_failed_share,
            keep_tokens=round(sampling.context_keep * sampling.cache_length) if sampling.context == "drop" else 0,
            mask=mask,
            timeline=timeline,
            hosts=hosts,
        )


def assemble(config: Config, folder: RunFolder, progress: Progress, *, training: bool) -> Parts:
    """Makes the parts, cheapest first, so that a mistake is met before the minutes are spent.

    Args:
        training: whether training tasks will be played, so that their games are made.

    Raises:
        ConfigError: a section asks for what the environment or the devices do not have.
        EnvironmentFailure: pretraining is wanted, but the environment tells no admissible actions.
    """
    stage = set_stage(config, folder, progress, training=training)
    try:
        parts = _compiled_parts(config, stage, folder, progress.message, training=training)
        progress.message(parts.engine.plan)
        return parts
    except BaseException:
        stage.pool.close()
        raise


def set_stage(config: Config, folder: RunFolder, progress: Progress, *, training: bool) -> Stage:
    """Makes games, environment processes, tokenizer and template. Arguments and errors are those of `assemble`."""
    environment = check(config)
    train_tasks = environment.split(config.env.train_split).tasks
    course = open_course(config.curriculum, config.env.train_split, environment) if training else None
    played = tasks_in_use(config, train_tasks, course) if training else []
    tasks = [*played, *tasks_evaluated(config, environment, course)]
    prepare(environment, tasks, progress)
    check_order(config, environment, tasks)
    if course is not None:
        course.require_experts(played)
    pool = make_pool(config)
    try:
        if training and config.algorithm.name == "gigpo":
            require_states(pool, played[0])
        if training and config.pretrain.plays:
            # Find out now whether it tells what can be done; by a few tasks, as one broken game should not stop a run.
            explore(pool, played[:8], seed=(config.run.seed,), max_failed_share=config.rollout.max_failed_share)
        if training and played and config.actions.enforce == "admissible":
            require_admissible(pool, played[0])
        if not training and not (folder.tokenizer / tokenizers.FILE_NAME).exists():
            raise TokenizerError(
                f"{folder.tokenizer} is missing; put it back, or start the train command again, which makes it anew."
            )
        if config.text.tokenizer == "pretrained":
            keep_text(config, folder)
            tokenizer, template = read_text(folder.tokenizer)
            template.first_prompt(config.text.system_prompt, "")  # not every template takes a system message
        else:
            tokenizer = make_tokenizer(config, folder, environment, pool, played)
            template = chatml(tokenizer)
        progress.message(f"template: {audit(template.render, tokenizer, template.bos_id).describe()}")
    except BaseException:
        pool.close()
        raise
    return Stage(
        environment=environment,
        train_tasks=train_tasks,
        course=course,
        pool=pool,
        tokenizer=tokenizer,
        template=template,
    )


def _compiled_parts(
    config: Config, stage: Stage, folder: RunFolder, say: Callable[[str], None], *, training: bool
) -> Parts:
    mesh, hosts = mesh_of(config), this_host()
    share_a_place(hosts, folder.checkpoints.parent)
    network = make_network(config, stage.tokenizer)
    optimizers = make_optimizers(config, network)
    base = frozen_base(config, folder, network, mesh, say, training=training)
    playing = sampling_mesh(mesh, kv_heads=config.model.kv_heads, tensor=config.mesh.sampling_tensor)
    mask = mask_of(config, stage, network)
    table = None if mask is None else mask.table
    engine = Engine(network, config.sampling, sorted(stage.template.stop_ids), playing, base, table)
    learner = make_learner(config, network, mesh, base, optimizers)
    timeline = Timeline(folder.path / "timeline.json" if training and config.run.timeline else None)
    return Parts(
        environment=stage.environment,
        train_tasks=stage.train_tasks,
        course=stage.course,
        tokenizer=stage.tokenizer,
        template=stage.template,
        network=network,
        mesh=mesh,
        optimizers=optimizers,
        learner=learner,
        engine=engine,
        pool=stage.pool,
        player=stage.player(config, engine, timeline, hosts, mask),
        batching=config.batching,
        timeline=timeline,
        hosts=hosts,
        mask=mask,
        supports=None if mask is None else jax.device_put(mask.allowed, replicated(mesh)),
    )


def mask_of(config: Config, stage: Stage, network: Network) -> ActionMask | None:
    """The mask of actions, where the config enforces its stages by one."""
    section = config.actions
    if not section.on or section.enforce != "mask":
        return None
    return action_mask(
        ActionSpace.of(section.stages, section.macros),
        stage.tokenizer,
        stage.template.stop_ids,
        rows=network.config.vocab_rows,
        think=config.env.options.get("think") is True,
    )


def make_learner(
    config: Config, network: Network, mesh: Mesh, base: Any, optimizers: Mapping[Kind, Optimizer]
) -> Learner:
    """The learner of all stages.

    Args:
        base: placed parameters under adapters; {} without them.
    """
    return Learner(
        network.for_learning(mesh, config.model.attention),
        mesh,
        optimizers=optimizers,
        algorithm=config.algorithm,
        temperature=config.sampling.temperature,
        base=base,
        dropout_seed=config.run.seed if config.lora.rank and config.lora.dropout else None,
    )


def make_network(config: Config, tokenizer: Tokenizer) -> Network:
    """The decoder, with a row for every entry of the tokenizer; a published model may have more."""
    dtype = config.model.compute_dtype
    if dtype == "auto":
        dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    vocab = config.text.vocab_size if config.text.tokenizer == "pretrained" else tokenizer.vocab_size
    return Network.from_section(config.model, vocab, dtype, config.lora)


def prepare(environment: Environment, tasks: Sequence[Task], progress: Progress) -> None:
    """Has the environment make what `tasks` need, with a progress line where that takes time."""
    progress.stage("games", total=len(tasks))
    seen = 0

    def report(done: int, total: int) -> None:
        nonlocal seen
        progress.advance(done - seen)
        seen = done

    ask(f"making {len(tasks)} games", lambda: environment.prepare(tasks, report))
    progress.close()


def make_optimizers(config: Config, network: Network) -> dict[Kind, Optimizer]:
    """One optimizer a kind of update, each with its own schedule over the steps its stage will take."""
    section, algorithm = config.optimizer, config.algorithm
    trained = config.sft.demonstrations - round(config.sft.demonstrations * config.sft.validation_share)
    steps: dict[Kind, int] = {
        "pretrain": config.pretrain.epochs * -(-config.pretrain.plays // config.pretrain.batch_episodes),
        "sft": config.sft.epochs * max(1, -(-trained // config.sft.batch_episodes)),
        "critic": config.critic_warmup.iterations * config.critic_warmup.epochs * algorithm.minibatches,
        "policy": config.rl.iterations * algorithm.epochs * algorithm.minibatches,
    }
    rates: dict[Kind, tuple[float, float]] = {
        "pretrain": (config.pretrain.learning_rate, 0.0),
        "sft": (config.sft.learning_rate, 0.0),
        "critic": (0.0, section.critic_learning_rate),
        "policy": (section.learning_rate, section.critic_learning_rate),
    }
    flat = dataclasses.replace(section, decay="constant") if section.decay == "steps" else section
    return {
        kind: make_optimizer(
            section if kind == "policy" else flat,
            network,
            learning_rate=rates[kind][0],
            critic_learning_rate=rates[kind][1],
            total_steps=max(1, steps[kind]),
            warmup_steps=section.warmup_steps,
        )
        for kind in steps
    }


def params_at_end_of(
    stage: str, stage_ends: Checkpoints, network: Network, optimizers: Mapping[Kind, Optimizer], mesh: Mesh
) -> Any:
    """The parameters that a run kept when a stage had ended, placed. Raises CheckpointError if they cannot be read."""
    abstract = abstract_state(network, optimizers["sft"], mesh)
    return stage_ends.arrays(STAGES.index(stage), {"params": abstract.params})["params"]
