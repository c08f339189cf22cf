"""Slices by name, sizes without weights, and plans by formula; compiled plans are in `test_tpu_compile.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import ConfigError, ModelFolderError
from jaxmtrl.models.decoder import Network, parameter_count
from jaxmtrl.planning import topology as topologies
from jaxmtrl.planning.plan_of import largest, make_plan
from jaxmtrl.planning.sizes import KNOWN, with_sizes
from jaxmtrl.planning.topology import parse_topology, tpu_devices

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "tpu"
SOME = CONFIGS / "qwen2.5_1.5b_v5e-8.yaml"
TINY = str(ROOT / "tests" / "training" / "tiny.yaml")


@pytest.mark.parametrize(("text", "count", "tpu"), [("v5e:2x4", 8, True), ("v5p:2x2x2", 8, True), ("h200:8", 8, False)])
def test_a_slice_is_a_chip_and_a_grid(text, count, tpu):
    found = parse_topology(text)
    assert (found.count, found.is_tpu, found.name) == (count, tpu, text)


@pytest.mark.parametrize("text", ["v5e", "v5e:", "v5e:2x", "v9:2x2", "v5e:0x4", "v5e:2x2x2x2", "2x4"])
def test_what_is_no_slice_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match="--topology"):
        parse_topology(text)


def test_without_the_compiler_the_way_to_it_is_named(monkeypatch):
    monkeypatch.setattr(topologies.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[tpu\]'.*--formula"):
        tpu_devices(parse_topology("v5e:2x4"))


@pytest.mark.parametrize(("name", "parameters"), [("0.5B", 494), ("1.5B", 1543), ("7B", 7615)])
def test_known_models_have_the_published_number_of_parameters(name, parameters):
    """Millions, as on the models' pages (0.49B, 1.54B, 7.61B)."""
    config = with_sizes(load_config(SOME, [f"model.from_pretrained=Qwen/Qwen2.5-{name}-Instruct"]))
    network = Network.from_section(config.model, config.text.vocab_size, "bfloat16")
    assert parameter_count(network.shapes()["policy"]) // 10**6 == parameters


def test_a_model_that_is_neither_here_nor_known_is_named_with_what_is(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = load_config(SOME, ["model.from_pretrained=nobody/nothing"])
    with pytest.raises(ModelFolderError, match=r"nobody/nothing.*" + next(iter(KNOWN))):
        with_sizes(config)


def plan(*overrides: str, topology: str = "cpu:1"):
    config = with_sizes(load_config(TINY, overrides))
    return make_plan(config, parse_topology(topology), source="", formula=True, action_share=0.5)


def test_work_by_hand():
    """Two rows of 640 tokens, half of them sampled; two blocks of 2·32·(2·2 + 2·1)·16 / 2 + 3·32·64 weights."""
    made = plan("rl.tasks_per_iteration=2", "model.remat=none")
    block = 32 * (2 * 2 + 2 * 1) * 16 + 3 * 32 * 64
    forward = 1280 * (2 * 2 * block + 4 * 2 * 2 * 16 * 320) + 2 * 640 * 32 * made_vocab()
    assert made.tokens == 1280
    assert made.model_flops == pytest.approx(3 * forward)
    assert made.computed_flops == pytest.approx(3 * forward + 2 * 640 * 32 * made_vocab())  # logits are made again
    again = plan("rl.tasks_per_iteration=2", "model.remat=block").computed_flops
    assert again == pytest.approx(4 * forward)  # everything is


def made_vocab() -> int:
    return load_config(TINY).text.vocab_size


def test_a_plan_by_formula_spreads_over_the_chips():
    small = "rl.tasks_per_iteration=16", "batching.micro_batch_rows=8"
    one, eight = plan(*small), plan(*small, "mesh.fsdp=8", topology="h200:8")
    assert eight.formula["state"] < one.formula["state"] / 6
    assert one.fits and 0 < one.mfu <= 1
    with pytest.raises(ConfigError, match="must equal the 4 chips"):
        plan("mesh.data=1", "mesh.fsdp=8", topology="h200:4")


def test_the_search_finds_the_most_that_fits_to_an_eighth():
    config = load_config(TINY, ["rl.tasks_per_iteration=64"])
    tried = []

    def fits(config) -> bool:
        tried.append((config.batching.micro_batch_rows, config.batching.row_length))
        return config.batching.micro_batch_rows <= 37 and config.batching.row_length <= 20_000

    found = largest(config, parse_topology("cpu:1"), fits, lambda line: None)
    assert 33 <= found["batching.micro_batch_rows"] <= 37
    assert 17 * 1024 <= found["batching.row_length"] <= 20_000
    assert len(tried) < 20


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_for_a_slice_loads_and_names_its_slice(path):
    config = with_sizes(load_config(path))
    words = path.read_text()
    (named,) = {
        word.strip("()`.;") for word in words.split() if word.strip("()`.;").startswith(("v5e:", "v6e:", "v5p:"))
    }
    others = config.mesh.fsdp * config.mesh.tensor * config.mesh.data
    assert others == parse_topology(named).count
    assert config.run.name == path.stem
    assert config.sampling.slots == 64


@pytest.mark.slow
def test_the_command_prints_one_object_and_its_exit_code_says_whether_it_fits():
    def run(*arguments: str):
        command = [sys.executable, "-m", "jaxmtrl.plan", "--config", TINY, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)

    done = run("--topology", "cpu:1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fits"] is True
    cache = ("slots=4096", "cache_length=65536", "attention_buckets=[65536]")
    assert run("--topology", "cpu:1", *(f"sampling.{field}" for field in cache)).returncode == 1
    wrong = run("--topology", "v9:1")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ")
