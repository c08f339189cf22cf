"""Which rows are tasks, proved by real runs of their tests."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest
from tiny_package import faulty, write_archive

from jaxmtrl.envs.swe import validate
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.loading import load_instances, save_instances
from jaxmtrl.envs.swe.rows import row_hash
from jaxmtrl.envs.swe.sandbox.api import Limits
from jaxmtrl.envs.swe.sandbox.local import Local
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.envs.swe.validate import Verdict, judge, prove


class OwnPython(TreeCache):
    """Gives every row an environment whose Python is ours."""

    def base(self, instance, *, venv=True):
        python = self.folder / "own" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "own" / "lib" / "python3" / "site-packages").mkdir(parents=True, exist_ok=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        return dataclasses.replace(super().base(instance, venv=False), venv=self.folder / "own")


@pytest.fixture
def cache(tmp_path) -> TreeCache:
    return OwnPython(tmp_path / "cache")


@pytest.fixture
def instance(cache) -> SweInstance:
    return faulty(write_archive(cache.archives))


def verdict(cache: TreeCache, instance: SweInstance) -> Verdict:
    return prove(Local(), cache, instance, limits=Limits(), tests_s=120.0)


@pytest.mark.slow
def test_a_row_whose_tests_tell_the_fault_from_its_repair_is_valid(cache, instance):
    assert verdict(cache, instance).valid


GOOD = "tests/test_core.py::test_total"
BAD = "tests/test_core.py::test_clamp[-1-0]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"fail_to_pass": (BAD, GOOD), "pass_to_pass": ()},
            "1 tests of FAIL_TO_PASS pass without a change .*test_total",
        ),
        ({"fail_to_pass": ("tests/test_core.py::no_such",), "pass_to_pass": ()}, "with its repair it is unresolved"),
        ({"pass_to_pass": (GOOD, "tests/test_core.py::test_clamp[11-10]")}, "1 tests of PASS_TO_PASS fail"),
        ({"pass_to_pass": ("tests/none.py::test_x",)}, "1 tests of PASS_TO_PASS fail|do not come to their end"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(cache, instance, fields, words):
    found = verdict(cache, dataclasses.replace(instance, **fields))
    assert not found.valid
    assert re.search(words, found.why), found.why


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"fail_to_pass": ()}, "names no test"),
        ({"patch": ""}, "nobody knows a repair"),
        ({"base": "0" * 64}, "cannot be laid out.*sha256"),
        ({"bug_patch": "--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-x\n+y\n"}, "cannot be laid out.*does not fit"),
    ],
)
def test_a_row_that_cannot_be_laid_out_is_no_task(cache, instance, fields, words):
    found = verdict(cache, dataclasses.replace(instance, **fields))
    assert not found.valid
    assert re.search(words, found.why, re.DOTALL), found.why


def test_a_verdict_is_kept_until_row_environment_or_grader_change(cache, instance, monkeypatch):
    asked = []

    def fake(backend, cache, instance, **_):
        asked.append(instance.id)
        return answers.pop(0)

    monkeypatch.setattr(validate, "prove", fake)
    answers = [Verdict(valid=False, why="the machine failed: no room")] + [Verdict(valid=True, suite_s=3.2)] * 9

    def ask(row=instance):
        ((_, found),) = judge(Local(), cache, [row], tests_s=1.0)
        return found, len(asked)

    assert ask() == (Verdict(valid=False, why="the machine failed: no room"), 1)
    assert ask() == (Verdict(valid=True, suite_s=3.2), 2)  # a machine's failure is not kept
    assert ask()[1] == 2
    assert ask(dataclasses.replace(instance, extra={"suite_s": 9}))[1] == 2  # of no weight
    assert ask(dataclasses.replace(instance, pass_to_pass=()))[1] == 3
    (cache.folder / "own" / "lib" / "python3" / "site-packages" / "new-1.0.dist-info").mkdir()
    assert ask()[1] == 4
    monkeypatch.setattr(
        validate.Verdicts, "__init__", lambda self, folder: vars(self).update(folder=folder, grader="2")
    )
    assert ask()[1] == 5
    for file in (cache.folder / "verdicts").iterdir():
        file.write_text("{broken")
    assert ask()[1] == 6


def test_the_command_parts_the_rows(cache, instance, tmp_path, monkeypatch):
    monkeypatch.setattr(
        validate, "prove", lambda *a, **k: Verdict(valid=a[2].id == "good", why="" if a[2].id == "good" else "no")
    )
    rows = [dataclasses.replace(instance, id=name) for name in ("good", "bad")]
    save_instances(tmp_path / "rows.jsonl", rows)
    arguments = [str(tmp_path / "rows.jsonl"), "--out", str(tmp_path), "--cache", str(cache.folder)]
    assert validate.run([*arguments, "--backend", "local", "--unsafe"]) == 0
    (good,), (bad,) = (load_instances(Path(tmp_path, f"{name}.jsonl")) for name in ("valid", "rejected"))
    assert (good.id, bad.id, bad.extra["rejected"]) == ("good", "bad", "no")
    assert row_hash(good) == row_hash(rows[0])
