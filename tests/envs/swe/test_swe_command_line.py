"""The commands of software tasks with odd arguments, folders that take no files, and a hand on the keyboard."""

from __future__ import annotations

import dataclasses
import gzip
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError

import pytest
from tiny_package import faulty, write_archive

from jaxmtrl.envs.swe import validate
from jaxmtrl.envs.swe.command_line import ended, named, positive
from jaxmtrl.envs.swe.inject import command, package
from jaxmtrl.envs.swe.inject.splits import SPLITS
from jaxmtrl.envs.swe.loading import load_instances, save_instances
from jaxmtrl.envs.swe.sources import SourceError
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.envs.swe.validate import Verdict
from jaxmtrl.errors import ConfigError


@pytest.fixture
def instance(tmp_path):
    return faulty(write_archive(tmp_path / "cache" / "archives"))


@pytest.mark.parametrize("words", ["0", "-1", "nan", "-inf"])
def test_a_number_that_makes_no_sense_is_refused(words):
    with pytest.raises(ArgumentTypeError, match="above 0"):
        positive(float)(words)
    assert positive(int)("3") == 3


@pytest.mark.parametrize("option", [("--jobs", "0"), ("--tests-s", "nan"), ("--cache", ""), ("--out", "")])
def test_validate_says_what_is_wrong_with_an_argument(option, capsys):
    with pytest.raises(SystemExit):
        validate.run(["rows.jsonl", "--out", "out", *option])
    assert f"argument {option[0]}" in capsys.readouterr().err
    assert str(named("a/b")) == "a/b"


def test_a_folder_that_takes_no_files_is_told_before_the_work(instance, tmp_path, monkeypatch):
    save_instances(tmp_path / "rows.jsonl", [instance])
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(validate, "judge", lambda *_, **__: pytest.fail("it began"))
    monkeypatch.setattr(command, "prepare", lambda *_, **__: pytest.fail("it began"))
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=f"--out {out}: .*name a folder that can be written to"):
            validate.run([str(tmp_path / "rows.jsonl"), "--out", str(out)])
        with pytest.raises(ConfigError, match=f"--out {out}"):
            command.run(["--package", "parse", "--out", str(out)])


def test_a_folder_of_rows_is_no_place_for_what_is_made_of_them(instance, tmp_path):
    save_instances(tmp_path / "rows" / "all.jsonl", [instance])
    with pytest.raises(ConfigError, match="is read as rows too"):
        validate.run([str(tmp_path / "rows"), "--out", f"{tmp_path}/x/../rows"])


def test_inject_tells_all_that_is_wrong_at_once(tmp_path):
    wrong = [
        "--package",
        "../x",
        "--package",
        "parse==",
        "--package=-r x",
        "--needs",
        "git+https://x",
        "--release",
        "a",
    ]
    with pytest.raises(ConfigError) as caught:
        command.run([*wrong, "1", "", "--unseen-package", "pasre", "--out", str(tmp_path / "out")])
    told = "\n".join(caught.value.mistakes)
    for words in ("'../x'", "'parse=='", "'-r x'", "'git+https://x'", "'a 1 '", "--unseen-package pasre: no --package"):
        assert words in told
    assert not (tmp_path / "out").exists()


def test_an_unseen_package_is_known_by_any_way_to_write_its_name(instance):
    options = command._parser().parse_args(["--out", "x", "--package", "tiny-pkg", "--unseen-package", "Tiny_Pkg"])
    assert list(command._mistakes(options)) == []
    row = dataclasses.replace(instance, extra={"kind": "cmp"})
    assert command._with_split(row, options).extra["split"] == "unseen_package"


def test_a_call_that_gives_nothing_leaves_earlier_rows_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "all.jsonl").write_text("kept")
    monkeypatch.setattr(command, "_of_package", lambda *_: 0)
    monkeypatch.setattr(command, "_benches", lambda _: None)
    assert command.run(["--package", "parse", "--out", str(tmp_path)]) == 1
    assert (tmp_path / "all.jsonl").read_text() == "kept" and "nothing was written" in capsys.readouterr().err


def test_splits_of_an_earlier_call_go(instance, tmp_path):
    command._save(tmp_path, [dataclasses.replace(instance, extra={"kind": "a", "split": split}) for split in SPLITS])
    command._save(tmp_path, [dataclasses.replace(instance, extra={"kind": "a", "split": "heldout"})])
    assert [path.name for path in (tmp_path / "splits").iterdir()] == ["heldout.jsonl"]
    assert len(load_instances(tmp_path / "all.jsonl")) == 1


def test_versions_that_were_kept_and_are_damaged_are_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr(package, "build_venv", lambda *_: ["a==1"])
    lock = tmp_path / "requirements" / "x.json"
    assert package._resolved(lock, ["a"]) == ["a==1"]
    for damage in ("", '{"wanted"', "[]", '{"wanted": ["a"]}'):
        lock.write_text(damage)
        assert package._resolved(lock, ["a"]) == ["a==1"]
    monkeypatch.setattr(package, "build_venv", lambda *_: pytest.fail("it was kept"))
    assert package._resolved(lock, ["a"]) == ["a==1"]


def test_a_damaged_archive_is_told_with_the_cure(tmp_path):
    cache = TreeCache(tmp_path / "cache")
    whole = write_archive(cache.archives).read_bytes()
    archive = cache.archives / "tiny_pkg-1.0.tar.gz"
    for damage in (whole[:300], b"", gzip.compress(b"no tar" * 999), whole[:200] + b"x" + whole[201:]):
        archive.write_bytes(damage)
        with pytest.raises(SourceError, match="remove it, and it is fetched again"):
            package.prepare(cache, "tiny-pkg", "1.0")


def test_what_may_be_the_networks_fault_is_no_lasting_verdict():
    assert Verdict(valid=False, why="with its repair it is unresolved").lasting
    assert not Verdict(valid=False, why="it cannot be laid out: pip found no source archive").lasting
    assert not Verdict(valid=False, why="the machine failed: no room").lasting


WAITS = """
import signal, sys, time
from jaxmtrl.envs.swe.command_line import ended, threads
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs these tests may ignore it
def run():
    with threads(2) as pool:
        print("begun", flush=True)
        list(pool.map(time.sleep, [60] * 9))
sys.exit(ended(run, interrupted="the same command goes on"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_is_not_kept_waiting_and_reads_no_traceback(number):
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(0.2)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (130, "interrupted; the same command goes on\n")


def test_a_full_disk_is_one_line(capsys):
    def run() -> int:
        raise OSError(28, "No space left on device", "/cache/x")

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert ended(run, interrupted="") == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err.startswith("error: /cache/x: No space left on device; mend that")
