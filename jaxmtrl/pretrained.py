"""Runs that begin with a published model: what its folder decides of the config, and its text side.

A run keeps a copy of the small files in its own tokenizer folder, so that it can be resumed, evaluated and exported
where the model's folder is gone; the weights are read once, when the run begins.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from jaxmtrl.config.sections import Config, ModelSection, TextSection
from jaxmtrl.config.yaml_format import YamlError, read_yaml
from jaxmtrl.errors import ConfigError, ModelFolderError, TokenizerError
from jaxmtrl.models import safetensors_files
from jaxmtrl.models.decoder import Network, Params, parameter_count
from jaxmtrl.models.families import describe
from jaxmtrl.models.huggingface import CONFIG, load_policy, locate, parameter_at, read_json
from jaxmtrl.parallel.sharding import named_shardings
from jaxmtrl.run_folder import CONFIG_FILE, RunFolder, write_json
from jaxmtrl.text import published
from jaxmtrl.text.template import ChatTemplate, chatml
from jaxmtrl.text.tokenizer import Tokenizer

BASE = "base_weights.json"  # which weights lie under a run's adapters


def resolve(config: Config) -> Config:
    """The config with everything that `model.from_pretrained` decides filled in; others come back as they are.

    Fields that the folder decides are left out of a config or agree with it: sizes, biases, norms, rope and head of
    `model`, and tokenizer, vocab_size and (where the folder has one) template of `text`.

    Raises:
        ConfigError: a field was set to something else; all are listed.
        ModelFolderError, TokenizerError: the folder is not there or cannot be used.
    """
    if not config.model.from_pretrained:
        return config
    folder = text_folder(config)
    try:
        return filled_in(config, read_json(folder / CONFIG), own_template=published.has_template(folder))
    except ModelFolderError as err:
        raise ModelFolderError(f"model.from_pretrained, {folder}: {err}") from err


def filled_in(config: Config, said: Mapping[str, Any], *, own_template: bool) -> Config:
    """The config with what a published model's config.json decides.

    Raises:
        ConfigError: a field was set to something else; all are listed.
        ModelFolderError: the decoder cannot be such a model.
    """
    sizes, vocab = describe(said)
    words: dict[str, Any] = {"tokenizer": "pretrained", "vocab_size": vocab}
    if own_template:
        words["template"] = "pretrained"
    mistakes = [
        *_contradictions("model", config.model, ModelSection(), sizes),
        *_contradictions("text", config.text, TextSection(), words),
    ]
    if mistakes:
        raise ConfigError(f"the config beside model.from_pretrained ({config.model.from_pretrained})", mistakes)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, **sizes),
        text=dataclasses.replace(config.text, **words),
    )


def _contradictions(section: str, given: Any, default: Any, said: dict[str, Any]) -> list[str]:
    """Fields that were set, and not to what the folder says."""
    return [
        f"{section}.{name}: got {getattr(given, name)!r}, the model's folder says {value!r}; leave it out"
        for name, value in said.items()
        if getattr(given, name) not in (getattr(default, name), value)
    ]


def pretrained_policy(config: Config, network: Network, mesh: Mesh, say: Callable[[str], None]) -> Params | None:
    """The policy's parameters that `model.from_pretrained` names; None if a run begins with random ones.

    Raises:
        ModelFolderError: the folder is gone or its weights do not fit.
    """
    name = config.model.from_pretrained
    if not name or network.adapted:
        return None
    policy = load_policy(locate(name), network, mesh)
    say(f"weights: {parameter_count(policy):,} parameters from {name}")
    return policy


def frozen_base(
    config: Config,
    folder: RunFolder,
    network: Network,
    mesh: Mesh,
    say: Callable[[str], None],
    *,
    training: bool,
) -> Params:
    """What lies under the adapters, placed and, by config, quantised: `network.init_base`; {} without adapters.

    Of `model.from_pretrained`, quantised matrix by matrix while it is read; random by the run's seed without it.

    Args:
        training: which weights they are is noted in the run's folder, until something has been learnt over them.

    Raises:
        ModelFolderError: the folder is gone, its weights do not fit, or are others than those the run began with.
    """
    if not network.adapted:
        return {}
    key = jax.random.key(config.run.seed)
    shardings = named_shardings(mesh, network.base_axes(), jax.eval_shape(network.init_base, key))
    name = config.model.from_pretrained
    if not name:
        return jax.jit(network.init_base, out_shardings=shardings)(key)

    def keep(path: tuple[str, ...], weight: jax.Array) -> Any:
        where = parameter_at(shardings["base"], path)
        return jax.jit(lambda x: network.as_frozen(path[-1], x), out_shardings=where, donate_argnums=0)(weight)

    source, found = _base_folder(name, folder)
    beginning = training and not folder.holds_work
    if not beginning:
        _check_base(source, found, folder)
    base = load_policy(source, network.whole, mesh, keep)
    if beginning:
        write_json(folder.tokenizer / BASE, {"from_pretrained": str(source.absolute()), "sha256": found})
    how = "" if config.lora.frozen == "whole" else f", matrices in {config.lora.frozen}"
    say(f"frozen: {parameter_count(network.whole.shapes()['policy']):,} parameters from {name}{how}")
    return {"base": base}


def _base_folder(name: str, folder: RunFolder) -> tuple[Path, str]:
    """Where the weights under a run's adapters lie, and their fingerprint."""
    try:
        source = locate(name)
        return source, safetensors_files.fingerprint(source)
    except ModelFolderError as err:
        raise ModelFolderError(
            f"{folder.path} trains adapters and keeps no other weights, so it wants model.from_pretrained: {err} Put "
            f"the model back, or write its new place into the config and into {folder.path / CONFIG_FILE}."
        ) from err


def _check_base(source: Path, found: str, folder: RunFolder) -> None:
    """Raises ModelFolderError unless the weights in `source` are those that the run has noted."""
    noted = folder.tokenizer / BASE
    try:
        begun = json.loads(noted.read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise ModelFolderError(
            f"{noted} cannot be read ({err!r}), so nobody knows over which weights {folder.path} trained its adapters. "
            "Put the file back, or train under another run.name."
        ) from err
    if begun != found:
        raise ModelFolderError(
            f"the weights in {source} are not those that the adapters of {folder.path} were trained on; put those "
            "back, or choose another run.name."
        )


def text_folder(config: Config) -> Path:
    """Where the small files of the config's published model lie: the run's own copy, or the model's folder.

    As long as nothing has been learnt that is the model's folder, which may have been mended since it was copied.
    """
    run = RunFolder(Path(config.run.dir) / config.run.name)
    name = config.model.from_pretrained
    if not (run.tokenizer / CONFIG).exists() or _begun_with(run.path / CONFIG_FILE) != name:
        return locate(name)
    if run.holds_work:
        return run.tokenizer
    try:
        return locate(name)
    except ModelFolderError:
        return run.tokenizer


def _begun_with(stored: Path) -> str | None:
    """The model that a run's own config names; None if that cannot be read."""
    try:
        content, _ = read_yaml(stored.read_text(encoding="utf-8"))
        return content["model"]["from_pretrained"]
    except (OSError, UnicodeDecodeError, YamlError, KeyError, TypeError):
        return None


def keep_text(config: Config, folder: RunFolder) -> None:
    """Copies the small files into the run's tokenizer folder, all of them or none; nothing once it has learnt."""
    source = text_folder(config)
    if source == folder.tokenizer:
        return
    unfinished = folder.tokenizer.with_name(f".{folder.tokenizer.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for name in published.FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, unfinished / name)
    shutil.rmtree(folder.tokenizer, ignore_errors=True)
    unfinished.rename(folder.tokenizer)


def read_text(folder: Path) -> tuple[Tokenizer, ChatTemplate]:
    """The tokenizer and the chat template of a folder; ChatML for a model without one that knows its tokens.

    Raises:
        TokenizerError: they cannot be used.
    """
    text = published.read(folder)
    if text.template is not None:
        return text.tokenizer, text.template
    try:
        return text.tokenizer, chatml(text.tokenizer)
    except TokenizerError as err:
        raise TokenizerError(
            f"{folder} has no chat template (a base model?), and ChatML cannot stand in: {err} Take the model's "
            "instruct version, or add a chat_template.jinja to a copy of the folder."
        ) from err
