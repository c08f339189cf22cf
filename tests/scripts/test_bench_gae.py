"""The GAE benchmark compares sides that agree, on episodes as rollouts have them, and prints one JSON line."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_gae.py"
spec = importlib.util.spec_from_file_location("bench_gae", SCRIPT)
assert spec and spec.loader
bench_gae = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench_gae)


def test_one_json_line_with_all_sides(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench_gae.py", "--rows", "3", "--columns", "140", "--rounds", "2"])
    assert bench_gae.main() == 0
    (line,) = capsys.readouterr().out.splitlines()
    record = json.loads(line)
    assert record["bench"] == "gae" and record["shape"] == [3, 140] and record["n"] == 2
    assert set(record["peers"]) == {"numpy_loop", "torch_loop"}
    assert set(record["ratios"]) == {"vs_numpy_loop", "vs_torch_loop"}
    assert record["ours"]["least_ms"] <= record["ours"]["median_ms"] <= record["ours"]["most_ms"]
    assert record["ratios"]["vs_numpy_loop"] > 0
    assert (record["ratios"]["vs_torch_loop"] is None) == (record["peers"]["torch_loop"] is None)
    assert record["machine"]["cores"] >= 1


def test_episodes_are_turns_of_60_and_8_tokens_with_padding_behind():
    episodes = bench_gae.make_episodes(16, 68 * 6)
    turns = episodes.action_mask.sum(axis=1) // 8
    assert set(turns) <= {3, 4, 5, 6} and len(set(turns)) > 1
    assert np.array_equal(np.flatnonzero(episodes.action_mask[0])[:9], [*range(60, 68), 128])
    assert np.array_equal((episodes.segment_ids >= 0).sum(axis=1), 68 * turns)
    assert np.array_equal((episodes.rewards != 0).sum(axis=1), turns)
    assert not episodes.rewards[~episodes.action_mask].any()


def test_the_numpy_loop_is_gae_over_action_tokens():
    # Actions at columns 0 and 2; gamma .99, lam .95. At 2: 1 - .5 = .5. At 0: 0 + .99 * .5 - .2 + .9405 * .5 = .76525.
    episodes = bench_gae.Episodes(
        rewards=np.array([[0, 0, 1]], np.float32),
        values=np.array([[0.2, 9, 0.5]], np.float32),
        action_mask=np.array([[True, False, True]]),
        segment_ids=np.zeros((1, 3), np.int32),
    )
    advantages, returns = bench_gae.numpy_loop(episodes)()
    np.testing.assert_allclose(advantages, [[0.76525, 0, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(returns, [[0.96525, 0, 1]], rtol=1e-6)  # and the value on top


def test_sides_that_disagree_are_not_timed(monkeypatch):
    monkeypatch.setattr(bench_gae, "numpy_loop", lambda episodes: lambda: (np.full((2, 70), np.nan),) * 2)
    with pytest.raises(SystemExit, match="numpy_loop and ours differ"):
        bench_gae.benchmark(2, 70, 1)


def test_every_round_times_every_side_once_and_starts_with_another():
    order: list[str] = []
    sides = {name: (lambda name=name: order.append(name)) for name in "abc"}
    times = bench_gae.time_in_turns(sides, 4)
    assert "".join(order) == "abcbcacababc"
    assert all(len(values) == 4 for values in times.values())
