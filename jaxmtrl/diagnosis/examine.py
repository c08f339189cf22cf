"""The whole examination: which checks are made of a config, in which order, on what."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jax

from jaxmtrl.assembly import check, resolved
from jaxmtrl.config.sections import Config
from jaxmtrl.diagnosis.bench import Bench, Rehearsal, make_bench, rehearse
from jaxmtrl.diagnosis.compiled import check_compiled
from jaxmtrl.diagnosis.credit import check_credit
from jaxmtrl.diagnosis.environment import Play, check_crash, check_environment, check_needs
from jaxmtrl.diagnosis.finding import Finding, guarded
from jaxmtrl.diagnosis.gauge import Gauge
from jaxmtrl.diagnosis.groups import check_groups
from jaxmtrl.diagnosis.invariance import check_invariance
from jaxmtrl.diagnosis.kl import check_kl
from jaxmtrl.diagnosis.leaks import check_leaks
from jaxmtrl.diagnosis.material import with_made_up_credit
from jaxmtrl.diagnosis.memory import check_memory
from jaxmtrl.diagnosis.parity import check_parity
from jaxmtrl.diagnosis.shrink import shrink
from jaxmtrl.diagnosis.text import check_text
from jaxmtrl.envs.base import Environment
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.pretrained import read_text, text_folder
from jaxmtrl.rewards.source import env_source
from jaxmtrl.rollout.pack import episode_length
from jaxmtrl.rollout.pool import MultiprocessPool
from jaxmtrl.run_folder import RunFolder
from jaxmtrl.text import tokenizer as tokenizers
from jaxmtrl.text.template import ChatTemplate, chatml
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.types import Task
from jaxmtrl.vocabulary import make_tokenizer

TASKS = 2  # of a split
_TURNS = 3  # that the small cache has room for, if the config's has
_THREADS = 2
_LONGEST_STEP_S = 20.0
_LONGEST_RESET_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found out about a config."""

    findings: tuple[tuple[str, Finding], ...]  # with the title of the section they stand in
    shrunk: tuple[str, ...]  # what was made smaller for it
    seconds: float

    @property
    def passed(self) -> bool:
        return all(finding.passed for _, finding in self.findings)


def examine(config: Config, report: Callable[[str, Sequence[Finding]], None]) -> Diagnosis:
    """Makes every check that the config allows, and goes on after one that fails.

    Writes nothing but into a temporary folder, besides what the environment keeps of the few games that it builds.

    Args:
        report: called with a section's title and findings as they come.

    Raises:
        ConfigError: the config does not fit the environment or the devices.
    """
    began = time.monotonic()
    config = resolved(config)
    environment = check(config)
    kept: list[tuple[str, Finding]] = []

    def tell(section: str, findings: list[Finding]) -> None:
        kept.extend((section, finding) for finding in findings)
        report(section, findings)

    with tempfile.TemporaryDirectory(prefix="jaxmtrl-doctor-") as folder, _exact_products():
        shrunk = _examine(config, environment, RunFolder(Path(folder)), tell)
    return Diagnosis(findings=tuple(kept), shrunk=shrunk, seconds=time.monotonic() - began)


def _examine(
    config: Config, environment: Environment, folder: RunFolder, tell: Callable[[str, list[Finding]], None]
) -> tuple[str, ...]:
    needs = guarded("the machine has what the environment needs", lambda: check_needs(environment))
    if needs:
        tell("environment", needs)
    splits = _tasks_of_splits(config, environment)
    train = splits[config.env.train_split]
    before = {child.pid for child in multiprocessing.active_children()}

    def workers() -> list[int]:
        return [child.pid for child in multiprocessing.active_children() if child.pid and child.pid not in before]

    with contextlib.closing(_pool(config)) as pool:
        plays: list[Play] = []

        def environment_keeps_its_promises() -> list[Finding]:
            for tasks in splits.values():
                environment.prepare(tasks, lambda done, total: None)
            findings, played = check_environment(environment, pool, splits)
            plays.extend(played)
            return findings

        tell("environment", guarded("the environment can be played", environment_keeps_its_promises))
        if not any(play.observations for play in plays):
            return ()
        tell(
            "environment",
            guarded("a killed worker costs its own episode only", lambda: check_crash(pool, train[0], workers)),
        )
        seen = [text for play in plays for text in play.observations]
        if config.text.tokenizer == "pretrained":
            tokenizer, template = read_text(text_folder(config))
        else:
            tokenizer = _tokenizer(config, environment, pool, folder, train, plays)
            template = chatml(tokenizer)
        tell(
            "text", guarded("text stays data", lambda: check_text(tokenizer, template, config.text.system_prompt, seen))
        )
        small = shrink(config, tokens=_tokens(config, template, plays))
        bench = make_bench(small.config, tokenizer, template)
        rehearsals: list[Rehearsal] = []

        def an_episode_can_be_played() -> list[Finding]:
            rehearsals.append(rehearse(bench, pool, train))
            return [*check_parity(bench, rehearsals[0]), *check_compiled(rehearsals[0])]

        tell("sampler and learner", guarded("two iterations can be played and learnt from", an_episode_can_be_played))
    if rehearsals:
        for section, findings in _model_checks(bench, rehearsals[0]):
            tell(section, findings)
    vocab = (
        tokenizer.vocab_size if config.text.tokenizer == "byte" else max(tokenizer.vocab_size, config.text.vocab_size)
    )
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    tell("machine", guarded("the full model fits in memory", lambda: check_memory(config, vocab, mesh)))
    return small.changes


def _model_checks(bench: Bench, rehearsal: Rehearsal) -> Iterator[tuple[str, list[Finding]]]:
    """What is measured on the small model and the first iteration's episodes."""
    played = [episode for episode in (*rehearsal.episodes, *rehearsal.later) if episode_length(episode) > 0]
    episodes = with_made_up_credit(played, turns=2, seed=bench.config.run.seed)
    longer = with_made_up_credit(played, turns=3, seed=bench.config.run.seed)
    gauge = Gauge(bench.network, bench.mesh, bench.config.algorithm, bench.config.sampling.temperature, bench.base)
    checks: list[tuple[str, str, Callable[[], list[Finding]]]] = [
        ("loss and gradient", "layout changes nothing", lambda: check_invariance(bench, gauge, episodes)),
        ("loss and gradient", "observations are read, not learnt", lambda: check_leaks(bench, gauge, episodes)),
        ("credit", "credit reaches who earned it", lambda: check_credit(bench, longer)),
        ("credit", "plays of one task are compared", lambda: check_groups(bench, longer)),
        ("credit", "the KL to the reference", lambda: check_kl(bench, gauge, episodes)),
    ]
    # Nearly all of the time is compiling, which is one thread a program.
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        made = [(section, pool.submit(guarded, name, check)) for section, name, check in checks]
        for section, findings in made:
            yield section, findings.result()


def _tasks_of_splits(config: Config, environment: Environment) -> dict[str, Sequence[Task]]:
    """The first tasks of every split that the config names."""
    names = dict.fromkeys([config.env.train_split, *config.evaluation.splits])
    return {name: environment.split(name).tasks[:TASKS] for name in names}


def _pool(config: Config) -> MultiprocessPool:
    """Two workers, so that one can be lost."""
    return MultiprocessPool(
        *env_source(config),
        workers=2,
        step_timeout_s=min(config.rollout.step_timeout_s, _LONGEST_STEP_S),
        reset_timeout_s=min(config.rollout.reset_timeout_s, _LONGEST_RESET_S),
        recycle_after=0,
        name_states=config.algorithm.name == "gigpo",
    )


def _tokenizer(
    config: Config,
    environment: Environment,
    pool: MultiprocessPool,
    folder: RunFolder,
    tasks: Sequence[Task],
    plays: Sequence[Play],
) -> Tokenizer:
    """The run's own if it has one; else one like it, trained on the little text that was seen."""
    of_run = RunFolder(Path(config.run.dir) / config.run.name).tokenizer
    if (of_run / tokenizers.FILE_NAME).exists():
        return tokenizers.load(of_run)
    if config.text.tokenizer == "bpe":
        texts = [text for play in plays for text in (*play.observations, *play.script)]
        return tokenizers.train_bpe([config.text.system_prompt, *texts], config.text.vocab_size)
    return make_tokenizer(config, folder, environment, pool, tasks)


def _tokens(config: Config, template: ChatTemplate, plays: Sequence[Play]) -> int:
    """Tokens of the longest first few turns that were seen, with actions as long as they may get."""
    cap = config.sampling.max_action_tokens
    lengths = []
    for play in plays:
        if play.observations:
            first, *others = play.observations[:_TURNS]
            length = len(template.first_prompt(config.text.system_prompt, first))
            length += sum(len(template.next_prompt(text, stopped=False)) for text in others)
            lengths.append(length + _TURNS * min(cap, 16))
    return -(-max(lengths) // 64) * 64 + 64


@contextlib.contextmanager
def _exact_products() -> Iterator[None]:
    """Matrix products in full f32 meanwhile: accelerators round their factors unless told otherwise."""
    before = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    if jax.default_backend() != "cpu":
        jax.config.update("jax_default_matmul_precision", "highest")
    try:
        yield
    finally:
        jax.config.update("jax_default_matmul_precision", before)
