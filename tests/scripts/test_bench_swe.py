"""The bench of software tasks plays what it says, counts it, and sees what is left behind."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import shop
from sandboxes import needs_bubblewrap

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("bench_swe", ROOT / "scripts" / "bench_swe.py")
assert spec and spec.loader
bench_swe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench_swe)
pytestmark = needs_bubblewrap()


def test_every_episode_is_won_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_swe, "build_venv", lambda folder, python, requirements: shop.make_venv(folder))
    workshop = bench_swe.OneTask(tmp_path / "bench")
    found = bench_swe.benchmark(workshop, workshop.tasks, episodes=3, workers=2)
    assert found["leaks"] == {"processes": 0, "mounts": 0}
    assert found["episodes_per_min"] > 0 and found["open_ms"] > 0 and found["close_ms"] >= 0
    assert found["command_ms"] > 0 and set(bench_swe.BARS_MS) < set(found)


def test_a_process_that_is_left_is_seen():
    before = bench_swe.left_behind()["processes"]
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert bench_swe.left_behind()["processes"] == before + 1
    finally:
        process.kill()
        process.wait()
    assert bench_swe.left_behind()["processes"] == before
