"""Runs that begin with a published model: what the folder decides, what contradicts it, and what a run keeps of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import model_folder
import numpy as np
import pytest
import tiny
import yaml

from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import ConfigError, ModelFolderError, TokenizerError
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.state import init_state
from jaxmtrl.models.decoder import Network
from jaxmtrl.models.huggingface import export_policy
from jaxmtrl.models.quantised import dequantise
from jaxmtrl.pretrained import frozen_base, keep_text, pretrained_policy, read_text, resolve
from jaxmtrl.run_folder import RunFolder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return model_folder.write(tmp_path_factory.mktemp("published") / "tiny-qwen")


def config_of(folder: Path, path: Path, *overrides: str):
    file = path / "run.yaml"
    content = {
        "run": {"name": "r", "dir": str(path / "runs")},
        "env": {"factory": "jaxmtrl.envs.toy:make"},
        "model": {"from_pretrained": str(folder)},
    }
    file.write_text(yaml.safe_dump(content))
    return load_config(file, list(overrides))


def test_the_folder_decides_sizes_and_text(folder, tmp_path):
    config = resolve(config_of(folder, tmp_path))
    model, text = config.model, config.text
    assert (model.layers, model.embed, model.heads, model.kv_heads, model.head_dim, model.mlp) == (1, 32, 4, 2, 8, 64)
    assert model.qkv_bias and not model.qk_norm and model.rope_theta == 1e6 and model.norm_eps == 1e-5
    assert (text.tokenizer, text.template, text.vocab_size) == ("pretrained", "pretrained", 320)
    assert resolve(config) == config


def test_other_configs_stay_as_they_are():
    config = load_config(Path(__file__).parents[1] / "configs" / "toy.yaml", [])
    assert resolve(config) is config


def test_what_contradicts_the_folder_is_listed_at_once(folder, tmp_path):
    config = config_of(
        folder, tmp_path, "model.layers=6", "model.mlp=64", "text.tokenizer=byte", "model.critic=separate"
    )
    with pytest.raises(ConfigError) as raised:
        resolve(config)
    assert raised.value.mistakes == (
        "model.layers: got 6, the model's folder says 1; leave it out",
        "text.tokenizer: got 'byte', the model's folder says 'pretrained'; leave it out",
    )


def test_pretrained_text_without_a_model_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"text\.tokenizer: got pretrained, and model\.from_pretrained names no model"
    ):
        config_of(Path(""), tmp_path, "model.from_pretrained=''", "text.tokenizer=pretrained")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ModelFolderError, match="there is no folder"):
        resolve(config_of(tmp_path / "nowhere", tmp_path))


def test_a_run_keeps_the_small_files(folder, tmp_path):
    """So that it goes on where the model's folder is gone; weights are not among them."""
    gone = shutil.copytree(folder, tmp_path / "gone")
    config = resolve(config_of(gone, tmp_path))
    run = RunFolder.open(config)
    keep_text(config, run)
    keep_text(config, run)
    run.close()
    shutil.rmtree(gone)
    assert resolve(config) == config
    assert not list(run.tokenizer.glob("*.safetensors"))
    tokenizer, template = read_text(run.tokenizer)
    assert template.stop_ids == {258, 263} and tokenizer.vocab_size == 264
    assert not list(run.path.glob(".tokenizer*"))


def test_the_copy_of_another_model_is_not_taken(folder, tmp_path):
    """The run's name was used before, for a model that is not this one."""
    config = resolve(config_of(folder, tmp_path))
    run = RunFolder.open(config)
    keep_text(config, run)
    run.close()
    with pytest.raises(ModelFolderError, match="there is no folder"):
        resolve(config_of(tmp_path / "another", tmp_path))
    (run.path / "config.yaml").unlink()
    shutil.rmtree(run.tokenizer)
    assert resolve(config_of(folder, tmp_path)) == config


def test_a_base_model_speaks_chatml_if_it_can(tmp_path):
    bare = model_folder.write(tmp_path / "bare", template=None)
    assert resolve(config_of(bare, tmp_path)).text.template == "chatml"
    assert read_text(bare)[1].turn_end == 258
    text = (bare / "tokenizer.json").read_text().replace("<|im_end|>", "<|other|>")
    (bare / "tokenizer.json").write_text(text)
    (bare / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    with pytest.raises(TokenizerError, match=r"no chat template.*instruct version"):
        read_text(bare)


def test_a_state_begins_with_the_folders_weights(folder, tmp_path):
    """The critic is fresh: its last layer is zero, so its values are."""
    config = resolve(config_of(folder, tmp_path))
    network = Network.from_section(config.model, config.text.vocab_size, "float32")
    said: list[str] = []
    loaded = pretrained_policy(config, network, tiny.one_device(), said.append)
    assert said and str(folder) in said[0]
    optimizer = make_optimizer(
        config.optimizer, network, learning_rate=1.0, critic_learning_rate=1.0, total_steps=1, warmup_steps=0
    )
    state = init_state(network, optimizer, tiny.one_device(), jax.random.key(0), loaded)
    jax.tree.map(np.testing.assert_array_equal, state.params["policy"], model_folder.policy())
    np.testing.assert_array_equal(state.params["critic"]["outer"], 0.0)


def base_of(config, run: RunFolder, *, training: bool):
    network = Network.from_section(config.model, config.text.vocab_size, "float32", config.lora)
    return frozen_base(config, run, network, tiny.one_device(), lambda said: None, training=training)


def adapted_run(folder, tmp_path, *overrides: str):
    config = resolve(config_of(folder, tmp_path, "lora.rank=2", *overrides))
    run = RunFolder.open(config)
    run.close()
    keep_text(config, run)
    return config, run


def learnt(run: RunFolder) -> None:
    """As if a step had been taken."""
    (run.path / "metrics.jsonl").write_text("{}")


@pytest.mark.parametrize("frozen", ["whole", "int8"])
def test_a_base_is_the_folders_weights_and_is_noted(folder, tmp_path, frozen):
    config, run = adapted_run(folder, tmp_path, f"lora.frozen={frozen}")
    base = base_of(config, run, training=True)["base"]
    gate, wanted = base["layers"]["mlp"]["gate"], model_folder.policy()["layers"]["mlp"]["gate"]
    np.testing.assert_allclose(
        gate if frozen == "whole" else dequantise(gate), wanted, atol=0 if frozen == "whole" else 0.01
    )
    learnt(run)
    jax.tree.map(np.testing.assert_array_equal, base_of(config, run, training=True)["base"], base)
    jax.tree.map(np.testing.assert_array_equal, base_of(config, run, training=False)["base"], base)


def test_a_base_that_was_mended_before_anything_was_learnt_is_taken(folder, tmp_path):
    """The first try met half a file, as a download that was cut leaves it."""
    mine = shutil.copytree(folder, tmp_path / "mine")
    config, run = adapted_run(mine, tmp_path)
    weights = mine / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFolderError, match="cut short"):
        base_of(config, run, training=True)
    weights.write_bytes(whole)
    base_of(config, run, training=True)


def test_other_weights_than_those_learnt_over_are_refused(folder, tmp_path):
    """One number in the middle of one tensor of the middle of the file is not seen; the ends of every tensor are."""
    mine = shutil.copytree(folder, tmp_path / "mine")
    config, run = adapted_run(mine, tmp_path)
    base_of(config, run, training=True)
    learnt(run)
    policy = model_folder.policy()
    policy["layers"]["mlp"]["up"] = policy["layers"]["mlp"]["up"] + 0.01  # merged adapters may touch nothing else
    shutil.rmtree(mine)
    export_policy(mine, model_folder.network(), policy, source=None, dtype="float32", stop_ids=[258, 263], longest=512)
    for training in (True, False):
        with pytest.raises(ModelFolderError, match="are not those that the adapters"):
            base_of(config, run, training=training)
    note = run.tokenizer / "base_weights.json"
    for damaged in ("{", "[]", "{}"):
        note.write_text(damaged)
        with pytest.raises(ModelFolderError, match="Put the file back, or train under another run.name"):
            base_of(config, run, training=False)
    note.unlink()
    with pytest.raises(ModelFolderError, match="nobody knows over which weights"):
        base_of(config, run, training=True)
    assert not note.exists()
    shutil.rmtree(mine)
    with pytest.raises(ModelFolderError, match="keeps no other weights, so it wants model.from_pretrained"):
        base_of(config, run, training=False)


def test_a_folder_that_was_mended_before_anything_was_learnt_is_read_again(folder, tmp_path):
    mine = shutil.copytree(folder, tmp_path / "mine")
    config, run = adapted_run(mine, tmp_path)
    said = json.loads((mine / "config.json").read_text())
    (mine / "config.json").write_text(json.dumps(said | {"rope_theta": 5e5, "rope_parameters": None}))
    again = resolve(config_of(mine, tmp_path, "lora.rank=2"))
    assert (config.model.rope_theta, again.model.rope_theta) == (1e6, 5e5)
    RunFolder.open(again).close()
    keep_text(again, run)
    learnt(run)
    (mine / "config.json").write_text("{")
    assert resolve(config_of(mine, tmp_path, "lora.rank=2")) == again  # from here on its own copy counts
