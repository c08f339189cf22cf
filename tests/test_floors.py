"""The host side stays light: a process that only steps environments or reads configs never imports jax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax"}


@pytest.mark.parametrize(
    "module",
    [
        "jaxmtrl.rollout.worker",
        "jaxmtrl.envs.toy",
        "jaxmtrl.envs.staged",
        "jaxmtrl.envs.alfworld.environment",
        "jaxmtrl.envs.swe.environment",
        "jaxmtrl.config.loading",
        "jaxmtrl.metrics",
        "jaxmtrl.progress",
    ],
)
def test_a_fresh_interpreter_stays_without_jax(module):
    program = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(child.stdout.split())


def test_no_two_test_files_have_one_name():
    """Tests are collected without packages, where a second file of a name is an error of a fresh checkout only."""
    names = [path.name for path in Path(__file__).parent.rglob("*.py")]
    assert sorted(names) == sorted(set(names))
