"""The host side stays light: a process that only steps environments or reads configs never imports jax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax"}


@pytest.mark.parametrize(
    "module",
    ["jaxmtrl.rollout.worker", "jaxmtrl.envs.toy", "jaxmtrl.config.loading", "jaxmtrl.metrics", "jaxmtrl.progress"],
)
def test_a_fresh_interpreter_stays_without_jax(module):
    program = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(child.stdout.split())
