"""Every test runs on eight virtual CPU devices, whatever the machine has, with compiled programs kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

# Before the first import of jax, here and in the child processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
# Level 0 halves the time of compiling, which is most of the time of these tests.
_FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parents[1] / ".cache" / "jax-tests")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# The same examples every time: a red test stays red. Compilation makes single examples slow, so there is no deadline.
settings.register_profile("house", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("house")

# Files that take longest, which two processes had better begin with: a file stays with one of them.
_LONG = (
    "test_hosts",
    "test_pretrained_run",
    "test_resume",
    "test_invariance",
    "test_frozen_base",
    "test_credit_checks",
)


def pytest_collection_modifyitems(items: list) -> None:
    """Long files first; the order within a file stays."""
    items.sort(key=lambda item: _LONG.index(item.path.stem) if item.path.stem in _LONG else len(_LONG))
