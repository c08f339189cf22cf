"""The small model at work: two real iterations of play, credit and update, kept for every check to look at."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import monitoring
from jax.sharding import Mesh

from jaxmtrl.assembly import make_optimizers
from jaxmtrl.batch import TokenBatch
from jaxmtrl.config.sections import Config
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.learner.device import micro_batch_order, put_batch, row_places
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.state import abstract_base, init_state, params_shardings
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.rollout.collect import Player
from jaxmtrl.rollout.pack import episode_length, pack
from jaxmtrl.rollout.plays import seeded_plays
from jaxmtrl.rollout.pool import EnvPool
from jaxmtrl.sampling.engine import Engine
from jaxmtrl.text.template import ChatTemplate
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.types import Episode, Task

_COMPILED = "/jax/core/compile/backend_compile_duration"  # the event jax records for every program it compiles


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What two iterations of training at small size left behind."""

    episodes: tuple[Episode, ...]  # of the first iteration, failed ones included
    later: tuple[Episode, ...]  # of the second
    logprobs: np.ndarray  # f32 [B, T], the learner's before its first update
    batch: TokenBatch  # the first iteration's, numpy
    first_clip_fraction: float  # of the first optimizer step on the first batch
    sampler_programs: tuple[int, int]  # after the first and after the second iteration
    learner_programs: dict[str, int]  # how often each was compiled
    second_compiles: int  # programs that jax compiled during the second iteration


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Parts that the checks share."""

    config: Config  # the small one
    tokenizer: Tokenizer
    template: ChatTemplate
    network: Network
    mesh: Mesh
    base: Any  # what lies under adapters, random; {} without them
    params: Any  # random, critic and adapters included, so that values differ from 0
    reference: Any  # other random parameters of the same shapes

    @property
    def pad_id(self) -> int:
        return self.tokenizer.pad_id


def make_bench(config: Config, tokenizer: Tokenizer, template: ChatTemplate) -> Bench:
    """The small network on one device, with random parameters."""
    network = Network.from_section(config.model, tokenizer.vocab_size, "float32", config.lora)
    mesh = make_mesh(1, 1, 1, jax.devices()[:1])
    init = jax.jit(network.init)
    shardings = params_shardings(network, mesh)
    params, reference = (
        jax.device_put(_stirred(init(jax.random.key(seed)), seed, network.adapted), shardings)
        for seed in (config.run.seed, config.run.seed + 1)
    )
    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_base(network, mesh))
    return Bench(
        base=jax.jit(network.init_base, out_shardings=placed)(jax.random.key(config.run.seed)),
        config=config,
        tokenizer=tokenizer,
        template=template,
        network=network,
        mesh=mesh,
        params=params,
        reference=reference,
    )


def rehearse(bench: Bench, pool: EnvPool, tasks: Sequence[Task]) -> Rehearsal:
    """Plays, scores, credits and updates twice, on other draws of the same tasks, as the training loop does.

    Raises:
        JaxmtrlError: of the environment or the sampler.
    """
    config = bench.config
    engine = Engine(bench.network, config.sampling, sorted(bench.template.stop_ids), bench.mesh, bench.base)
    player = Player(
        engine,
        pool,
        tokenizer=bench.tokenizer,
        template=bench.template,
        system_prompt=config.text.system_prompt,
        open_episodes=config.rollout.open_episodes,
        max_action_tokens=config.sampling.max_action_tokens,
        max_failed_share=1.0,
    )
    optimizers = make_optimizers(config, bench.network)
    learner = Learner(
        bench.network,
        bench.mesh,
        optimizers=optimizers,
        algorithm=config.algorithm,
        temperature=config.sampling.temperature,
        base=bench.base,
    )
    state = init_state(bench.network, optimizers["policy"], bench.mesh, jax.random.key(config.run.seed))
    state = dataclasses.replace(state, params=jax.device_put(_copied(bench.params), _shardings(state.params)))
    capacity = config.rl.tasks_per_iteration * config.algorithm.group_size
    reference = bench.reference if config.algorithm.kl_weight > 0 else None
    kept: list[Any] = []
    programs: list[int] = []
    compiles = 0
    for iteration in range(2):
        with compilations() as count:
            engine.load(state.params, iteration)
            played = _play(player, config, tasks, iteration)
            _refuse_nothing(played, config)
            batch = pack(
                played, row_length=config.batching.row_length, num_episodes=capacity, pad_id=bench.tokenizer.pad_id
            )
            device = put_batch(
                batch, micro_batch_rows=config.batching.micro_batch_rows, max_rows=capacity, mesh=bench.mesh
            )
            scores = learner.score(state.params, device)
            ref = None if reference is None else learner.score(reference, device).logprobs
            targets, _ = learner.targets(device, scores, ref)
            used, number = int(device.used), device.rows.tokens.shape[0]
            logprobs = _dealt_back(np.asarray(scores.logprobs), batch, used, config.batching.micro_batch_rows)
            order = micro_batch_order(
                np.random.default_rng(iteration), used=used, count=number, epochs=config.algorithm.epochs
            )
            state, metrics = learner.update("policy", state, device, targets, order)
            kept.append((played, batch, logprobs, float(metrics.first_clip_fraction)))
        programs.append(engine.programs)
        compiles = count[0]
    episodes, batch, logprobs, clipped = kept[0]
    return Rehearsal(
        episodes=tuple(episodes),
        later=tuple(kept[1][0]),
        logprobs=logprobs,
        batch=batch,
        first_clip_fraction=clipped,
        sampler_programs=(programs[0], programs[1]),
        learner_programs=dict(learner.compilations),
        second_compiles=compiles,
    )


def _play(player: Player, config: Config, tasks: Sequence[Task], iteration: int) -> list[Episode]:
    chosen = [tasks[index % len(tasks)] for index in range(config.rl.tasks_per_iteration)]
    plays = seeded_plays(chosen, group_size=config.algorithm.group_size, seed=(config.run.seed, 0xD0C, iteration))
    # The second round is cut short, so that rows are filled otherwise than in the first.
    limit = (config.batching.row_length - 1) // (1 + iteration)
    return player.play(plays, temperature=config.sampling.temperature, max_tokens=limit)


def _refuse_nothing(episodes: Sequence[Episode], config: Config) -> None:
    """Raises JaxmtrlError if no episode has an action, and says why."""
    if any(episode_length(episode) for episode in episodes):
        return
    errors = [episode.error for episode in episodes if episode.error]
    raise JaxmtrlError(
        f"no episode was played: {errors[0]}"
        if errors
        else f"the first prompt leaves no room for an action in sampling.cache_length "
        f"({config.sampling.cache_length}) and batching.row_length ({config.batching.row_length}); raise them"
    )


def _dealt_back(array: np.ndarray, batch: TokenBatch, used: int, micro_batch_rows: int) -> np.ndarray:
    """[n, M, T] as [B, T], in the order of the batch's rows."""
    places = row_places(batch.tokens.shape[0], used=used, micro_batch_rows=micro_batch_rows)
    return array.reshape(-1, array.shape[-1])[places]


@contextlib.contextmanager
def compilations() -> Iterator[list[int]]:
    """Counts the programs that jax compiles meanwhile, ours or hidden in an array operation."""
    count = [0]

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        count[0] += event == _COMPILED

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield count
    finally:
        monitoring.unregister_event_duration_listener(listen)


def _stirred(params: Any, seed: int, adapted: bool) -> Any:
    """Adds noise to the critic, which starts at 0 everywhere, and to adapters, which start as nothing."""
    rng = np.random.default_rng((seed, 0xC217))

    def noisy(leaf: Any) -> np.ndarray:
        return np.asarray(leaf) + rng.normal(0.0, 0.1, leaf.shape).astype(np.float32)

    halves = ("policy", "critic") if adapted else ("critic",)
    return params | {name: jax.tree.map(noisy, params[name]) for name in halves}


def _copied(params: Any) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf), params)


def _shardings(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.sharding, tree)
