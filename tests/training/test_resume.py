"""A run that was killed goes on as if nothing had happened (case F3), and a changed config is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import ROOT, arrays, environment, lines, run, run_and_kill


def assert_the_policy_moved(folder: Path) -> None:
    """Else equal parameters would prove nothing."""
    norms = [line["update/gradient_norm"] for line in lines(folder / "tiny" / "metrics.jsonl") if line["stage"] == "rl"]
    assert len(norms) == 4 and min(norms) > 1e-3


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """A run from beginning to end."""
    folder = tmp_path_factory.mktemp("straight")
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


# The first of two pretraining epochs, and the second of four RL iterations.
@pytest.mark.parametrize("after_step", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_a_killed_run_ends_bit_equal(straight, tmp_path, after_step):
    run_and_kill(tmp_path, after_step=after_step)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resuming" in done.stdout
    assert_the_policy_moved(straight)
    for one, other in zip(arrays(straight), arrays(tmp_path), strict=True):
        np.testing.assert_array_equal(one, other)
    mine, theirs = (lines(folder / "tiny" / "metrics.jsonl") for folder in (tmp_path, straight))
    assert [line["step"] for line in mine] == [line["step"] for line in theirs] == list(range(1, len(theirs) + 1))
    episodes = [
        [
            (e["step"], e["stage"], e["task_id"], [turn["action_ids"] for turn in e["turns"]])
            for e in lines(folder / "tiny" / "episodes.jsonl")
        ]
        for folder in (tmp_path, straight)
    ]  # fmt: skip
    assert sorted(episodes[0]) == sorted(episodes[1])
    results = [json.loads((folder / "tiny" / "result.json").read_text()) for folder in (tmp_path, straight)]
    assert results[0]["splits"] == results[1]["splits"]


@pytest.mark.slow
@pytest.mark.parametrize("override", ["optimizer.memory=host", "optimizer.name=adamw8"])
def test_a_killed_run_ends_bit_equal_wherever_and_however_its_moments_are_kept(tmp_path, override):
    folders = [tmp_path / "straight", tmp_path / "killed"]
    run_and_kill(folders[1], override, after_step=7)
    for folder in folders:
        done = run(folder, override)
        assert done.returncode == 0, done.stdout + done.stderr
    assert_the_policy_moved(folders[0])
    for one, other in zip(*(arrays(folder) for folder in folders), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_kl_weight_follows_its_target_and_is_logged(straight):
    """Each step multiplies the weight by 1 + clip(kl / 0.02 - 1, -0.2, 0.2) * 4 / 8, from 0.01 on."""
    records = [line for line in lines(straight / "tiny" / "metrics.jsonl") if line["stage"] == "rl"]
    weight = 0.01
    for record in records:
        assert record["kl/coef"] == pytest.approx(weight, rel=1e-5)
        weight *= 1 + np.clip(record["kl/reference_nats"] / 0.02 - 1, -0.2, 0.2) * 4 / 8
    assert weight != pytest.approx(0.01) and all("return/reward_scale" in record for record in records)


def test_the_result_has_every_policy(straight):
    result = json.loads((straight / "tiny" / "result.json").read_text())
    assert set(result) == {"splits", "seed", "model_params", "trained_params", "wall_s"}
    for policy in ("untrained", "pretrain", "sft", "rl"):
        figures = result["splits"]["heldout"][policy]
        assert figures["n"] + figures["failed"] == 4
        low, high = figures["ci95"]
        assert 0 <= low <= figures["success"] <= high <= 1


def test_starting_a_finished_run_again_changes_nothing(straight):
    before = (straight / "tiny" / "metrics.jsonl").read_bytes()
    done = run(straight)
    assert done.returncode == 0, done.stderr
    assert (straight / "tiny" / "metrics.jsonl").read_bytes() == before


def test_another_config_is_refused_with_the_fields_named(straight):
    done = run(straight, "optimizer.learning_rate=0.5", "algorithm.gamma=0.9")
    assert done.returncode == 2
    assert "optimizer.learning_rate" in done.stderr and "algorithm.gamma" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_config_that_the_environment_refuses_leaves_no_folder(tmp_path):
    """Else the corrected command would find a folder that belongs to another config."""
    done = run(tmp_path, "env.options.reward=foo")
    assert done.returncode == 2 and "env.options.reward" in done.stderr
    assert not (tmp_path / "tiny").exists()


def test_evaluate_plays_a_kept_policy(straight):
    done = subprocess.run(
        [sys.executable, "-m", "jaxmtrl.evaluate", "--run", str(straight / "tiny"), "--policy", "sft"],
        env=environment(), capture_output=True, text=True, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    expected = json.loads((straight / "tiny" / "result.json").read_text())["splits"]["heldout"]["sft"]
    assert {name: figures[name] for name in expected} == expected


def test_evaluate_names_what_is_missing(tmp_path):
    from jaxmtrl.evaluate import main

    assert main(["--run", str(tmp_path)]) == 2


def test_a_loss_that_is_not_finite_stops_with_rows_and_checkpoint_named(tmp_path):
    done = run(tmp_path, "pretrain.plays=0", "sft.learning_rate=1e30", "evaluation.splits={}")
    assert done.returncode == 2
    dumps = list((tmp_path / "tiny").glob("nonfinite_step*.npz"))
    assert len(dumps) == 1 and str(dumps[0]) in done.stderr and "Last good checkpoint" in done.stderr
    rows = np.load(dumps[0])
    assert rows["tokens"].shape == rows["action_mask"].shape and rows["action_mask"].any()
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_overlap_trains_to_the_end(tmp_path):
    """Play one update behind: every batch but the first comes from weights one update old."""
    only_rl = ("pretrain.plays=0", "sft.demonstrations=0", "evaluation.splits={}")
    done = run(tmp_path, "rollout.overlap=true", "algorithm.importance_cap=2", *only_rl)
    assert done.returncode == 0, done.stderr
    records = [line for line in lines(tmp_path / "tiny" / "metrics.jsonl") if line["stage"] == "rl"]
    assert len(records) == 4
    gaps = [line["logprob_gap/max_nats"] for line in records]
    assert gaps[0] < 1e-4 < max(gaps[1:]), "later batches were played by the newest weights"
