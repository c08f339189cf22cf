"""The command: what it prints, what it returns, and that it leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from doctor_bench import TINY

from jaxmtrl.doctor import main

ROOT = Path(__file__).parents[2]


def test_the_tiny_config_is_sound(tmp_path: Path):
    command = [sys.executable, "-m", "jaxmtrl.doctor", "--config", str(TINY), "--json", f"run.dir={tmp_path / 'runs'}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    read = json.loads(ran.stdout)
    assert read["passed"] and all(finding["passed"] for finding in read["findings"])
    assert {finding["section"] for finding in read["findings"]} == {
        "environment",
        "text",
        "sampler and learner",
        "loss and gradient",
        "credit",
        "machine",
    }
    assert list(tmp_path.iterdir()) == []  # no run folder


def test_a_broken_environment_is_told_and_ends_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # for the workers
    overrides = ["env.factory=short_env:make", "env.options={fault: raise}"]
    assert main(["--config", str(TINY), *overrides]) == 1
    out = capsys.readouterr().out
    assert "FAIL  a task starts the same each time" in out and "broken on purpose" in out


@pytest.mark.parametrize("override", ["model.heads=0", "evaluation.splits={nowhere: 3}"])
def test_a_config_error_ends_with_2(override: str, capsys: pytest.CaptureFixture[str]):
    assert main(["--config", str(TINY), override]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_the_command_itself_imports_nothing_heavy():
    code = "import sys, jaxmtrl.doctor; print([n for n in ('jax', 'rich', 'numpy') if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
