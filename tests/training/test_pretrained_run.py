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


def start(folder: Path, source: Path, **sections) -> subprocess.CompletedProcess:
    """A whole run of the smallest size that begins with `source`, in folder/r."""
    config = yaml.safe_load((ROOT / "tests" / "training" / "tiny.yaml").read_text())
    config |= {"model": {"from_pretrained": str(source)}, "pretrain": {"plays": 0}}
    config["run"] = {"name": "r", "dir": str(folder), "compilation_cache": str(ROOT / ".cache" / "jax-tests")}
    config["sft"]["epochs"] = 1
    del config["text"]
    (folder / "run.yaml").write_text(yaml.safe_dump(config | sections))
    command = [sys.executable, "-m", "jaxmtrl.train", "--config", str(folder / "run.yaml")]
    environment = os.environ | {
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=ROOT)


def test_from_a_folder_to_a_folder(tmp_path):
    """One SFT epoch; the model's folder may then go: the run is evaluated and exported by what it has kept."""
    source = model_folder.write(tmp_path / "published")
    done = start(tmp_path, source, rl={"iterations": 0}, critic_warmup={"iterations": 0})
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


@pytest.mark.slow
def test_adapters_from_a_folder_to_a_folder(tmp_path):
    """QLoRA through every stage: only adapters and the critic's head are kept, and they want the weights they know."""
    source = model_folder.write(tmp_path / "published")
    lora = {"rank": 2, "frozen": "nf4", "dropout": 0.1, "targets": ["query", "down"]}
    done = start(tmp_path, source, lora=lora, rl={"iterations": 1, "tasks_per_iteration": 4})
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert f"parameters from {source}, matrices in nf4" in said and "algorithm.kl_reference: base" in said
    run = tmp_path / "r"
    adapters = 2 * (32 + 32) + 2 * (64 + 32)  # of query [32, 32] and of down [64, 32]
    result = json.loads((run / "result.json").read_text())
    whole = sum(leaf.size for leaf in jax.tree.leaves(model_folder.policy()))
    head = result["trained_params"] - adapters
    assert 0 < head < 2000 and result["model_params"] == whole + adapters + head
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["kl/reference_nats"] for line in metrics if line["stage"] == "rl"][0] > 0  # SFT moved it off the base
    written = sum(path.stat().st_size for path in (run / "stages").rglob("*") if path.is_file())
    assert written < 400_000  # four policies; one whole model has 200 kB

    export_run(run, tmp_path / "adapters", policy="rl", dtype="float32", adapters=True)
    assert json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())["r"] == 2
    export_run(run, tmp_path / "begun", policy="untrained", dtype="float32")
    export_run(run, tmp_path / "merged", policy="rl", dtype="float32")
    begun, learnt = (
        load_policy(tmp_path / name, model_folder.network(), tiny.one_device())["layers"]
        for name in ("begun", "merged")
    )
    changed = {
        name for part in begun for name in begun[part] if np.any(np.asarray(begun[part][name]) != learnt[part][name])
    }
    assert changed == {"query", "down"}
    for name in ("query", "key"):  # quantised as it was played
        error = np.abs(begun["attention"][name] - model_folder.policy()["layers"]["attention"][name])
        assert 0 < error.max() < 0.12

    assert evaluate_run(run, splits=None, n=2, policy="latest", temperature=None, episodes_file=None)["heldout"]
    weights = source / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x00\x00\x3f")
    with pytest.raises(JaxmtrlError, match="not those that the adapters of"):
        export_run(run, tmp_path / "other", policy="rl", dtype="float32")
    assert not (tmp_path / "other").exists()
