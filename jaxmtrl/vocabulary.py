"""The tokenizer of a run that starts from nothing, made of what is said in its games."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.config.sections import Config
from jaxmtrl.envs.base import Environment, ask
from jaxmtrl.rollout.demonstrate import ScriptedTurn, demonstrate
from jaxmtrl.rollout.pool import EnvPool
from jaxmtrl.run_folder import RunFolder
from jaxmtrl.text import tokenizer as tokenizers
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.types import Task

_TOKENIZER_GAMES = 512  # games whose text is enough to train a tokenizer on


def make_tokenizer(
    config: Config, folder: RunFolder, environment: Environment, pool: EnvPool, tasks: Sequence[Task]
) -> Tokenizer:
    """The run's tokenizer: read from its folder, or made once, of the text of the first `tasks`, and written there."""
    if (folder.tokenizer / tokenizers.FILE_NAME).exists():
        return tokenizers.load(folder.tokenizer)
    if config.text.tokenizer == "byte":
        tokenizer = tokenizers.byte_tokenizer()
    else:
        texts = game_texts(environment, pool, tasks[:_TOKENIZER_GAMES])
        space = ActionSpace.of(config.actions.stages, config.actions.macros)
        legends = [space.legend(stage) for stage in range(len(config.actions.stages))]
        tokenizer = tokenizers.train_bpe([config.text.system_prompt, *legends, *texts], config.text.vocab_size)
    tokenizer.save(folder.tokenizer)
    return tokenizer


def game_texts(environment: Environment, pool: EnvPool, tasks: Sequence[Task]) -> list[str]:
    """What is said in games: the expert's plays where there is an expert, else first observations."""
    if tasks and ask("asking for an expert", lambda: environment.expert_actions(tasks[0])) is not None:
        plays: list[list[ScriptedTurn]] = demonstrate(environment, pool, tasks)
        return [text for turns in plays for turn in turns for text in (turn.observation, turn.action)]
    texts, open_ = [], set(range(len(tasks)))
    for index in open_:
        pool.reset(index, tasks[index])
    while open_:
        for event in pool.receive(None):
            if event.episode in open_:
                texts.append((event.episode, event.observation))
                open_.discard(event.episode)
                pool.release(event.episode)
    return [text for _, text in sorted(texts)]
