"""Published model families: what their config.json says in our words, and our sizes in theirs.

Knows no file and no weight. Settings that the decoder does not have are refused by name, all of them at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxmtrl.config.sections import ModelSection
from jaxmtrl.errors import ModelFolderError
from jaxmtrl.models.decoder import DecoderConfig
from jaxmtrl.models.rope import yarn_amplitude

Json = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Family:
    """What sets one published family apart from the others."""

    model_type: str  # in config.json
    architecture: str  # the class of `transformers` that reads it
    qkv_bias: bool
    qk_norm: bool
    head_dim: int | None  # where config.json says nothing; None: embed / heads


FAMILIES = {
    family.model_type: family
    for family in (
        Family("llama", "LlamaForCausalLM", qkv_bias=False, qk_norm=False, head_dim=None),
        Family("qwen2", "Qwen2ForCausalLM", qkv_bias=True, qk_norm=False, head_dim=None),
        Family("qwen3", "Qwen3ForCausalLM", qkv_bias=False, qk_norm=True, head_dim=128),
    )
}

_REQUIRED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
# What must hold of settings the decoder does not have; a missing one is as good as its first value.
_ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish", None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_sliding_window": (False, None),
    "partial_rotary_factor": (1.0, None),
    "quantization_config": (None,),
}
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
_DEFAULT_THETA, _DEFAULT_LENGTH = 10_000.0, 2048  # of `transformers`, where config.json is silent


def describe(published: Json) -> tuple[dict[str, Any], int]:
    """What a config.json says of a decoder.

    Args:
        published: the content of config.json.

    Returns:
        The fields of `ModelSection` that it decides, and V.

    Raises:
        ModelFolderError: another family, a missing size, or settings that the decoder does not have; all are named.
    """
    family = FAMILIES.get(published.get("model_type", ""))
    if family is None:
        raise ModelFolderError(
            f"config.json is of model_type {published.get('model_type')!r}, and only {', '.join(FAMILIES)} can be "
            "read (SmolLM2 is a llama). Choose a model of one of these families."
        )
    problems = [f"{name} is missing" for name in _REQUIRED if not isinstance(published.get(name), int)]
    problems += [
        f"{name} is {published[name]!r}; only {allowed[0]!r} is known"
        for name, allowed in _ONLY.items()
        if name in published and published[name] not in allowed
    ]
    kinds = sorted(set(published.get("layer_types") or []) - {"full_attention"})
    problems += [f"layer_types has {kind!r}; only 'full_attention' is known" for kind in kinds]
    rope = _rope(published, problems)
    heads, embed = published.get("num_attention_heads") or 1, published.get("hidden_size") or 0
    kv_heads = published.get("num_key_value_heads") or heads
    head_dim = published.get("head_dim") or family.head_dim or embed // heads
    if heads % kv_heads:
        problems.append(f"num_key_value_heads is {kv_heads}, which does not divide num_attention_heads ({heads})")
    if head_dim % 2:
        problems.append(f"head_dim is {head_dim}; rotary positions want an even one")
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise ModelFolderError(f"config.json describes a model that this decoder cannot be:\n{listed}")
    sizes = {
        "layers": published["num_hidden_layers"],
        "embed": embed,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "mlp": published["intermediate_size"],
        "tied_head": bool(published.get("tie_word_embeddings", False)),
        "qkv_bias": family.qkv_bias,
        "qk_norm": family.qk_norm,
        "norm_eps": published.get("rms_norm_eps", 1e-6),
    }
    return sizes | rope, published["vocab_size"]


def _rope(published: Json, problems: list[str]) -> dict[str, Any]:
    """The decoder's rope fields, from the nested spelling (`rope_parameters`) or the older one (`rope_scaling`)."""
    said = published.get("rope_scaling") or published.get("rope_parameters") or {}
    kind = said.get("rope_type", said.get("type", "default"))
    if kind not in _ROPE_TYPES:
        problems.append(f"rope type is {kind!r}; only {', '.join(map(repr, _ROPE_TYPES))} are known")
        return {}
    if said.get("partial_rotary_factor", 1.0) != 1.0:
        problems.append(f"partial_rotary_factor is {said['partial_rotary_factor']!r}; only 1.0 is known")
    longest = published.get("max_position_embeddings", _DEFAULT_LENGTH)
    original = (
        published.get("original_max_position_embeddings") or said.get("original_max_position_embeddings") or longest
    )
    factor = said.get("factor") or (longest / original if kind == "yarn" else 1.0)
    wanted = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor"), "yarn": ()}
    problems += [f"rope type {kind!r} has no {name}" for name in wanted.get(kind, ()) if said.get(name) is None]
    defaults = ModelSection()
    return {
        # Not "none": published frequencies are rounded as `transformers` rounds them, which dividing by 1 keeps.
        "rope_scaling": "linear" if kind == "default" else kind,
        "rope_theta": float(said.get("rope_theta") or published.get("rope_theta") or _DEFAULT_THETA),
        "rope_factor": 1.0 if kind == "default" else float(factor),
        "rope_original_length": original,
        "rope_low_frequency": said.get("low_freq_factor") or defaults.rope_low_frequency,
        "rope_high_frequency": said.get("high_freq_factor") or defaults.rope_high_frequency,
        "rope_beta_fast": said.get("beta_fast") or defaults.rope_beta_fast,
        "rope_beta_slow": said.get("beta_slow") or defaults.rope_beta_slow,
        "rope_truncate": said.get("truncate", True),
        "rope_attention_factor": _attention_factor(said, factor) if kind == "yarn" else None,
    }


def _attention_factor(said: Json, factor: float) -> float:
    """YaRN's amplitude: given, or a quotient of two (DeepSeek's spelling), or by the factor alone."""
    if said.get("attention_factor") is not None:
        return said["attention_factor"]
    above, below = said.get("mscale"), said.get("mscale_all_dim")
    if above and below:
        return yarn_amplitude(factor, above) / yarn_amplitude(factor, below)
    return yarn_amplitude(factor)


def family_of(config: DecoderConfig) -> Family:
    """The published family that has the decoder's parts.

    Raises:
        ModelFolderError: none has.
    """
    for family in FAMILIES.values():
        if (family.qkv_bias, family.qk_norm) == (config.qkv_bias, config.qk_norm):
            return family
    raise ModelFolderError(
        "no published family has both biases and norms of queries and keys (model.qkv_bias, model.qk_norm), so the "
        "model cannot be exported."
    )


def published_config(config: DecoderConfig, base: Json, *, dtype: str, longest: int) -> dict[str, Any]:
    """The config.json of a decoder, rope in the nested spelling and in the older one.

    Args:
        base: what the file said before, kept where the decoder says nothing of it; empty for a new model.
        dtype: of the weights beside it.
        longest: max_position_embeddings, where `base` names none.

    Raises:
        ModelFolderError: no published family has these parts.
    """
    family = family_of(config)
    scaling = _published_scaling(config)
    return {
        "max_position_embeddings": longest,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        **base,
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": config.vocab,
        "hidden_size": config.embed,
        "intermediate_size": config.mlp,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_head,
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling if scaling["rope_type"] != "default" else None,
        "rope_parameters": {**scaling, "rope_theta": config.rope_theta},
        "dtype": dtype,
        "torch_dtype": dtype,
    }


def _published_scaling(config: DecoderConfig) -> dict[str, Any]:
    kind = config.rope_scaling
    if kind == "none" or (kind == "linear" and config.rope_factor == 1.0):
        return {"rope_type": "default"}
    scaling: dict[str, Any] = {"rope_type": kind, "factor": config.rope_factor}
    if kind != "linear":
        scaling["original_max_position_embeddings"] = config.rope_original_length
    if kind == "llama3":
        scaling |= {"low_freq_factor": config.rope_low_frequency, "high_freq_factor": config.rope_high_frequency}
    if kind == "yarn":
        scaling |= {"beta_fast": config.rope_beta_fast, "beta_slow": config.rope_beta_slow}
        scaling |= {"truncate": config.rope_truncate, "attention_factor": config.rope.amplitude()}
    return scaling
