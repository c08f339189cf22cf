"""Adapters out of a run: added into the weights they adapt, or as a folder of their own that `peft` loads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmtrl.models import safetensors_files
from jaxmtrl.models.decoder import DecoderConfig, Network, Params
from jaxmtrl.models.huggingface import TEXT_FILES, new_folder, parameter_at
from jaxmtrl.models.projection import ADAPTERS, INPUTS
from jaxmtrl.models.quantised import Quantised, dequantise
from jaxmtrl.models.weights import Tensor, tensors

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def merged(network: Network, base: Params, adapters: Params) -> Params:
    """The policy of `network.whole` that plays as the base with these adapters, in f32.

    Args:
        base: what `network.init_base` has under "base"; what is quantised there comes back as it is computed with.
        adapters: what `network.init` has under "policy".
    """
    lora = network.config.lora

    def weights(frozen: Any, beside: Any) -> Any:
        whole = {}
        for name, weight in frozen.items():
            if isinstance(weight, dict):
                whole[name] = weights(weight, beside.get(name, {}))
                continue
            whole[name] = _f32(weight)
            if name + ADAPTERS[0] in beside:
                down, up = beside[name + ADAPTERS[0]], beside[name + ADAPTERS[1]]
                layers = down.shape[0]
                change = down.reshape(layers, -1, lora.rank) @ up.reshape(layers, lora.rank, -1)
                whole[name] = whole[name] + lora.alpha / lora.rank * change.reshape(whole[name].shape)
        return whole

    return weights(base, adapters)


def _f32(weight: Any) -> jax.Array:
    return (dequantise(weight) if isinstance(weight, Quantised) else weight).astype(jnp.float32)


def export_adapters(
    target: Path, network: Network, adapters: Params, *, base_name: str, source: Path, dtype: str
) -> None:
    """Writes a folder that `peft.PeftModel.from_pretrained` loads, whole or not at all.

    Args:
        target: must not exist, or be an empty folder.
        adapters: what `network.init` has under "policy".
        base_name: folder or hub id of the model they adapt.
        source: a folder whose tokenizer and chat template are taken over.
        dtype: of the written weights, "float32", "bfloat16" or "float16".

    Raises:
        ModelFolderError: `target` is taken.
    """
    lora = network.config.lora
    modules = {tensor.path[-1]: tensor.name.split(".")[-2] for tensor in tensors(network.config) if _adaptable(tensor)}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": sorted(modules[name] for name in lora.targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }

    def parts() -> Iterator[tuple[str, np.ndarray]]:
        for tensor in adapter_tensors(network.config):
            leaf = parameter_at(adapters, tensor.path)
            for layer, name in enumerate(tensor.names):
                yield name, tensor.write(np.asarray(jax.device_get(leaf[layer])).astype(jnp.dtype(dtype)))

    with new_folder(target, source, TEXT_FILES) as unfinished:
        (unfinished / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        safetensors_files.write_one(unfinished / WEIGHTS, parts())


def adapter_tensors(config: DecoderConfig) -> Iterator[Tensor]:
    """Every adapter matrix and its published twin: A as [r, in], B as [out, r]."""
    rank = config.lora.rank
    for tensor in tensors(config):
        if not _adaptable(tensor) or tensor.path[-1] not in config.lora.targets:
            continue
        count = INPUTS[tensor.path[-1]]
        name = "base_model.model." + tensor.name.removesuffix("weight")
        yield _twin(
            tensor, ADAPTERS[0], f"{name}lora_A.weight", (*tensor.sizes[:count], rank), ((count,), range(count))
        )
        outs = tensor.sizes[count:]
        yield _twin(tensor, ADAPTERS[1], f"{name}lora_B.weight", (rank, *outs), (range(1, 1 + len(outs)), (0,)))


def _twin(tensor: Tensor, ending: str, name: str, sizes: tuple[int, ...], groups: Sequence[Sequence[int]]) -> Tensor:
    return dataclasses.replace(
        tensor,
        path=(*tensor.path[:-1], tensor.path[-1] + ending),
        name=name,
        sizes=sizes,
        groups=tuple(tuple(group) for group in groups),
    )


def _adaptable(tensor: Tensor) -> bool:
    return tensor.path[-1] in INPUTS and tensor.name.endswith("weight")
