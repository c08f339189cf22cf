"""Runs with the action space in stages: SFT, RL and evaluation have the same commands, and a killed run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import ROOT, arrays, environment, lines, run, run_and_kill

from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.actions.verbs import plain, verb_of

STAGES = {"one": ["take", "hit", "unlock"], "two": ["look"], "three": ["open"]}
MACROS = {"unlock X": ["take X key", "open door"]}
SPACE = ActionSpace.of(STAGES, MACROS)
# Every demonstration is "unlock X", "take Y", "hit Z": two commands of the toy in one.
COMMON = [
    f"actions.stages={json.dumps(STAGES)}",
    f"actions.macros={json.dumps(MACROS)}",
    "actions.advance=iterations",
    "actions.at=[1, 3]",
    "sampling.max_action_tokens=14",
    "sampling.cache_length=1024",
    "sampling.attention_buckets=[1024]",
    "batching.row_length=1100",
    "log.episodes=8",
]


def episodes(folder: Path) -> list[dict]:
    return lines(folder / "tiny" / "episodes.jsonl")


def stage_at(episode: dict) -> int:
    """By the run's iterations: 2 epochs of pretraining, 2 of SFT, one of critic warm-up come before RL."""
    if episode["stage"] == "evaluate_rl":
        return 2
    finished = episode["step"] - 6 if episode["stage"] == "rl" else 0
    return (finished >= 1) + (finished >= 3)


@pytest.mark.slow
@pytest.mark.parametrize("enforce", ["prompt", "admissible", "mask"])
def test_the_whole_pipeline_keeps_to_its_stages(tmp_path, enforce):
    done = run(tmp_path, *COMMON, f"actions.enforce={enforce}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "actions: stage one → two (after 1 iterations)" in done.stdout
    records = [line for line in lines(tmp_path / "tiny" / "metrics.jsonl") if line["stage"] == "rl"]
    assert [line["actions/stage"] for line in records] == [0, 1, 1, 2]
    assert max(line["logprob_gap/max_nats"] for line in records) < 1e-4
    found = episodes(tmp_path)
    assert {line["stage"] for line in found} >= {"rl", "evaluate_untrained", "evaluate_sft", "evaluate_rl"}
    for episode in found:
        stage = stage_at(episode)
        first, allowed = episode["turns"][0]["observation"], SPACE.allowed(stage)
        if enforce == "prompt":
            assert first.startswith(SPACE.legend(stage) + "\n")
        if enforce == "admissible":
            listed = first.splitlines()[-1].removeprefix("You can: ").removesuffix(".").split("; ")
            assert listed and {verb_of(command, SPACE.known) for command in listed} <= {*allowed}
            assert ("open door" in listed) == (stage == 2)
        for turn in episode["turns"]:
            verb = verb_of(plain(turn["action"]), SPACE.known)
            refused = turn["metrics"].get("action_refused", 0.0)
            if turn["metrics"] and turn["action"]:
                assert refused == (verb not in allowed)
            if enforce == "mask":
                assert verb in allowed or any(known.startswith(turn["action"]) for known in allowed)


@pytest.mark.slow
def test_evaluate_plays_a_kept_policy_in_its_stage(tmp_path):
    import subprocess
    import sys

    done = run(tmp_path, *COMMON)
    assert done.returncode == 0, done.stdout + done.stderr
    for policy, stage in (("sft", 0), ("latest", 2)):
        file = tmp_path / f"{policy}.jsonl"
        command = [sys.executable, "-m", "jaxmtrl.evaluate", "--run", str(tmp_path / "tiny"), "--policy", policy]
        played = subprocess.run(
            [*command, "--episodes", str(file)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
            cwd=ROOT,
        )
        assert played.returncode == 0, played.stderr
        for episode in lines(file):
            assert episode["turns"][0]["observation"].startswith(SPACE.legend(stage) + "\n")


@pytest.mark.slow
def test_a_server_is_refused_where_the_policy_is_masked(tmp_path):
    from jaxmtrl.config.loading import load_config, save_config
    from jaxmtrl.evaluate import main

    config = load_config(ROOT / "tests" / "training" / "tiny.yaml", [*COMMON, "actions.enforce=mask"])
    save_config(config, tmp_path / "config.yaml")
    assert main(["--run", str(tmp_path), "--server", "http://localhost:1/v1"]) == 2


def curves(folder: Path, name: str = "tiny") -> list[tuple[float, ...]]:
    """Stage, loss and success of each RL iteration."""
    records = [line for line in lines(folder / name / "metrics.jsonl") if line["stage"] == "rl"]
    return [(line["actions/stage"], line["loss/total"], line["episode/success"]) for line in records]


@pytest.mark.slow
def test_a_killed_run_goes_on_in_its_stage(tmp_path):
    settings = [*COMMON, "actions.enforce=mask", "rl.iterations=5"]
    folders = [tmp_path / "straight", tmp_path / "killed"]
    run_and_kill(folders[1], *settings, after_step=8)
    for folder in folders:
        done = run(folder, *settings)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "resuming" in done.stdout
    assert curves(folders[0]) == curves(folders[1])
    assert [stage for stage, *_ in curves(folders[0])] == [0, 1, 1, 2, 2]
    for one, other in zip(*(arrays(folder) for folder in folders), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_success_leads_to_the_next_stage_and_a_killed_run_keeps_what_was_measured(tmp_path):
    """learning.yaml wins about a third of its games after imitation; two iterations of 64 games are a measurement."""
    config = ROOT / "tests" / "training" / "learning.yaml"
    stages = json.dumps({"one": ["take", "open", "hit"], "two": ["look"]})
    settings = [
        f"actions.stages={stages}",
        "actions.enforce=mask",
        "actions.every=2",
        "actions.least=128",
        "actions.confirmations=2",
        "actions.stay=0",
        "actions.advance_above=0.1",
        "rl.iterations=6",
        "checkpoint.every=1",
    ]
    folders = [tmp_path / "straight", tmp_path / "killed"]
    run_and_kill(folders[1], *settings, after_step=26, config=config)  # 22 epochs, a warm-up, 3 of RL
    for folder in folders:
        done = run(folder, *settings, config=config)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "resuming" in done.stdout
    assert curves(folders[0], "learning") == curves(folders[1], "learning")
    assert [stage for stage, *_ in curves(folders[0], "learning")] == [0, 0, 0, 0, 1, 1]


@pytest.mark.slow
def test_demonstrations_that_cannot_be_said_are_left_out_or_end_the_run(tmp_path):
    """Without "unlock" every demonstration needs to open a door."""
    stages = json.dumps({"one": ["take", "hit"], "two": ["open"]})
    done = run(tmp_path, f"actions.stages={stages}", "pretrain.plays=0")
    assert done.returncode == 2 and "none of 8 demonstrations" in done.stderr and "open (8)" in done.stderr
    assert "Traceback" not in done.stderr
