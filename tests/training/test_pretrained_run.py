"""A run that begins with a published model, from its folder to a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import model_folder
import numpy as np
import pytest
import tiny
import yaml

from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.models.huggingface import load_policy
from jaxmtrl.pretrained import read_text
from jaxmtrl.replay import evaluate_run, export_run

ROOT = Path(__file__).parents[2]


def test_from_a_folder_to_a_folder(tmp_path):
    """One SFT epoch; the model's folder may then go: the run is evaluated and exported by what it has kept."""
    source = model_folder.write(tmp_path / "published")
    config = yaml.safe_load((ROOT / "tests" / "training" / "tiny.yaml").read_text())
    config |= {"model": {"from_pretrained": str(source)}, "pretrain": {"plays": 0}, "rl": {"iterations": 0}}
    config["run"] = {"name": "r", "dir": str(tmp_path), "compilation_cache": str(ROOT / ".cache" / "jax-tests")}
    config["sft"]["epochs"], config["critic_warmup"] = 1, {"iterations": 0}
    del config["text"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "jaxmtrl.train", "--config", str(tmp_path / "run.yaml")]
    environment = os.environ | {
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert f"parameters from {source}" in said and "prefix-preserving" in said
    shutil.rmtree(source)

    run = tmp_path / "r"
    figures = evaluate_run(run, splits=None, n=2, policy="sft", temperature=None, episodes_file=None)
    assert figures["heldout"]["n"] == 2
    export_run(run, tmp_path / "begun", policy="untrained", dtype="float32")
    begun = load_policy(tmp_path / "begun", model_folder.network(), tiny.one_device())
    jax.tree.map(np.testing.assert_array_equal, begun, model_folder.policy())
    export_run(run, tmp_path / "learnt", policy="sft", dtype="float32")
    learnt = load_policy(tmp_path / "learnt", model_folder.network(), tiny.one_device())
    assert any(np.any(a != b) for a, b in zip(jax.tree.leaves(learnt), jax.tree.leaves(begun)))
    tokenizer, template = read_text(tmp_path / "learnt")
    assert template.stop_ids == {258, 263} and tokenizer.vocab_size == 264
    assert json.loads((tmp_path / "learnt" / "config.json").read_text())["architectures"] == ["Qwen2ForCausalLM"]
    with pytest.raises(JaxmtrlError, match="not empty"):
        export_run(run, tmp_path / "learnt", policy="sft", dtype="float32")
