"""Faults set in a tiny package, tried with its own tests by a real pytest."""

from __future__ import annotations

import dataclasses
import sys
from itertools import islice
from pathlib import Path

import pytest
from tiny_package import CODE, write_archive

from jaxmtrl.envs.swe.inject.bench import Bench, Job, _tests_by_line
from jaxmtrl.envs.swe.inject.build import fault_row
from jaxmtrl.envs.swe.inject.command import run
from jaxmtrl.envs.swe.inject.package import Package, is_test
from jaxmtrl.envs.swe.inject.releases import NoRepair, release_row
from jaxmtrl.envs.swe.inject.search import NoStableTests, Search, survey
from jaxmtrl.envs.swe.loading import load_instances, save_instances
from jaxmtrl.envs.swe.patches import apply_patch
from jaxmtrl.envs.swe.rows import parse_row, to_row
from jaxmtrl.envs.swe.sandbox.api import Base
from jaxmtrl.envs.swe.sandbox.local import Local
from jaxmtrl.envs.swe.sources import file_hash, unpack_archive
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.errors import ConfigError

CORE = "tests/test_core.py::"


def package(folder: Path, version: str = "1.0", changed: dict[str, str] | None = None) -> Package:
    """The tiny one, in an environment that is ours: its Python is this one."""
    archive = write_archive(folder / "archives", version, changed)
    tree = folder / f"tree-{version}"
    tree.mkdir()
    unpack_archive(archive, tree)
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return Package(
        name="tiny-pkg",
        version=version,
        sha256=file_hash(archive),
        licence="MIT",
        requirements=(),
        python="3.11",
        roots=(".",),
        tree=tree,
        venv=folder / "venv",
    )


def bench(tree: Path, package: Package) -> Bench:
    return Bench(Local(), Base(tree=tree, venv=package.venv), package.roots)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The package, its bench and what its tests do."""
    made = package(tmp_path_factory.mktemp("tiny"))
    runs = bench(made.tree, made)
    return made, runs, survey(runs, ["."])


def test_the_survey_knows_which_tests_run_which_line(tiny):
    _, _, suite = tiny
    assert len(suite.passing) == 6
    lines = suite.covering["tiny/core.py"]
    clamp = 1 + CODE.split("\n").index(next(line for line in CODE.split("\n") if "the cure" in line))
    assert lines[clamp] == [f"{CORE}test_clamp[{case}]" for case in ("5-5", "-1-0", "11-10")]
    last = len(CODE.rstrip().split("\n"))
    assert last not in lines  # no test runs `untested`


def test_a_fault_that_tests_see_becomes_a_row_that_its_patch_mends(tiny, tmp_path):
    made, runs, suite = tiny
    search = Search(runs, made, suite, seed=0, kinds=["rmguard"])
    fault, other = sorted(search.faults(jobs=1), key=lambda fault: fault.fail_to_pass, reverse=True)
    assert other.fail_to_pass == (f"{CORE}test_first_long",)
    assert fault.fail_to_pass == (f"{CORE}test_total",)
    assert len(fault.pass_to_pass) == 5
    row = fault_row(made, fault, level="b", hidden=True)
    assert row.hidden_files == ("tests/test_core.py",)
    assert row.test_files == ("tests/conftest.py", "tests/test_core.py", "tests/test_other.py")
    assert row.extra["functions"] == ["tiny/core.py:total"] and row.extra["licence"] == "MIT"
    assert "TypeError" in row.problem_statement
    assert parse_row(to_row(row)) == row
    cache = TreeCache(tmp_path)
    write_archive(cache.archives)
    base = cache.base(dataclasses.replace(row, extra={}))
    mended = tmp_path / "mended"
    (mended / "tiny").mkdir(parents=True)
    (mended / "tiny" / "core.py").write_bytes((base.layers[0] / "tiny" / "core.py").read_bytes())
    assert (mended / "tiny" / "core.py").read_text() != CODE
    apply_patch(mended, row.patch)
    assert (mended / "tiny" / "core.py").read_text() == CODE


@pytest.mark.parametrize("data", [b"", b'{"tests": ["a"', b"[]", b'{"tests": [], "files": {"a": {"1": [0]}}}', b"\xff"])
def test_a_coverage_file_that_was_not_written_whole_is_none(data):
    assert _tests_by_line(data) == {}
    assert _tests_by_line(b'{"tests": ["a"], "files": {"b.py": {"1": [0]}}}') == {"b.py": {1: ["a"]}}


@pytest.mark.slow
def test_an_endless_loop_ends_by_the_cpu_time_that_it_takes(tiny):
    _, runs, _ = tiny
    changed = {"tiny/core.py": CODE.replace("    result = start", "    while True: pass").encode()}
    ran = runs.run(Job(targets=[f"{CORE}test_total"], cpu_s=1, changed=changed))
    assert not ran.ended and ran.report.exit_status is None


@pytest.mark.slow
def test_tests_that_do_not_run_are_told_with_what_pytest_says(tiny):
    _, runs, _ = tiny
    with pytest.raises(NoStableTests, match="0 tests pass twice: .*no_such_folder"):
        survey(runs, ["no_such_folder"], coverage=False)


@pytest.mark.slow
def test_rows_are_the_same_bytes_on_every_run_and_with_any_jobs(tiny, tmp_path):
    made, runs, suite = tiny

    def rows(seed: int, jobs: int) -> bytes:
        search = Search(runs, made, suite, seed=seed)
        found = [fault_row(made, fault, level="mixed", hidden=True) for fault in islice(search.faults(jobs), 3)]
        assert search.counts["valid"] == len(found) == 3
        save_instances(tmp_path / "rows.jsonl", found)
        return (tmp_path / "rows.jsonl").read_bytes()

    first = rows(0, 1)
    assert rows(0, 2) == first
    assert rows(1, 2) != first


NEXT = CODE.replace("return result", "return result or 0").replace("word.isalpha()", "not word.isdigit()")
NEXT_TESTS = """
from tiny import first_long, total

def test_digits():
    assert first_long(["ab1"], 3) == "ab1"

def test_total():
    assert total([1]) == 1
"""


@pytest.mark.slow
def test_a_release_that_mends_something_is_a_row(tmp_path):
    old = package(tmp_path)
    changed = {"tiny/core.py": NEXT, "tests/test_core.py": NEXT_TESTS, "tests/data.txt": "x\n"}
    log = "# Changes\n\n## 1.1\n\n- first_long() takes words with digits\n\n## 1.0\n\n- first\n"
    new = package(tmp_path, "1.1", changed | {"CHANGES.md": log})
    row = release_row(old, new, bench, ["."], level="c")
    assert row.id == "tiny-pkg-1.0__release-1.1" and row.source == "release"
    assert row.fail_to_pass == ("tests/test_core.py::test_digits",)
    assert set(row.pass_to_pass) == {"tests/test_core.py::test_total", "tests/test_other.py::test_sum"}
    assert "takes words with digits" in row.problem_statement and "- first\n" not in row.problem_statement
    assert row.bug_patch == "" and row.hidden_files == ()
    cache = TreeCache(tmp_path / "cache")
    write_archive(cache.archives)
    plain = dataclasses.replace(row, extra={})
    assert cache.tests(plain)["tests/test_core.py"].decode() == NEXT_TESTS
    assert cache.gold(plain).files[0].content == NEXT.encode()
    assert (
        cache.base(plain).layers[0] / "tests" / "test_core.py"
    ).read_text() != NEXT_TESTS  # the policy has the old ones
    with pytest.raises(NoRepair, match="differs from 1.0 by 0 characters"):
        release_row(old, old, bench, ["."], level="c")


def test_which_files_are_tests():
    tests = ["tests/data.txt", "a/test/b.py", "test_x.py", "x_test.py", "a/conftest.py", "tests.py"]
    assert all(is_test(path) for path in tests)
    assert not any(is_test(path) for path in ["a/testing.py", "contest.py", "src/a/latest.py", "attest/b.py"])


def test_the_command_wants_a_package_and_known_kinds(tmp_path, capsys):
    with pytest.raises(ConfigError, match="at least one --package"):
        run(["--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        run(["--out", str(tmp_path), "--package", "x", "--kinds", "cmp,typo"])
    assert "typo: none of arith" in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_package_of_the_registry(tmp_path, monkeypatch, capsys):
    """Wants the registry, and bubblewrap or nothing: parse, a small package that ships its tests."""
    arguments = [
        "--package",
        "parse==1.20.2",
        "--out",
        str(tmp_path),
        "--count",
        "3",
        "--cache",
        str(tmp_path / "cache"),
    ]
    monkeypatch.setattr("jaxmtrl.envs.swe.inject.command._TOLD", 2)
    assert run([*arguments, "--unsafe", "--kinds", "cmp,offbyone", "--unseen-kind", "cmp"]) == 0
    said = capsys.readouterr()
    assert "parse: 2 of 3 instances\n" in said.out + said.err
    rows = load_instances(tmp_path / "all.jsonl")
    assert len(rows) == 3 and {row.extra["kind"] for row in rows} == {"cmp", "offbyone"}
    assert all(row.fail_to_pass and len(row.pass_to_pass) > 30 for row in rows)
    assert all(row.extra["requirements"] and row.extra["licence"] for row in rows)
    assert {row.extra["split"] for row in load_instances(tmp_path / "splits" / "unseen_kind.jsonl")} == {"unseen_kind"}
