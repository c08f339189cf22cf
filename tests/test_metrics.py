"""A run's records hold every step exactly once, whatever was killed when."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from jaxmtrl.errors import RecordError
from jaxmtrl.metrics import MetricsWriter, read_records


def board(folder: Path) -> list[tuple[str, int, float]]:
    """All TensorBoard points: a file is records of u64 length, u32 check sum, bytes, u32 check sum."""
    points = []
    for path in sorted((folder / "tensorboard").iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            points += [(value.tag, event.step, round(value.simple_value, 6)) for value in event.summary.value]
            at += 12 + length + 4
    return points


def steps(folder: Path, name: str = "metrics.jsonl") -> list[int]:
    return [record["step"] for record in read_records(folder / name)]


def test_one_line_a_step_and_one_point_a_number(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=True)
    writer.write(1, "sft", {"sft/loss": 2.5})
    writer.write(2, "rl", {"rl/success": np.float32(0.5), "rl/tokens_per_s": 3100})
    # Readable at once, not only after close.
    first, second = read_records(tmp_path / "metrics.jsonl")
    assert {key: first[key] for key in ("stage", "step", "sft/loss")} == {"stage": "sft", "step": 1, "sft/loss": 2.5}
    assert first["time_s"] <= second["time_s"] and second["rl/success"] == 0.5
    assert board(tmp_path) == [("sft/loss", 1, 2.5), ("rl/success", 2, 0.5), ("rl/tokens_per_s", 2, 3100.0)]
    writer.close()


def test_what_is_absent_is_left_out_and_not_zero(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=True)
    writer.write(1, "rl", {"rl/kl": None, "rl/loss": math.nan, "rl/ratio": math.inf, "rl/reward": 0.0})
    writer.close()
    (line,) = read_records(tmp_path / "metrics.jsonl")
    assert set(line) == {"stage", "step", "time_s", "rl/reward"}
    assert board(tmp_path) == [("rl/reward", 1, 0.0)]


def test_a_metric_may_not_hide_the_lines_own_keys(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    with pytest.raises(ValueError, match="step"):
        writer.write(1, "rl", {"step": 3.0})
    assert not (tmp_path / "tensorboard").exists()


def test_episodes_are_whole_json_lines(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    writer.episodes([{"step": 1, "text": "a\nb é", "ids": np.arange(2), "logprob": float("nan")}, {"step": 1}])
    assert read_records(tmp_path / "episodes.jsonl") == [
        {"step": 1, "text": "a\nb é", "ids": [0, 1], "logprob": None},
        {"step": 1},
    ]


def test_resume_leaves_every_step_exactly_once(tmp_path):
    # Checkpoint at step 2, killed in the middle of writing step 4: 3 and 4 are played again.
    killed = MetricsWriter(tmp_path, tensorboard=True)
    for step in (1, 2, 3):
        killed.write(step, "rl", {"rl/loss": float(step)})
        killed.episodes([{"step": step}])
    for name in ("metrics.jsonl", "episodes.jsonl"):
        with open(tmp_path / name, "a") as file:
            file.write('{"stage": "rl", "step": 4, "ti')

    writer = MetricsWriter.resume(tmp_path, 2, tensorboard=True)
    assert steps(tmp_path) == steps(tmp_path, "episodes.jsonl") == [1, 2]
    for step in (3, 4):
        writer.write(step, "rl", {"rl/loss": 10.0 * step})
        writer.episodes([{"step": step}])
    writer.close()
    assert steps(tmp_path) == steps(tmp_path, "episodes.jsonl") == [1, 2, 3, 4]
    assert board(tmp_path) == [("rl/loss", 1, 1.0), ("rl/loss", 2, 2.0), ("rl/loss", 3, 30.0), ("rl/loss", 4, 40.0)]
    assert not list(tmp_path.glob("*.tmp"))


def test_resume_before_anything_was_written(tmp_path):
    writer = MetricsWriter.resume(tmp_path / "new", 0, tensorboard=True)
    writer.write(1, "sft", {"sft/loss": 1.0})
    assert steps(tmp_path / "new") == [1]


def test_opening_again_cuts_a_torn_line_off(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1, "time_s": 0}\n{"stage"')
    assert steps(tmp_path) == [1]
    MetricsWriter(tmp_path, tensorboard=False).write(2, "rl", {})
    assert steps(tmp_path) == [1, 2]


def test_a_damaged_line_is_not_passed_over(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{broken\n{"step": 2}\n')
    with pytest.raises(RecordError, match="line 2: got"):
        read_records(tmp_path / "metrics.jsonl")


def test_what_was_written_survives_kill_9(tmp_path):
    program = """
import os, signal, sys
from jaxmtrl.errors import RecordError
from jaxmtrl.metrics import MetricsWriter
writer = MetricsWriter(sys.argv[1], tensorboard=True)
for step in range(1, 6):
    writer.write(step, "rl", {"rl/loss": float(step)})
os.kill(os.getpid(), signal.SIGKILL)
"""
    child = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parents[1])
    assert child.returncode == -signal.SIGKILL
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    assert [step for _, step, _ in board(tmp_path)] == [1, 2, 3, 4, 5]


def test_files_hold_one_json_object_a_line(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    writer.write(1, "rl", {"rl/loss": 1.0})
    writer.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.endswith("\n") and json.loads(text)["rl/loss"] == 1.0
    assert os.listdir(tmp_path) and text.count("\n") == 1
