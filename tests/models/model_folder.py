"""A tiny published model with a byte tokenizer and a chat template, as a folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import tiny
from jinja_templates import SMOLLM2, byte_backend

from jaxmtrl.models.decoder import Network
from jaxmtrl.models.huggingface import export_policy

VOCAB = 320  # rows; the tokenizer has 264 entries


def network() -> Network:
    section = dataclasses.replace(tiny.MODEL, layers=1, qkv_bias=True, rope_theta=1e6, norm_eps=1e-5)
    return Network.from_section(section, VOCAB, "float32")


def policy():
    return network().init(jax.random.key(11))["policy"]


def write(folder: Path, template: str | None = SMOLLM2) -> Path:
    """A Qwen2.5 of one layer and 32 dimensions."""
    export_policy(folder, network(), policy(), source=None, dtype="float32", stop_ids=[258, 263], longest=512)
    byte_backend().save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<|begin|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder
