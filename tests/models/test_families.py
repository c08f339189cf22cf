"""config.json in our words and ours in its: both spellings of rope, defaults of each family, refusals by name."""

from __future__ import annotations

import dataclasses

import pytest
import tiny

from jaxmtrl.errors import ModelFolderError
from jaxmtrl.models.decoder import DecoderConfig, Network
from jaxmtrl.models.families import describe, published_config

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131_072,
}


def config_of(published) -> DecoderConfig:
    sizes, vocab = describe(published)
    return Network.from_section(dataclasses.replace(tiny.MODEL, **sizes), vocab, "float32").config


def test_sizes_of_a_llama():
    sizes, vocab = describe(LLAMA)
    assert vocab == 100
    assert (sizes["layers"], sizes["embed"], sizes["heads"], sizes["kv_heads"], sizes["mlp"]) == (3, 64, 4, 2, 96)
    assert (sizes["head_dim"], sizes["tied_head"], sizes["norm_eps"]) == (16, False, 1e-5)
    assert not sizes["qkv_bias"] and not sizes["qk_norm"]


def test_what_a_family_leaves_out():
    """Without num_key_value_heads every head has its own; Qwen3's heads are 128 wide, others embed / heads."""
    assert describe({k: v for k, v in LLAMA.items() if k != "num_key_value_heads"})[0]["kv_heads"] == 4
    assert describe(LLAMA | {"head_dim": 24})[0]["head_dim"] == 24
    assert describe(LLAMA | {"model_type": "qwen2"})[0]["qkv_bias"]
    qwen3 = describe(LLAMA | {"model_type": "qwen3"})[0]
    assert qwen3["qk_norm"] and not qwen3["qkv_bias"] and qwen3["head_dim"] == 128


@pytest.mark.parametrize(
    "scaling",
    [
        {"factor": 2.0, "type": "linear"},
        {"factor": 8.0, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        | {"original_max_position_embeddings": 8192},
        {"factor": 4.0, "type": "yarn", "original_max_position_embeddings": 32_768},
    ],
)
def test_both_spellings_of_rope_say_the_same(scaling):
    old = describe(LLAMA | {"rope_theta": 5e5, "rope_scaling": scaling})[0]
    nested = describe(LLAMA | {"rope_parameters": scaling | {"rope_theta": 5e5}})[0]
    assert old == nested
    assert old["rope_theta"] == 5e5 and old["rope_factor"] == scaling["factor"]
    assert old["rope_scaling"] == scaling.get("rope_type", scaling.get("type"))


def test_rope_without_scaling():
    """Kept as linear by 1, whose roundings are those of published models; without a theta it is 10,000."""
    for published in (
        LLAMA,
        LLAMA | {"rope_theta": 1e4, "rope_scaling": None},
        LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ):
        sizes = describe(published)[0]
        assert (sizes["rope_scaling"], sizes["rope_factor"], sizes["rope_theta"]) == ("linear", 1.0, 1e4)


def test_yarn_without_a_factor_or_with_two_scales():
    """131072 / 32768 = 4; (0.1 * 1 ln 4 + 1) / (0.1 * .5 ln 4 + 1) = 1.138629 / 1.069315 = 1.064821."""
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 32_768, "mscale": 1.0, "mscale_all_dim": 0.5}
    sizes = describe(LLAMA | {"rope_scaling": yarn})[0]
    assert sizes["rope_factor"] == 4.0
    assert sizes["rope_attention_factor"] == pytest.approx(1.064821, abs=1e-6)


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_an_unknown_rope_type_is_refused_by_name(spelling, key):
    with pytest.raises(ModelFolderError, match="'dynamic'; only 'default', 'linear', 'llama3', 'yarn'"):
        describe(LLAMA | {spelling: {key: "dynamic", "factor": 2.0}})


def test_another_family_is_refused():
    with pytest.raises(ModelFolderError, match=r"'gemma3'.*llama, qwen2, qwen3"):
        describe(LLAMA | {"model_type": "gemma3"})


def test_all_unknown_settings_are_listed_at_once():
    odd = LLAMA | {"hidden_act": "gelu", "attention_bias": True, "quantization_config": {"bits": 4}}
    odd |= {"num_key_value_heads": 3, "head_dim": 9}
    odd |= {"layer_types": ["full_attention", "sliding_attention"], "rope_scaling": {"type": "linear"}}
    del odd["intermediate_size"]
    with pytest.raises(ModelFolderError) as raised:
        describe(odd)
    text = str(raised.value)
    for word in ("hidden_act", "attention_bias", "quantization_config", "sliding_attention", "intermediate_size"):
        assert word in text
    assert "'linear' has no factor" in text
    assert "num_key_value_heads is 3, which does not divide num_attention_heads (4)" in text
    assert "head_dim is 9" in text


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qkv_bias": True, "rope_scaling": "yarn", "rope_factor": 4.0, "rope_truncate": False},
        {"qk_norm": True, "rope_scaling": "llama3", "rope_factor": 8.0, "rope_low_frequency": 2.0},
        {"tied_head": False, "rope_scaling": "linear", "rope_factor": 3.0},
    ],
)
def test_a_decoder_survives_its_config_json(changes):
    """But for the way plain frequencies are rounded, and a YaRN amplitude that is written out."""
    config = Network.from_section(dataclasses.replace(tiny.MODEL, **changes), 259, "float32").config
    published = published_config(config, {}, dtype="float32", longest=512)
    back = config_of(published)
    if config.rope_scaling == "none":
        config = dataclasses.replace(config, rope_scaling="linear")
    original = config.rope_original_length if config.rope_scaling in ("llama3", "yarn") else 512
    factor = config.rope.amplitude() if config.rope_scaling == "yarn" else None
    assert back == dataclasses.replace(config, rope_original_length=original, rope_attention_factor=factor)
    assert published["dtype"] == published["torch_dtype"] == "float32"


def test_what_a_config_json_said_else_is_kept():
    base = LLAMA | {"bos_token_id": 1, "eos_token_id": [2, 3], "initializer_range": 0.1, "architectures": ["X"]}
    published = published_config(config_of(base), base, dtype="bfloat16", longest=512)
    assert published["eos_token_id"] == [2, 3] and published["max_position_embeddings"] == 131_072
    assert published["architectures"] == ["LlamaForCausalLM"] and published["initializer_range"] == 0.1


def test_biases_with_norms_have_no_family():
    config = Network.from_section(dataclasses.replace(tiny.MODEL, qkv_bias=True, qk_norm=True), 259, "float32").config
    with pytest.raises(ModelFolderError, match="no published family"):
        published_config(config, {}, dtype="float32", longest=512)
