"""Runs of tests/training/tiny.yaml in processes of their own, killed or not, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "tests" / "training" / "tiny.yaml"


def command(folder: Path, *overrides: str, config: Path = CONFIG) -> list[str]:
    return [
        sys.executable, "-m", "jaxmtrl.train", "--config", str(config),
        f"run.dir={folder}", f"run.compilation_cache={ROOT / '.cache' / 'jax-tests'}", *overrides,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    # One device: the tests of meshes are elsewhere, and eight virtual ones only cost time here.
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }


def run(folder: Path, *overrides: str, config: Path = CONFIG) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(folder, *overrides, config=config),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_and_kill(folder: Path, *overrides: str, after_step: int, config: Path = CONFIG) -> None:
    """Starts the run and kills it with all it started once `after_step` is in the metrics."""
    process = subprocess.Popen(
        command(folder, *overrides, config=config),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=ROOT,
    )
    metrics = folder / config.stem / "metrics.jsonl"
    deadline = time.monotonic() + 240
    try:
        while time.monotonic() < deadline:
            if metrics.exists() and f'"step": {after_step}' in metrics.read_text():
                break
            if process.poll() is not None:
                raise AssertionError(f"ended early: {process.stdout.read().decode() if process.stdout else ''}")
            time.sleep(0.02)
        else:
            raise AssertionError("the run never got that far")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def arrays(folder: Path) -> list[np.ndarray]:
    """All arrays of the newest checkpoint, parameters and moments, as they lie on disk."""
    import orbax.checkpoint as ocp

    newest = max(int(path.name) for path in (folder / "tiny" / "checkpoints").iterdir() if path.name.isdigit())
    path = folder / "tiny" / "checkpoints" / str(newest) / "arrays"
    restored = ocp.PyTreeCheckpointer().restore(path.absolute())
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(restored)]
