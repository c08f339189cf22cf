"""Whose a run folder is: one config's, one process's, and nobody's while nothing has been learnt in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import ResumeError
from jaxmtrl.run_folder import RunFolder, write_json

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "tests" / "training" / "tiny.yaml"


def config(folder: Path, *overrides: str):
    return load_config(CONFIG, [f"run.dir={folder}", *overrides])


def opened(folder: Path, *overrides: str) -> RunFolder:
    run = RunFolder.open(config(folder, *overrides))
    run.close()
    return run


def test_another_config_is_refused_once_a_step_was_taken(tmp_path):
    run = opened(tmp_path)
    (run.path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1}\n')
    opened(tmp_path)
    opened(tmp_path, "log.episodes=9")  # what a person sees may change
    with pytest.raises(ResumeError, match=r"rl.iterations: 4 in the run folder, 5 given"):
        RunFolder.open(config(tmp_path, "rl.iterations=5"))


def test_how_a_judge_is_asked_may_change_and_who_judges_may_not(tmp_path):
    judged = ("reward.parts={env: 0.6, judge: 0.4}", "judge.url=http://localhost:1/v1")
    run = opened(tmp_path, *judged, "judge.model=one")
    (run.path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1}\n')
    asked = ("judge.deadline_s=3", "judge.retries=0", "judge.cache=other", "judge.api_key_env=KEY")
    opened(tmp_path, *judged, *asked, "judge.model=one")
    with pytest.raises(ResumeError, match='judge.model: "one" in the run folder, "two" given'):
        RunFolder.open(config(tmp_path, *judged, "judge.model=two"))


def test_a_run_of_before_a_setting_was_there_goes_on_by_its_default(tmp_path):
    run = opened(tmp_path)
    (run.path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1}\n')
    stored = yaml.safe_load((run.path / "config.yaml").read_text())
    del stored["lora"], stored["algorithm"]["kl_reference"]
    (run.path / "config.yaml").write_text(yaml.safe_dump(stored))
    with pytest.raises(ResumeError, match="algorithm.kl_reference: null in the run folder"):
        RunFolder.open(config(tmp_path, "algorithm.kl_reference=base"))
    opened(tmp_path)
    assert "kl_reference: null" in (run.path / "config.yaml").read_text()


def test_a_folder_in_which_nothing_was_learnt_is_taken_over(tmp_path):
    """A first try that failed, say without states for gigpo, must not stand in the way of the one that was advised."""
    run = opened(tmp_path)
    for name in ("tokenizer", "checkpoints", "stages"):
        (run.path / name).mkdir()
        (run.path / name / "left").write_text("over")
    (run.path / "metrics.jsonl").write_text("")
    again = opened(tmp_path, "rl.iterations=5")
    assert not any((again.path / name).exists() for name in ("tokenizer", "checkpoints", "stages", "metrics.jsonl"))
    assert "iterations: 5" in (again.path / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("checkpoints/9/position/metadata", '{"step": 7}'),
        ("checkpoints/9/position/metadata", "garbage"),
        ("result.json", "{}"),
    ],
)
def test_a_trained_run_whose_records_were_removed_is_not_taken_over(tmp_path, file, content):
    run = opened(tmp_path)
    (run.path / file).parent.mkdir(parents=True, exist_ok=True)
    (run.path / file).write_text(content)
    with pytest.raises(ResumeError, match="was begun with another config"):
        RunFolder.open(config(tmp_path, "rl.iterations=5"))
    assert (run.path / file).read_text() == content


HOLDER = """
import sys, time
from jaxmtrl.config.loading import load_config
from jaxmtrl.run_folder import RunFolder
run = RunFolder.open(load_config(sys.argv[1], ["run.dir=" + sys.argv[2]]))
print("ready", flush=True)
time.sleep(60)
"""


def test_two_processes_never_train_in_one_folder(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDER, str(CONFIG), str(tmp_path)]
    other = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        with pytest.raises(ResumeError, match=rf"tiny is being trained by process {other.pid}; wait for it"):
            RunFolder.open(config(tmp_path))
    finally:
        other.kill()
        other.wait()
    opened(tmp_path)  # the kernel lets go of the lock, whatever the process could not do any more


@pytest.mark.parametrize("content", [b"run: [", b"", b"- 1", b"\xff\xfe\x00", b"a\x00b"])
def test_a_damaged_config_is_one_error(tmp_path, content):
    run = opened(tmp_path)
    (run.path / "config.yaml").write_bytes(content)
    with pytest.raises(ResumeError, match=r"config.yaml (cannot be read|holds no config any more)"):
        RunFolder.open(config(tmp_path))


def test_a_folder_of_something_else_is_left_alone_but_not_for_our_own_leftovers(tmp_path):
    path = tmp_path / "tiny"
    path.mkdir()
    (path / ".config.yaml.x.tmp").write_text("cut short")
    opened(tmp_path)
    other = tmp_path / "else" / "tiny"
    other.mkdir(parents=True)
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(ResumeError, match="is not empty and holds no config.yaml"):
        RunFolder.open(config(tmp_path / "else"))
    assert os.listdir(other) == ["thesis.txt"]


def test_results_are_json_that_anyone_reads(tmp_path):
    with pytest.raises(ValueError):
        write_json(tmp_path / "result.json", {"success": float("nan")})
    assert not (tmp_path / "result.json").exists()
    assert json.loads(write_json(tmp_path / "result.json", {"success": None}).read_text()) == {"success": None}


def kept_with(folder: Path, step: int, *overrides: str) -> RunFolder:
    """A run that keeps its checkpoints in folder/kept and has written one of this step."""
    run = opened(folder, f"checkpoint.folder={folder / 'kept'}", *overrides)
    metadata = folder / "kept" / "checkpoints" / "1" / "position" / "metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(json.dumps({"step": step}))
    return run


def test_checkpoints_elsewhere_belong_to_one_run(tmp_path):
    kept_with(tmp_path, 3)
    for change in ("run.name=other", "run.seed=5"):
        with pytest.raises(ResumeError, match=r"(?s)holds the checkpoints of another run.*" + change.split("=")[0]):
            RunFolder.open(config(tmp_path / "elsewhere", f"checkpoint.folder={tmp_path / 'kept'}", change))
    assert (tmp_path / "kept" / "checkpoints" / "1" / "position" / "metadata").exists()
    # The same run on a new disk, as on a host that was made again, goes on.
    opened(tmp_path / "new_disk", f"checkpoint.folder={tmp_path / 'kept'}")


def test_checkpoints_of_nobody_are_not_taken(tmp_path):
    (tmp_path / "kept" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ResumeError, match="does not say whose"):
        RunFolder.open(config(tmp_path, f"checkpoint.folder={tmp_path / 'kept'}"))


def test_an_untrained_policy_elsewhere_may_be_replaced(tmp_path):
    kept_with(tmp_path, 0)
    opened(tmp_path, f"checkpoint.folder={tmp_path / 'kept'}", "run.seed=5")
    assert not (tmp_path / "kept" / "checkpoints").exists()


@pytest.mark.parametrize("now", ["nowhere", ""])
def test_records_without_their_checkpoints_are_not_begun_anew(tmp_path, now):
    run = kept_with(tmp_path, 3)
    (run.path / "metrics.jsonl").write_text('{"stage": "rl", "step": 3}\n')
    folder = f"checkpoint.folder={tmp_path / now}" if now else 'checkpoint.folder=""'
    with pytest.raises(ResumeError, match=r"no checkpoint to go on from; set checkpoint.folder back to .*kept"):
        RunFolder.open(config(tmp_path, folder))
    assert (run.path / "metrics.jsonl").read_text()
    opened(tmp_path, f"checkpoint.folder={tmp_path / 'kept'}")


def test_a_checkpoint_folder_that_cannot_be_made_leaves_no_run_folder(tmp_path):
    (tmp_path / "file").write_text("in the way")
    settings = config(tmp_path, f"checkpoint.folder={tmp_path / 'file' / 'kept'}")
    with pytest.raises(ResumeError, match=r"checkpoint.folder .*file/kept cannot be made: Not a directory; choose"):
        RunFolder.open(settings)
    assert [child.name for child in tmp_path.rglob("*") if child.name != "file"] in ([], ["runs"])
