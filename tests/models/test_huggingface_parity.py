"""Against `transformers` with torch: tiny random models of every family have the same logits here and there."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.models.adapters import export_adapters
from jaxmtrl.models.decoder import Network
from jaxmtrl.models.families import describe
from jaxmtrl.models.huggingface import CONFIG, export_policy, load_policy, read_json

pytestmark = pytest.mark.parity

SIZES = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    "initializer_range": 0.3,  # so that attention is far from uniform
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 2048}
PLAIN = {"rope_type": "default", "rope_theta": 1e6}
MODELS = {
    "llama, rope llama3": ("llama", {"rope_parameters": LLAMA3, "head_dim": 16}),
    "llama, tied, as SmolLM2": ("llama", {"rope_parameters": PLAIN, "tie_word_embeddings": True}),
    "llama, rope linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    "qwen2": ("qwen2", {"rope_parameters": PLAIN}),
    "qwen2, rope yarn": ("qwen2", {"rope_parameters": YARN, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"rope_parameters": PLAIN, "head_dim": 32, "tie_word_embeddings": True}),
    "qwen3, rope yarn": (
        "qwen3",
        {"rope_parameters": YARN | {"attention_factor": 1.3, "truncate": False}, "head_dim": 16},
    ),
}


def published(kind: str, folder):
    """A model of random weights, none of them at its tidy start, and the folder it lies in."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    family, settings = MODELS[kind]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES, **settings)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "norm.weight", "layernorm.weight")):
                parameter.add_(0.3 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    return model


def load(folder, **changes) -> tuple[Network, dict]:
    sizes, vocab = describe(read_json(folder / CONFIG))
    network = Network.from_section(dataclasses.replace(tiny.MODEL, **sizes, **changes), vocab, "float32")
    params = network.init(jax.random.key(3))
    return network, params | {"policy": load_policy(folder, network, tiny.one_device())}


def theirs(model, tokens: np.ndarray, positions: np.ndarray, mask: np.ndarray) -> np.ndarray:
    import torch

    with torch.no_grad():
        out = model(
            input_ids=torch.tensor(tokens, dtype=torch.long),
            position_ids=torch.tensor(positions, dtype=torch.long),
            attention_mask=torch.tensor(mask, dtype=torch.long),
            use_cache=False,
        )
    return out.logits.numpy()


def ours(network: Network, params, tokens: np.ndarray, positions: np.ndarray, segments: np.ndarray) -> np.ndarray:
    hidden = jax.jit(network.hidden)(params, tokens, positions, segments)
    return np.asarray(network.logits(params, hidden))


@pytest.mark.parametrize("kind", MODELS)
def test_frequencies_are_theirs(kind: str):
    """But for one unit in the last place where the two power functions round differently."""
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    family, settings = MODELS[kind]
    for head_dim in (16, 96, 128):
        config = AutoConfig.for_model(family, **SIZES, **(settings | {"head_dim": head_dim}))
        if config.rope_parameters["rope_type"] == "default":
            continue
        wanted, amplitude = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config)
        sizes, vocab = describe(config.to_dict())
        rope = Network.from_section(dataclasses.replace(tiny.MODEL, **sizes), vocab, "float32").config.rope
        assert rope.amplitude() == pytest.approx(amplitude, rel=1e-12)
        np.testing.assert_allclose(rope.frequencies(), wanted.numpy(), rtol=1.2e-7)


@pytest.mark.parametrize("kind", MODELS)
def test_logits_equal(kind: str, tmp_path):
    """With right padding, at the start and beyond position 4,096, and packed as two segments of one row."""
    model = published(kind, tmp_path / "published")
    network, params = load(tmp_path / "published")
    tokens = np.random.default_rng(1).integers(0, 131, (2, 40)).astype(np.int32)
    live = np.arange(40) < np.array([[40], [23]])
    segments = np.where(live, 0, -1).astype(np.int32)
    for start in (0, 4_200, 9_999):
        positions = np.broadcast_to(np.arange(start, start + 40, dtype=np.int32), (2, 40))
        wanted = theirs(model, tokens, positions, live)
        got = ours(network, params, tokens, positions, segments)
        assert np.std(wanted) > 0.3
        np.testing.assert_allclose(got[live], wanted[live], atol=1e-4, rtol=1e-4)
    first, second = tokens[:1, :15], tokens[1:, :25]
    packed = ours(
        network,
        params,
        np.concatenate([first, second], axis=1),
        np.concatenate([np.arange(15), np.arange(25)])[None].astype(np.int32),
        np.repeat([0, 1], [15, 25])[None].astype(np.int32),
    )
    alone = theirs(model, second, np.arange(25)[None], np.ones((1, 25)))
    np.testing.assert_allclose(packed[:, 15:], alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_round_trip(kind: str, tmp_path):
    """Case F5: exported and read by `transformers`, the same logits; a tied head has no second copy."""
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    published(kind, tmp_path / "published")
    network, params = load(tmp_path / "published", vocab_multiple=64)
    changed = params["policy"] | {"outside": jax.tree.map(lambda leaf: leaf * 1.01, params["policy"]["outside"])}
    export_policy(tmp_path / "exported", network, changed, source=None, dtype="float32", stop_ids=[7], longest=32_768)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    assert model.config.vocab_size == 131 and model.generation_config.eos_token_id == [7]
    tokens = np.random.default_rng(2).integers(0, 131, (1, 30)).astype(np.int32)
    positions = np.arange(5_000, 5_030, dtype=np.int32)[None]
    got = ours(network, params | {"policy": changed}, tokens, positions, np.zeros_like(tokens))
    wanted = theirs(model, tokens, positions, np.ones_like(tokens))
    np.testing.assert_allclose(got[..., :131], wanted, atol=1e-4, rtol=1e-4)
    with safe_open(tmp_path / "exported" / "model.safetensors", "numpy") as file:
        assert ("lm_head.weight" in file.keys()) == (not network.config.tied_head)


@pytest.mark.parametrize("kind", ["llama, tied, as SmolLM2", "qwen2", "qwen3"])
def test_adapters_are_read_by_peft(kind: str, tmp_path):
    """The model with our adapters beside it, and the model with them merged by `peft`, say what we say."""
    from peft import PeftModel

    model = published(kind, tmp_path / "published")
    plain, params = load(tmp_path / "published")
    lora = LoraSection(rank=3, alpha=5.0, targets=("query", "value", "out", "gate", "down"))
    network = Network(dataclasses.replace(plain.config, lora=lora))
    rng = np.random.default_rng(4)
    adapters = jax.tree.map(
        lambda leaf: (0.2 * rng.normal(size=leaf.shape)).astype(np.float32), network.shapes()["policy"]
    )
    export_adapters(
        tmp_path / "adapters", network, adapters, base_name="published", source=tmp_path / "published", dtype="float32"
    )
    tokens = rng.integers(0, 131, (2, 30)).astype(np.int32)
    positions = np.tile(np.arange(30, dtype=np.int32), (2, 1))
    joined = params | {"base": params["policy"], "policy": adapters}
    got = ours(network, joined, tokens, positions, np.zeros_like(tokens))
    before = theirs(model, tokens, positions, np.ones_like(tokens))
    assert np.abs(got - before).max() > 0.1
    adapted = PeftModel.from_pretrained(model, tmp_path / "adapters").eval()
    np.testing.assert_allclose(got, theirs(adapted, tokens, positions, np.ones_like(tokens)), atol=1e-4, rtol=1e-4)
    merged = adapted.merge_and_unload()
    np.testing.assert_allclose(got, theirs(merged, tokens, positions, np.ones_like(tokens)), atol=1e-4, rtol=1e-4)
