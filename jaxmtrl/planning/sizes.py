"""Sizes of a config's model without its weights: a plan fetches no gigabytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxmtrl.config.sections import Config
from jaxmtrl.errors import ModelFolderError
from jaxmtrl.models.huggingface import CONFIG, read_json
from jaxmtrl.pretrained import filled_in

_QWEN25 = {"model_type": "qwen2", "rope_theta": 1e6, "rms_norm_eps": 1e-6, "max_position_embeddings": 32768}
# What config.json says in models that are often trained, for where the hub cannot be reached.
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": _QWEN25
    | {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-1.5B-Instruct": _QWEN25
    | {
        "hidden_size": 1536,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-7B-Instruct": _QWEN25
    | {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
    },
}


def with_sizes(config: Config) -> Config:
    """The config with the sizes, rope and vocabulary of `model.from_pretrained`, from its config.json alone.

    Raises:
        ModelFolderError: it is no folder, not known here, and cannot be fetched.
        ConfigError: fields contradict it.
    """
    name = config.model.from_pretrained
    if not name:
        return config
    folder = Path(name).expanduser()
    if (folder / CONFIG).exists():
        return filled_in(config, read_json(folder / CONFIG), own_template=False)
    if name in KNOWN:
        return filled_in(config, KNOWN[name], own_template=False)
    import huggingface_hub  # late: it takes a while, and only other hub ids need it

    try:
        fetched = Path(huggingface_hub.hf_hub_download(name, CONFIG))
    except Exception as err:  # the library raises its own, requests' and OS errors
        raise ModelFolderError(
            f"model.from_pretrained: {name} is no folder here and its {CONFIG} cannot be fetched "
            f"({type(err).__name__}). Give the folder of a model, or one of {', '.join(KNOWN)}, whose sizes are known."
        ) from err
    return filled_in(config, read_json(fetched), own_template=False)
