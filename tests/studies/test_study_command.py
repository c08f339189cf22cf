"""The command from end to end on the toy game: it trains, resumes, refuses, and writes its pages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxmtrl import study as command
from jaxmtrl.studies.reading import read_configs, read_study
from jaxmtrl.studies.results import results_of

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("toy_study.yaml")
ENVIRONMENT = os.environ | {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
}


def arguments(folder: Path, *more: str) -> list[str]:
    return ["--config", str(FILE), "--smoke", "--runs", str(folder), *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Runs of the smoke grid: a cell that reads, and one that begins with its policy."""
    folder = tmp_path_factory.mktemp("studies")
    done = subprocess.run(
        [sys.executable, "-m", "jaxmtrl.study", *arguments(folder)],
        env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_a_study_trains_its_runs_and_writes_its_pages(finished):
    root = finished / "toy_study_smoke"
    content = json.loads((root / "toy_study.json").read_text())
    assert content["seeds"] == [0] and content["n"] == 4 and content["missing"] == []
    assert {(row["cell"], row["policy"]) for row in content["rows"]} >= {("reader", "pretrain"), ("follower", "rl")}
    assert "CPU cores" in content["machines"][0] and content["model_params"] == [27937]
    assert all((root / f"toy_study.{ending}").exists() for ending in ("md", "csv", "png"))


@pytest.mark.slow
def test_the_second_cell_began_with_the_first_ones_policy(finished):
    import numpy as np
    from safetensors.numpy import load_file

    root = finished / "toy_study_smoke"
    assert "weights:" in (root / "logs" / "follower_s0.log").read_text()
    exported = load_file(root / "exported" / "reader_s0_pretrain" / "model.safetensors")
    assert all(array.dtype == np.float32 for array in exported.values())  # the very weights, not rounded ones


@pytest.mark.slow
def test_a_finished_study_trains_nothing_and_writes_the_same(finished, capsys, tmp_path):
    assert command.main(arguments(finished, "--out", str(tmp_path))) == 0
    assert "left: nothing to train" in capsys.readouterr().out
    before = json.loads((finished / "toy_study_smoke" / "toy_study.json").read_text())
    assert json.loads((tmp_path / "toy_study.json").read_text()) == before


def test_a_dry_run_prints_the_cost_and_leaves_nothing(capsys, tmp_path):
    assert command.main(["--config", str(FILE), "--dry-run", "--jobs", "2", "--runs", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    assert "3 cells, 3 seeds each, 9 runs" in out and "left: 2 min of training" in out
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_run_folder_of_other_settings_is_refused(finished, capsys, tmp_path):
    changed = tmp_path / "toy_study.yaml"
    text = FILE.read_text().replace("../training", str(ROOT / "tests" / "training"))
    changed.write_text(text.replace("    rl.iterations: 1\n", "    rl.iterations: 2\n"))
    assert command.main(["--config", str(changed), "--smoke", "--runs", str(finished)]) == 2
    said = capsys.readouterr().err
    assert "follower_s0 was begun with another config" in said
    assert "rl.iterations: 1 in the run folder, 2 given" in said


@pytest.mark.slow
def test_a_policy_that_is_older_than_the_run_it_came_from_is_refused(finished, capsys, tmp_path):
    copy = tmp_path / "toy_study_smoke"
    shutil.copytree(finished / "toy_study_smoke", copy)
    text = (copy / "follower_s0" / "config.yaml").read_text()
    (copy / "follower_s0" / "config.yaml").write_text(text.replace(str(finished), str(tmp_path)))
    assert command.main(arguments(tmp_path, "--dry-run")) == 0
    os.utime(copy / "reader_s0" / "result.json", (time.time() + 60, time.time() + 60))
    capsys.readouterr()
    assert command.main(arguments(tmp_path, "--dry-run")) == 2
    assert "began with" in (said := capsys.readouterr().err) and "remove both folders" in said


@pytest.mark.slow
def test_a_result_that_was_damaged_is_named(finished, capsys, tmp_path):
    copy = tmp_path / "toy_study_smoke"
    shutil.copytree(finished / "toy_study_smoke" / "reader_s0", copy / "reader_s0")
    (copy / "reader_s0" / "result.json").write_text('{"splits": {}')
    assert command.main(arguments(tmp_path, "--pages-only")) == 2
    assert "reader_s0/result.json cannot be read as a run's result" in capsys.readouterr().err


@pytest.mark.slow
def test_pages_of_what_there_is_name_what_is_missing(finished, capsys, tmp_path):
    root = tmp_path / "toy_study_smoke"
    shutil.copytree(finished / "toy_study_smoke" / "reader_s0", root / "reader_s0")
    assert command.main(arguments(tmp_path, "--pages-only")) == 0
    assert json.loads((root / "toy_study.json").read_text())["missing"] == ["follower_s0"]
    assert "**Not complete**: without follower_s0" in (root / "toy_study.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--config: missing"),
        (["--config", "studies/complxity.yaml"], "did you mean studies/complexity.yaml?"),
    ],
)
def test_mistakes_end_with_2_and_one_message(words, said, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert command.main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_whose_child_was_killed_goes_on(finished, tmp_path):
    """The child dies in the middle of its training; the study says so; the same command ends as an unbroken one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "jaxmtrl.study", *arguments(tmp_path)],
        env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lock, metrics = (tmp_path / "toy_study_smoke" / "reader_s0" / name for name in (".lock", "metrics.jsonl"))
    until = time.monotonic() + 240
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(int(lock.read_text().split()[-1]), signal.SIGKILL)
    out = process.communicate(timeout=240)[0]
    assert process.returncode == 1 and "reader_s0 failed: killed by SIGKILL" in out
    assert "follower_s0 was not started, since reader_s0 did not end" in out
    again = subprocess.run(
        [sys.executable, "-m", "jaxmtrl.study", *arguments(tmp_path)],
        env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout
    assert "resuming" in (tmp_path / "toy_study_smoke" / "logs" / "reader_s0.log").read_text()
    rows = [
        json.loads((folder / "toy_study_smoke" / "toy_study.json").read_text())["rows"]
        for folder in (finished, tmp_path)
    ]
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_results_are_read_without_starting_jax(finished):
    study, base = read_study(FILE)
    configs = read_configs(study, base, finished / "toy_study_smoke", smoke=True)
    assert len(results_of(configs)) == 2
    program = "import sys, jaxmtrl.study, jaxmtrl.studies.reading, jaxmtrl.studies.results, jaxmtrl.studies.run; "
    heavy = "print({'jax', 'flax', 'orbax'} & set(sys.modules))"
    child = subprocess.run([sys.executable, "-c", program + heavy], env=ENVIRONMENT, capture_output=True, text=True)
    assert child.stdout.strip() == "set()", child.stdout + child.stderr
