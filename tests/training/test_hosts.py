"""Two real processes train one run: the same numbers as one process, and no survivor that hangs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tiny_runs import CONFIG, ROOT, environment, lines

# A batch of critic warm-up and three updates by RL.
SHORT = ("pretrain.plays=0", "sft.demonstrations=0", "rl.iterations=3", "mesh.data=2")


def command(folder: Path, *arguments: str) -> list[str]:
    cache = ROOT / ".cache" / "jax-tests"
    return [
        *(sys.executable, "-m", "jaxmtrl.train", "--config", str(CONFIG)),
        *(f"run.dir={folder}", f"run.compilation_cache={cache}", *SHORT, *arguments),
    ]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start_two(folder: Path, *second: str) -> list[subprocess.Popen]:
    """Both processes, each with one device; the second with more overrides."""
    port = free_port()
    return [
        subprocess.Popen(
            command(
                folder,
                *(second if index else ()),
                *("--hosts", "--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process-id", str(index)),
            ),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=ROOT,
        )
        for index in (0, 1)
    ]


def finish(processes: list[subprocess.Popen], timeout_s: float = 300) -> list[str]:
    said = [process.communicate(timeout=timeout_s)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    return said


def parameters(folder: Path) -> list[np.ndarray]:
    """Of the newest checkpoint, whichever devices wrote it."""
    newest = max(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdigit())
    path = folder.absolute() / "checkpoints" / str(newest) / "arrays"
    reader = ocp.PyTreeCheckpointer()
    saved = reader.metadata(path).item_metadata.tree
    whole = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), saved)
    return jax.tree.leaves(reader.restore(path, restore_args=whole)["state"]["params"])


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    """The run folder of two processes."""
    folder = tmp_path_factory.mktemp("two")
    said = finish(start_two(folder))
    assert "success" in said[0]
    ours = [line for line in said[1].splitlines() if not line.startswith(("[Gloo]", "waiting for 2 processes"))]
    assert not ours, said[1]  # the second says nothing of the run; the transport speaks for itself
    return folder / "tiny"


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The run folder of one process with two devices."""
    folder = tmp_path_factory.mktemp("one")
    two = environment()
    two["XLA_FLAGS"] += " --xla_force_host_platform_device_count=2"
    done = subprocess.run(command(folder), env=two, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "tiny"


def test_processes_with_different_configs_or_folders_refuse_to_train_together(tmp_path):
    """Else each would play and learn something else, or wait for checkpoints that the other writes elsewhere."""
    processes = start_two(tmp_path, "run.seed=3", f"checkpoint.folder={tmp_path / 'elsewhere'}")
    for process in processes:
        said = process.communicate(timeout=60)[0]
        assert process.returncode == 2, said
        assert "process 1 was started with another config than process 0" in said
        assert "run.seed: 0 in process 0, 3 given in process 1" in said and "checkpoint.folder" in said


@pytest.mark.slow
def test_a_process_may_be_asked_to_stop(tmp_path):
    """SIGTERM, as a scheduler sends it, ends both soon, and no process is left over."""
    processes = start_two(tmp_path)
    metrics = tmp_path / "tiny" / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not (metrics.exists() and metrics.read_text()):
        assert time.monotonic() < deadline and all(process.poll() is None for process in processes)
        time.sleep(0.05)
    processes[0].send_signal(signal.SIGTERM)
    for process in processes:
        process.communicate(timeout=60)
    assert processes[0].returncode == 128 + signal.SIGTERM
    assert processes[1].returncode in (0, 3)  # it may have been at its end


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--processes", "2"), "want --hosts"),
        pytest.param(("--hosts", "--processes", "2"), "go together", marks=pytest.mark.slow),
        (("--hosts", "--coordinator", "nonsense", "--processes", "2", "--process-id", "0"), "did not meet"),
    ],
)
def test_flags_that_say_nothing_together_are_refused(tmp_path, arguments, said):
    done = subprocess.run(
        command(tmp_path, *arguments), env=environment(), capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def curves(folder: Path) -> list[dict[str, float]]:
    """Metrics without what depends on the clock, or on how the sampler rounds.

    One process of two devices samples on both; a process of one device takes products in another order. The tokens are
    the same, their log-probs to rounding, which is what `logprob_gap` measures.
    """
    own = ("time", "speed", "logprob_gap")
    return [
        {name: value for name, value in line.items() if not name.startswith(own)}
        for line in lines(folder / "metrics.jsonl")
    ]


def test_two_processes_train_as_one_does(together, alone):
    """Bit for bit: parameters, every curve, and the result."""
    for found, expected in zip(parameters(together), parameters(alone), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert curves(together) == curves(alone)
    gaps = [
        line["logprob_gap/max_nats"] for line in lines(together / "metrics.jsonl") if "logprob_gap/max_nats" in line
    ]
    assert len(gaps) == 4 and max(gaps) < 1e-4
    results = [json.loads((folder / "result.json").read_text())["splits"] for folder in (together, alone)]
    assert results[0] == results[1]


def test_each_process_keeps_its_own_records_and_they_agree(together):
    assert curves(together / "hosts" / "1") == curves(together)
    assert not (together / "hosts" / "1" / "checkpoints").exists()
    assert not (together / "hosts" / "1" / "tensorboard").exists()


@pytest.mark.slow  # a minute each
@pytest.mark.parametrize("victim", [0, 1])
def test_the_survivor_of_a_killed_process_stops_and_the_run_goes_on(tmp_path, victim, alone):
    """Within a minute, with a message that says what to do; then both again, to the same parameters."""
    processes = start_two(tmp_path)
    metrics = tmp_path / "tiny" / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not (metrics.exists() and '"stage": "rl"' in metrics.read_text()):
        assert time.monotonic() < deadline, "nothing was learnt"
        assert all(process.poll() is None for process in processes), processes[0].communicate()[0]
        time.sleep(0.05)
    os.killpg(processes[victim].pid, signal.SIGKILL)
    survivor = processes[1 - victim]
    said = survivor.communicate(timeout=60)[0]
    assert survivor.returncode != 0
    assert "another process of the run is gone" in said and "start the same command again on every host" in said, said
    finish(start_two(tmp_path))
    for found, expected in zip(parameters(tmp_path / "tiny"), parameters(alone), strict=True):
        np.testing.assert_array_equal(found, expected)
