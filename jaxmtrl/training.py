"""The loop: untrained → pretraining → SFT → critic warm-up → RL, as one state machine that resumes anywhere.

All randomness is a function of (seed, stage, iteration), so a position in the loop is two names and two numbers.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmtrl.assembly import Parts, assemble, check, params_at_end_of, resolved
from jaxmtrl.batch import TokenBatch
from jaxmtrl.checkpoint import Checkpoints
from jaxmtrl.coach import Coach
from jaxmtrl.config.lint import advice
from jaxmtrl.config.sections import Config, PretrainSection, SftSection
from jaxmtrl.errors import NonFiniteError, StoppedByAlarm
from jaxmtrl.evaluation import episode_metrics, run_result, success_table
from jaxmtrl.examiner import Examiner
from jaxmtrl.examples import demonstrations, random_plays
from jaxmtrl.learner.device import DeviceBatch, micro_batch_order, save_micro_batch
from jaxmtrl.learner.dials import Dials, DialState
from jaxmtrl.learner.elastic import Anchor, abstract_anchor, consolidated
from jaxmtrl.learner.objective import Kind
from jaxmtrl.learner.programs import named
from jaxmtrl.learner.state import TrainState, abstract_state, init_state, restart
from jaxmtrl.learner.update import UpdateMetrics
from jaxmtrl.lookout import Lookout
from jaxmtrl.metrics import MetricsWriter
from jaxmtrl.parallel.hosts import open_in_order, this_host
from jaxmtrl.parallel.sharding import fetched_from_host, sent_to_host
from jaxmtrl.pretrained import pretrained_policy
from jaxmtrl.progress import Progress
from jaxmtrl.rollout.feed import Feed
from jaxmtrl.rollout.plays import seeded_plays
from jaxmtrl.rollout.record import episode_record
from jaxmtrl.rollout.timeline import LEARNER
from jaxmtrl.run_folder import RunFolder
from jaxmtrl.stages import DONE, EVALUATED, KINDS, RATES, STAGES, Position
from jaxmtrl.tasks import stage_seed
from jaxmtrl.types import Episode


class Trainer:
    """One run: its parts, its position and its state on the device."""

    def __init__(self, config: Config, folder: RunFolder, parts: Parts, progress: Progress):
        self.config, self.folder, self.parts, self.progress = config, folder, parts, progress
        self.checkpoints = Checkpoints(folder.checkpoints, keep=config.checkpoint.keep)
        self.stage_ends = Checkpoints(folder.stages, keep=None)
        self.position = Position()
        self._best: Any = None  # SFT's best parameters so far
        self._anchor: Anchor | None = None  # what earlier levels of a curriculum hold the policy by
        self._reference: Any = None  # the policy's parameters in the KL reference
        self._dials = DialState()
        self._began = time.monotonic()
        self._restore()
        saved = (self.position.curriculum, progress.message, self.position.actions)
        self._coach = Coach(config, parts.train_tasks, parts.course, *saved)
        self._examiner = Examiner(config, parts, progress, self._coach.examined)
        self._lookout = Lookout(config, self.position.alarms, progress.message)
        drawn = config.log.tensorboard and parts.hosts.first
        self.metrics = MetricsWriter.resume(folder.path, self.position.step, tensorboard=drawn)

    def run(self) -> dict[str, Any]:
        """Goes on from the position to the end and returns what result.json holds."""
        stages = {"pretrain": self._pretrain, "sft": self._sft, "critic_warmup": self._critic_warmup, "rl": self._rl}
        reached = STAGES.index(self.position.stage) if self.position.stage != DONE else len(STAGES)
        for stage in STAGES[reached:]:
            if stage in stages:
                stages[stage]()
            results, figures = self._examiner.at_stage_end(stage, self.state.params, self.position, self.metrics)
            self._lookout.evaluated(figures, self.config.rl.iterations if stage == "rl" else 0)
            self.position = dataclasses.replace(self.position, results=results)
            self._next_stage(stage)
        return self._result()

    def _pretrain(self) -> None:
        section = self.config.pretrain
        if section.plays:
            plays = random_plays(self.config, self.parts, self.progress, self._coach.staged)
            self._imitate("pretrain", section, plays, on_epoch=lambda epoch: {}, last=lambda epoch: False)

    def _sft(self) -> None:
        section = self.config.sft
        if not section.demonstrations:
            return
        training, validation = demonstrations(self.config, self.parts, self.progress, self._coach.staged)

        def stalled(epoch: int) -> bool:
            if epoch - self.position.best_epoch < section.patience or epoch == 0:
                return False
            self.progress.message(f"sft: no better validation loss for {section.patience} epochs")
            return True

        self._imitate("sft", section, training, on_epoch=lambda epoch: self._validate(validation, epoch), last=stalled)
        if self._best is not None:
            params = jax.tree.map(lambda leaf: leaf.copy(), self._best)
            self.state = restart(params, self.parts.network, self.parts.optimizers["sft"], self.parts.mesh)

    def _imitate(
        self,
        kind: Kind,
        section: PretrainSection | SftSection,
        episodes: Sequence[Episode],
        *,
        on_epoch: Callable[[int], dict[str, float]],
        last: Callable[[int], bool],
    ) -> None:
        """Epochs of imitation: of every token in pretraining, of the actions in SFT.

        Args:
            on_epoch: called with the number of finished epochs; gives metrics.
            last: called with the number of finished epochs before each; True ends the stage early.
        """
        starts = range(0, len(episodes), section.batch_episodes)
        self.progress.stage(kind, total=section.epochs * len(starts), done=self.position.iteration * len(starts))
        validation = None
        for epoch in range(self.position.iteration, section.epochs):
            if last(epoch):
                break
            rng = np.random.default_rng((self.config.run.seed, STAGES.index(kind), epoch))
            shuffled = rng.permutation(len(episodes))
            losses: list[dict[str, float]] = []
            for start in starts:
                chosen = [episodes[i] for i in shuffled[start : start + section.batch_episodes]]
                batch, _ = self.parts.put(chosen, capacity=section.batch_episodes, text=kind == "pretrain")
                losses.append(self._update(kind, batch, None, epochs=1, rng=rng))
                self.progress.advance(1, loss=losses[-1].get(f"loss/{kind}"), validation=validation)
            values = {name: float(np.mean([loss[name] for loss in losses if name in loss])) for name in losses[0]}
            values |= on_epoch(epoch + 1)
            validation = values.get("loss/validation")
            self._finish_iteration(kind, values, [], force=epoch + 1 == section.epochs)

    def _critic_warmup(self) -> None:
        if self.config.algorithm.name == "ppo":
            section = self.config.critic_warmup
            self._play_and_learn("critic_warmup", section.iterations, epochs=section.epochs)

    def _rl(self) -> None:
        self._play_and_learn("rl", self.config.rl.iterations, epochs=self.config.algorithm.epochs)

    def _play_and_learn(self, stage: str, iterations: int, *, epochs: int) -> None:
        self.progress.stage(stage, total=iterations, done=self.position.iteration)
        feed = Feed(
            lambda params: self.parts.load(params, self.position.step),
            lambda i: self._play(stage, i),
            first=self.position.iteration,
            end=iterations,
            overlap=self.config.rollout.overlap,
        )
        try:
            for iteration in range(self.position.iteration, iterations):
                self._iteration(stage, iteration, iterations, feed, epochs)
        finally:
            feed.close()

    def _iteration(self, stage: str, iteration: int, iterations: int, feed: Feed[list[Episode]], epochs: int) -> None:
        parts, config = self.parts, self.config
        began = time.monotonic()
        episodes = feed.take(self.state.params)
        if not config.rollout.overlap:
            parts.engine.unload()  # the update has its memory
        played = time.monotonic()
        rng = np.random.default_rng((config.run.seed, STAGES.index(stage), iteration))
        capacity = config.rl.tasks_per_iteration * config.algorithm.group_size
        batch, packing = parts.put(episodes, capacity=capacity)
        self._dials = self._dials.seen([episode.episode_return for episode in episodes if not episode.failed])
        dials = self._lookout.dials(self._dials, stage, iteration)
        scores = parts.learner.score(self.state.params, batch)
        reference = self._reference_logprobs(batch)
        targets, target_metrics = parts.learner.targets(batch, scores, reference, dials)
        kind = KINDS[stage]
        values = named(target_metrics, kind, config.algorithm)
        values |= self._update(kind, batch, targets, epochs=epochs, rng=rng, dials=dials)
        values |= episode_metrics(episodes) | dials.named(config.algorithm)
        if stage == "rl":
            self._dials = self._dials.adapted(config.algorithm, values.get("kl/reference_nats"), len(episodes))
        ended = time.monotonic()
        parts.timeline.add(LEARNER, f"learn from a batch of {stage}", played, ended)
        tokens = sum(len(turn.prompt_ids) + len(turn.action_ids) for e in episodes for turn in e.turns)
        values |= {
            "time/play_s": played - began,
            "time/update_s": ended - played,
            "speed/tokens_per_s": tokens / (ended - began),
            "batch/packing": packing,
        }
        last = iteration + 1 == iterations
        values |= self._coach.learnt(stage, episodes, iteration + 1)
        if stage == "rl" and not last:
            values |= self._evaluate_on_the_way(iteration + 1, batch)
        values |= self._coach.metrics(iteration + 1)
        values |= self._lookout.played(stage, episodes, values, dials, finished=iteration + 1, tasks=self._coach.level)
        self._finish_iteration(stage, values, episodes, force=last or bool(self._lookout.stop))
        if self._lookout.stop:
            raise StoppedByAlarm(f"{self._lookout.stop} The run is saved; start it again to go on all the same.")
        self.progress.advance(
            1,
            success=values["episode/success"],
            value_loss=values.get("loss/value") if stage == "critic_warmup" else None,
            tokens_per_s=values["speed/tokens_per_s"],
        )

    def _evaluate_on_the_way(self, finished: int, batch: DeviceBatch) -> dict[str, float]:
        """Plays what is due after an RL iteration; a level that has been learnt is what later ones may not undo.

        Args:
            batch: of the iteration, played by weights one update old.
        """
        course, own = self._coach.due("rl", finished), self._examiner.due(finished)
        due = {split: max(course.get(split, 0), own.get(split, 0)) for split in (*course, *own)}
        if not due:
            return {}
        figures = self._examiner.played(due, self.state.params, self.position.step)
        self._lookout.evaluated({split: figures[split] for split in own}, finished)  # the course watches its own levels
        before = self._coach.levels_trained
        if course:
            self._coach.evaluated({split: figures[split] for split in course}, finished)
        if self._coach.levels_trained > before and self.config.algorithm.ewc_coef > 0:
            fisher = self.parts.learner.fisher(self.state.params, batch)
            decay = self.config.algorithm.ewc_decay
            self._anchor = consolidated(self._anchor, fisher, self.state.params["policy"], decay=decay)
        return {f"evaluation/{split}_success": figure.success for split, figure in figures.items()}

    def _play(self, stage: str, iteration: int) -> list[Episode]:
        """One batch of training episodes by the weights that the engine holds."""
        config, parts = self.config, self.parts
        tasks = self._coach.tasks(stage, iteration)
        seed = (*stage_seed(config, stage), iteration)
        plays = seeded_plays(tasks, group_size=config.algorithm.group_size, seed=seed)
        limit = config.batching.row_length - 1  # the last column is for the bootstrap value
        return parts.player.play(plays, temperature=config.sampling.temperature, max_tokens=limit)

    def _update(
        self,
        kind: Kind,
        batch: DeviceBatch,
        targets: Any,
        *,
        epochs: int,
        rng: np.random.Generator,
        dials: Dials | None = None,
    ) -> dict[str, float]:
        """One compiled update of the state; stops the run when a loss or gradient is not finite."""
        count = batch.rows.tokens.shape[0]
        order = micro_batch_order(rng, used=int(batch.used), count=count, epochs=epochs)
        with self.parts.timeline.span(LEARNER, f"{kind} update"):
            anchor = self._anchor if kind == "policy" else None
            self.state, metrics = self.parts.learner.update(kind, self.state, batch, targets, order, dials, anchor)
            nonfinite = int(metrics.nonfinite)  # waits for the device
        if nonfinite:
            self._stop_on_nonfinite(batch.rows, metrics)
        return named(metrics, kind, self.config.algorithm)

    def _validate(self, validation: Sequence[Episode], epoch: int) -> dict[str, float]:
        """Keeps the parameters if they are the best so far; without validation episodes the last ones are."""
        values, loss = {}, None
        if validation:
            batch, _ = self.parts.put(validation, capacity=len(validation))
            loss = float(self.parts.learner.sft_loss(self.state.params, batch))
            values["loss/validation"] = loss
        best = self.position.best_loss
        if loss is None or best is None or loss < best:
            self._best = jax.tree.map(lambda leaf: leaf.copy(), self.state.params)
            self.position = dataclasses.replace(self.position, best_epoch=epoch, best_loss=loss)
        return values

    def _reference_logprobs(self, batch: DeviceBatch) -> Any:
        if self.config.algorithm.kl_coef == 0:
            return None
        waits = self.config.algorithm.kl_memory == "host"
        if self._reference is None:
            self._reference = sent_to_host(self._reference_policy()) if waits else self._reference_policy()
        policy = fetched_from_host(self._reference) if waits else self._reference
        return self.parts.learner.score({**self.state.params, "policy": policy}, batch).logprobs

    def _reference_policy(self) -> Any:
        parts, kind = self.parts, self.config.algorithm.kl_reference
        if parts.network.adapted and kind != "before_rl":
            return jax.tree.map(jnp.zeros_like, self.state.params["policy"])  # adapters of zeros are adapters off
        stage = "untrained" if kind == "base" else "sft"
        return params_at_end_of(stage, self.stage_ends, parts.network, parts.optimizers, parts.mesh)["policy"]

    # What survives.

    def _finish_iteration(
        self, stage: str, values: dict[str, float], episodes: Sequence[Episode], *, force: bool
    ) -> None:
        before = self.position
        self.position = dataclasses.replace(before, iteration=before.iteration + 1, step=before.step + 1)
        self.metrics.write(self.position.step, stage, values)
        sampled = sorted(episodes, key=lambda episode: not episode.failed)[: self.config.log.episodes]
        self.metrics.episodes(
            episode_record(episode, step=self.position.step, stage=stage, split=self._coach.split_of(episode.group))
            for episode in sampled
        )
        if force or self.position.iteration % self.config.checkpoint.every == 0:
            self._save()

    def _next_stage(self, stage: str) -> None:
        """Keeps the stage's policy, and starts the next stage with fresh moments."""
        number = STAGES.index(stage)
        if number not in self.stage_ends.steps():
            told = {"stage": stage, "step": self.position.step, "actions": self._coach.saved_actions}
            self.stage_ends.save(number, {"params": self.state.params}, told)
        self._best = None
        following = STAGES[number + 1] if number + 1 < len(STAGES) else DONE
        if following != DONE:
            optimizer, params = self.parts.optimizers[KINDS[following]], self.state.params
            if following == "critic_warmup":  # a separate critic begins as the policy that it will judge
                params = self.parts.network.critic_from_policy(params)
            self.state = restart(params, self.parts.network, optimizer, self.parts.mesh)
        self.position = dataclasses.replace(self.position, stage=following, iteration=0)
        self._save()

    def _save(self) -> None:
        began, self._began = self._began, time.monotonic()
        wall_s, dials = self.position.wall_s + self._began - began, dataclasses.asdict(self._dials)
        told = {"curriculum": self._coach.saved, "actions": self._coach.saved_actions, "alarms": self._lookout.saved}
        self.position = dataclasses.replace(self.position, wall_s=wall_s, dials=dials, **told)
        kept = {"best": self._best, "anchor": self._anchor}
        arrays = {"state": self.state} | {name: tree for name, tree in kept.items() if tree is not None}
        position = dataclasses.asdict(self.position) | {f"has_{name}": name in arrays for name in kept}
        self.checkpoints.save(self._checkpoint_number(), arrays, position)

    def _checkpoint_number(self) -> int:
        """Rises with every save: iterations, and one more for each stage that was entered."""
        return self.position.step + (*STAGES, DONE).index(self.position.stage)

    def _restore(self) -> None:
        network, mesh = self.parts.network, self.parts.mesh
        latest = self.checkpoints.latest()
        if latest is None:
            key = jax.random.key(self.config.run.seed)
            optimizer = self.parts.optimizers[KINDS["untrained"]]
            policy = pretrained_policy(self.config, network, mesh, self.progress.message)
            self.state: TrainState = init_state(network, optimizer, mesh, key, policy)
            return
        position = self.checkpoints.position(latest)
        has_best, has_anchor = position.pop("has_best"), position.pop("has_anchor", False)
        self.position = Position(**position)
        self._dials = DialState.of(self.position.dials)
        optimizer = self.parts.optimizers[KINDS.get(self.position.stage, "policy")]
        abstract = abstract_state(network, optimizer, mesh)
        kept = {"best": abstract.params} if has_best else {}
        kept |= {"anchor": abstract_anchor(abstract.params["policy"])} if has_anchor else {}
        arrays = self.checkpoints.arrays(latest, {"state": abstract} | kept)
        self.state, self._best, self._anchor = arrays["state"], arrays.get("best"), arrays.get("anchor")
        self.progress.message(f"resuming {self.folder.path} at {self.position.stage}, step {self.position.step}")

    def _stop_on_nonfinite(self, rows: TokenBatch, metrics: UpdateMetrics) -> None:
        step, latest = self.position.step + 1, self.checkpoints.latest()
        path = self.folder.path / f"nonfinite_step{step}.npz"
        save_micro_batch(path, rows, int(metrics.bad_micro_batch))
        good = "none yet" if latest is None else str(self.folder.checkpoints / str(latest))
        raise NonFiniteError(
            f"{int(metrics.nonfinite)} optimizer steps of {self.position.stage} step {step} met a loss or gradient "
            f"that is not finite; parameters were left as they were. Rows: {path}. Last good checkpoint: {good}. Lower "
            f"{RATES[self.position.stage]} or optimizer.gradient_clip, and start again under another run.name."
        )

    def _result(self) -> dict[str, Any]:
        seed, wall_s = self.config.run.seed, self.position.wall_s
        result = run_result(self.parts.network, self.position.results, seed=seed, wall_s=wall_s)
        self.folder.write_result(result)
        columns, rows = success_table(self.position.results, EVALUATED)
        self.progress.table(f"success, 95 % interval (seed {self.config.run.seed})", columns, rows)
        return result

    def close(self) -> None:
        """Closes files and frees Orbax's threads."""
        self.metrics.close()
        self.checkpoints.close()
        self.stage_ends.close()


def train(config: Config) -> dict[str, Any]:
    """Runs or resumes a run to its end and returns what its result.json holds.

    Raises:
        JaxmtrlError: whatever the person at the keyboard can mend.
    """
    config, hosts = resolved(config), this_host()
    check(config, training=True)  # before there is a folder, which another config could not use
    with (
        closing(open_in_order(hosts, lambda: RunFolder.open(config, hosts.index))) as folder,
        Progress(console_every_s=config.log.console_every_s, silent=not hosts.first) as progress,
        closing(assemble(config, folder, progress, training=True)) as parts,
        closing(Trainer(config, folder, parts, progress)) as trainer,
    ):
        for text in advice(config):
            progress.message(f"advice: {text}")
        return trainer.run()
