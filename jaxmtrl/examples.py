"""What a run imitates before it learns by itself: random play to read, expert play to follow."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from jaxmtrl.assembly import Parts
from jaxmtrl.config.sections import Config
from jaxmtrl.envs.base import ask
from jaxmtrl.errors import CapacityError, EnvironmentFailure
from jaxmtrl.progress import Progress
from jaxmtrl.rollout.demonstrate import ScriptedTurn, demonstrate, explore, scripted_episode
from jaxmtrl.types import Episode, Task, Turn

Staged = Callable[[Sequence[Task]], list[Task]]  # gives tasks the stage of the action space that they are played in


def random_plays(config: Config, parts: Parts, progress: Progress, staged: Staged = list) -> list[Episode]:
    """`pretrain.plays` random plays of the training tasks, from the first on and over again, cut to a row's length.

    Raises:
        EnvironmentFailure: the environment tells no admissible actions.
        TooManyFailures: more than rollout.max_failed_share of the plays failed.
        CapacityError: none has a turn that a row has room for.
    """
    count, row = config.pretrain.plays, config.batching.row_length
    tasks = staged([parts.train_tasks[index % len(parts.train_tasks)] for index in range(count)])
    progress.stage("random play", total=count)
    plays = explore(
        parts.pool,
        tasks,
        seed=(config.run.seed,),
        max_failed_share=config.rollout.max_failed_share,
        at_once=config.rollout.open_episodes,
        on_played=progress.advance,
    )
    episodes = _ledger(config, parts, tasks, plays)
    cut = [dataclasses.replace(episode, turns=within(episode, row)) for episode in episodes]
    kept = [episode for episode in cut if episode.turns]
    if not kept:
        raise CapacityError(
            f"no first turn of {count} random plays fits batching.row_length ({row}): raise it, or set pretrain.plays "
            "to 0."
        )
    return kept


def demonstrations(
    config: Config, parts: Parts, progress: Progress, staged: Staged = list
) -> tuple[list[Episode], list[Episode]]:
    """Training and validation episodes by the expert, from the first tasks of the training split.

    Raises:
        EnvironmentFailure: there is no expert, or none of its ways can be said in the commands of the stage.
    """
    tasks = _sayable(config, parts, progress, staged(parts.train_tasks[: config.sft.demonstrations]))
    progress.stage("expert play", total=len(tasks))
    plays = demonstrate(
        parts.environment,
        parts.pool,
        tasks,
        at_once=config.rollout.open_episodes,
        on_played=progress.advance,
    )
    episodes = _ledger(config, parts, tasks, plays)
    training = max(1, len(episodes) - round(len(episodes) * config.sft.validation_share))
    return episodes[:training], episodes[training:]


def _sayable(config: Config, parts: Parts, progress: Progress, tasks: Sequence[Task]) -> list[Task]:
    """The tasks whose expert's way can be told in the commands of their stage; says how many cannot, and for what."""
    if not config.actions.on:
        return list(tasks)
    lacking_verbs: Callable[[Task], set[str]] = parts.environment.lacking_verbs  # pyright: ignore
    lacks = [ask(f"asking for the expert of {task.id}", lambda task=task: lacking_verbs(task)) for task in tasks]
    kept = [task for task, verbs in zip(tasks, lacks, strict=True) if not verbs]
    counts = Counter(verb for verbs in lacks for verb in sorted(verbs))
    needs = ", ".join(f"{verb} ({count})" for verb, count in counts.most_common())
    if not kept:
        raise EnvironmentFailure(
            f"none of {len(tasks)} demonstrations can be given in the commands of the stage that the run begins in; "
            f"they need {needs}. Add those to it, or a macro that stands for them, or set sft.demonstrations to 0."
        )
    if needs:
        progress.message(
            f"sft: {len(tasks) - len(kept)} of {len(tasks)} demonstrations left out, {len(kept)} are imitated; those "
            f"need {needs}, which the stage that the run begins in has not"
        )
    return kept


def within(episode: Episode, tokens: int) -> tuple[Turn, ...]:
    """The first turns of an episode, as many as fit into so many tokens."""
    ends = itertools.accumulate(len(turn.prompt_ids) + len(turn.action_ids) for turn in episode.turns)
    return tuple(turn for turn, end in zip(episode.turns, ends, strict=True) if end <= tokens)


def _ledger(
    config: Config, parts: Parts, tasks: Sequence[Task], plays: Sequence[Sequence[ScriptedTurn]]
) -> list[Episode]:
    return [
        scripted_episode(
            task,
            turns,
            group=group,
            tokenizer=parts.tokenizer,
            template=parts.template,
            system_prompt=config.text.system_prompt,
            mask=parts.mask,
        )
        for group, (task, turns) in enumerate(zip(tasks, plays, strict=True))
    ]
