"""Adapters as `peft` writes them down."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file

from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.errors import ModelFolderError
from jaxmtrl.models.adapters import CONFIG, WEIGHTS, export_adapters
from jaxmtrl.models.decoder import Network

LORA = LoraSection(rank=4, alpha=8.0, targets=("query", "out", "down"))
NETWORK = Network.from_section(dataclasses.replace(tiny.MODEL, qkv_bias=True), 40, "float32", LORA)


def stirred():
    rng = np.random.default_rng(0)
    shapes = NETWORK.shapes()["policy"]
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)


def test_names_and_orientation(tmp_path):
    """A is [r, in] and B [out, r], heads and head widths joined; the product is what our matrices give."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "tokenizer.json").write_text("{}")
    adapters = stirred()
    export_adapters(
        tmp_path / "out", NETWORK, adapters, base_name="some/model", source=tmp_path / "source", dtype="float32"
    )
    written = load_file(tmp_path / "out" / WEIGHTS)
    stem = "base_model.model.model.layers"
    places = ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj")
    assert set(written) == {f"{stem}.{i}.{at}.lora_{m}.weight" for i in range(2) for at in places for m in "AB"}
    down, up = (adapters["layers"]["attention"][f"query_lora_{letter}"][1] for letter in "ab")
    delta = np.einsum("dr,rnh->nhd", down, up).reshape(32, 32)
    name = f"{stem}.1.self_attn.q_proj.lora_"
    np.testing.assert_allclose(written[f"{name}B.weight"] @ written[f"{name}A.weight"], delta, rtol=1e-5, atol=1e-5)
    down, up = (adapters["layers"]["attention"][f"out_lora_{letter}"][0] for letter in "ab")
    delta = np.einsum("nhr,rd->dnh", down, up).reshape(32, 32)
    name = f"{stem}.0.self_attn.o_proj.lora_"
    np.testing.assert_allclose(written[f"{name}B.weight"] @ written[f"{name}A.weight"], delta, rtol=1e-5, atol=1e-5)
    config = json.loads((tmp_path / "out" / CONFIG).read_text())
    assert config["target_modules"] == ["down_proj", "o_proj", "q_proj"]
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 8.0, "some/model")
    assert (tmp_path / "out" / "tokenizer.json").exists()
    with pytest.raises(ModelFolderError, match="not empty"):
        export_adapters(tmp_path / "out", NETWORK, adapters, base_name="", source=tmp_path, dtype="float32")
