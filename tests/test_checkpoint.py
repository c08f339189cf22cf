"""Checkpoints: arrays and position together or not at all, also when the process is killed in the middle of a write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmtrl.checkpoint import Checkpoints, abstract_of
from jaxmtrl.errors import CheckpointError

ROOT = Path(__file__).parents[1]
WRITER = """
import sys, pathlib
import jax.numpy as jnp
from jaxmtrl.checkpoint import Checkpoints
checkpoints = Checkpoints(pathlib.Path(sys.argv[1]), keep=2)
for step in range(1, 10_000):
    checkpoints.save(step, {"w": jnp.full((400, 1000), step, jnp.float32)}, {"step": step})
    print(step, flush=True)
"""


def test_arrays_and_position_come_back_and_old_ones_go(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3):
        checkpoints.save(step, {"w": jnp.arange(4.0) * step}, {"stage": "rl", "results": {"a": [step, 0.5]}})
    assert checkpoints.steps() == [2, 3] and checkpoints.latest() == 3
    assert checkpoints.position(3) == {"stage": "rl", "results": {"a": [3, 0.5]}}
    restored = checkpoints.arrays(2, abstract_of({"w": jnp.zeros(4)}))
    np.testing.assert_array_equal(restored["w"], np.arange(4.0) * 2)
    checkpoints.close()


def test_no_checkpoint_is_none(tmp_path):
    checkpoints = Checkpoints(tmp_path / "new", keep=None)
    assert checkpoints.latest() is None and checkpoints.steps() == []
    checkpoints.close()


def test_reading_along_touches_nothing(tmp_path):
    """Another process may be writing: its unfinished folder stays, and nothing is made."""
    writer = Checkpoints(tmp_path / "there", keep=2)
    writer.save(1, {"w": jnp.zeros(4)}, {"stage": "rl"})
    writer.close()
    unfinished = tmp_path / "there" / "2.orbax-checkpoint-tmp"
    unfinished.mkdir()
    reader = Checkpoints(tmp_path / "there", keep=1, read_only=True)
    assert reader.latest() == 1 and reader.position(1) == {"stage": "rl"} and unfinished.exists()
    reader.close()


@pytest.mark.parametrize("damage", ["arrays", "position", "position/metadata"])
def test_a_damaged_checkpoint_is_one_error_that_names_the_one_before(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2):
        checkpoints.save(step, {"w": jnp.zeros(4)}, {"stage": "rl"})
    target = tmp_path / "2" / damage
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.write_text("garbage")
    with pytest.raises(CheckpointError, match=r"checkpoint 2 in .* cannot be read .*; the run then goes on from 1"):
        checkpoints.position(2)
        checkpoints.arrays(2, abstract_of({"w": jnp.zeros(4)}))
    checkpoints.close()


def test_a_folder_that_is_a_file_is_one_error(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(CheckpointError, match="checkpoints cannot be used for checkpoints"):
        Checkpoints(tmp_path / "checkpoints", keep=2)


def test_a_kill_during_a_write_leaves_the_checkpoint_before(tmp_path):
    """Case F3: killed while a write is under way; what is then the latest is whole, and saving goes on."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    folder = tmp_path / "checkpoints"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    written = [int(process.stdout.readline()) for _ in range(3)]
    # A temporary folder is a write under way: kill right then.
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not any("tmp" in path.name for path in folder.iterdir()):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    checkpoints = Checkpoints(folder, keep=2)
    latest = checkpoints.latest()
    assert latest is not None and latest >= written[-1]
    abstract = abstract_of({"w": jnp.zeros((400, 1000))})
    np.testing.assert_array_equal(checkpoints.arrays(latest, abstract)["w"], np.full((400, 1000), latest))
    assert checkpoints.position(latest) == {"step": latest}
    checkpoints.save(latest + 1, {"w": jnp.zeros((400, 1000))}, {"step": latest + 1})
    assert checkpoints.latest() == latest + 1
    checkpoints.close()


def test_restored_arrays_are_born_where_the_abstract_tree_says(tmp_path):
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec("x"))
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, {"w": jnp.arange(16.0)}, {})
    restored = checkpoints.arrays(1, {"w": jax.ShapeDtypeStruct((16,), jnp.float32, sharding=split)})["w"]
    assert restored.sharding == split
    np.testing.assert_array_equal(restored, np.arange(16.0))
    checkpoints.close()
