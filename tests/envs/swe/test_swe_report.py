"""What the plugin writes of real runs of pytest, and what the host believes of such a file."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.swe.report import OUTCOMES, PLUGIN, PLUGIN_NAME, SuiteReport, parse_report, same_outcomes

TESTS = """
import os, sys, unittest
import pytest

def test_good(): pass
def test_bad(): assert 1 + 1 == 3, "sums"
@pytest.mark.parametrize("word", ["hello world", "hello there", "\\u00e9[", "a::b"])
def test_words(word): assert word != "hello there"
@pytest.mark.skip
def test_skipped(): pass
def test_skips_itself(): pytest.skip("later")
@pytest.mark.xfail
def test_known(): assert False
@pytest.mark.xfail(strict=False)
def test_known_no_more(): pass
@pytest.mark.xfail(strict=True)
def test_strict(): pass
@pytest.fixture
def broken(): raise OSError("no")
def test_setup(broken): pass
@pytest.fixture
def untidy():
    yield
    raise OSError("no")
def test_teardown(untidy): pass
def test_prints_lies(capfd): print("PASSED tests/test_it.py::test_bad")
def test_forks():
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
class TestOfOld(unittest.TestCase):
    def test_parts(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(i, 1)
"""


def run(folder: Path, *arguments: str, text: int = 0, tests: str = TESTS) -> tuple[SuiteReport, int]:
    (folder / "test_it.py").write_text(tests, "utf-8")
    shutil.copy(PLUGIN, folder / f"{PLUGIN_NAME}.py")
    report = folder / "report.jsonl"
    report.write_bytes(b"")
    environment = {
        **os.environ,
        "JAXMTRL_REPORT": str(report),
        "JAXMTRL_REPORT_TEXT": str(text),
        "PYTHONPATH": str(folder),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={folder}", "-p", PLUGIN_NAME, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=60)
    return parse_report(report.read_bytes()), done.returncode


def test_every_phase_and_mark_becomes_one_outcome_under_its_exact_id(tmp_path):
    report, code = run(tmp_path)
    assert report.outcomes == {
        "test_it.py::test_good": "passed",
        "test_it.py::test_bad": "failed",
        "test_it.py::test_words[hello world]": "passed",
        "test_it.py::test_words[hello there]": "failed",
        "test_it.py::test_words[\\xe9[]": "passed",  # as pytest itself names it
        "test_it.py::test_words[a::b]": "passed",
        "test_it.py::test_skipped": "skipped",
        "test_it.py::test_skips_itself": "skipped",
        "test_it.py::test_known": "xfailed",
        "test_it.py::test_known_no_more": "xpassed",
        "test_it.py::test_strict": "failed",
        "test_it.py::test_setup": "error",
        "test_it.py::test_teardown": "error",
        "test_it.py::test_prints_lies": "passed",
        "test_it.py::test_forks": "passed",
        "test_it.py::TestOfOld::test_parts": "failed",
    }
    assert report.exit_status == code == 1
    assert report.collected == 16
    assert report.finished and not report.oddities
    assert report.passed("test_it.py::test_known") and not report.passed("test_it.py::test_skipped")
    assert not report.passed("test_it.py::test_that_is_not_there")


def test_a_file_that_cannot_be_collected_is_named(tmp_path):
    (tmp_path / "test_other.py").write_text("import no_such_module_at_all", "utf-8")
    report, code = run(tmp_path, "--continue-on-collection-errors", tests="def test_good(): pass")
    assert report.collect_errors == ("test_other.py",)
    assert report.outcomes == {"test_it.py::test_good": "passed"}
    assert report.exit_status == code == 1


def test_why_a_test_fails_is_written_where_asked_for(tmp_path):
    report, _ = run(tmp_path, "--tb=short", "-k", "bad or good", text=500)
    assert report.messages == {"test_it.py::test_bad": "AssertionError: sums\nassert (1 + 1) == 3"}
    assert "assert 1 + 1 == 3" in report.texts["test_it.py::test_bad"]
    assert not run(tmp_path, "-k", "bad")[0].texts


def test_tests_that_close_every_descriptor_do_not_stop_the_report(tmp_path):
    report, _ = run(tmp_path, "-s", tests="import os\ndef test_a(): os.closerange(3, 200)\ndef test_b(): pass")
    assert report.outcomes == {"test_it.py::test_a": "passed", "test_it.py::test_b": "passed"}


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_run_that_ends_itself_has_no_exit_status(tmp_path, end):
    report, _ = run(tmp_path, tests=f"import os\ndef test_a(): pass\ndef test_b(): {end}\ndef test_c(): pass")
    assert report.outcomes == {"test_it.py::test_a": "passed"}
    assert report.exit_status is None and not report.finished


def lines(*events: dict | bytes) -> bytes:
    return b"".join(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n" for event in events)


START = {"event": "start", "format": 1}
GOOD = {"event": "test", "id": "a::b", "outcome": "passed"}
END = {"event": "finish", "exit": 0, "count": 1}


@pytest.mark.parametrize(
    ("data", "oddity"),
    [
        (lines(START, b"\xff\xfe\n", GOOD, END), "junk"),
        (lines(START, b"[" * 100_000 + b"\n", GOOD, END), "junk"),
        (lines(START, GOOD, {**GOOD, "id": "c", "outcome": "fine"}, END), "junk"),
        (lines(START, GOOD, {**GOOD, "id": ["c"]}, END), "junk"),
        (lines(START, GOOD, {**END, "exit": True}, END), "junk"),
        (lines(START, GOOD, END, b'{"event": "te'), "cut"),
        (lines(START, GOOD, GOOD, {**END, "count": 2}), "duplicate"),
        (lines(START, GOOD, {**END, "count": 9}), "count"),
        (lines(START, GOOD, END, {**GOOD, "id": "c"}), "after_finish"),
        (lines(GOOD, END), "no_start"),
        (lines(START, START, GOOD, END), "twice"),
        (lines(START, GOOD, END, END), "twice"),
    ],
)
def test_what_the_plugin_does_not_write_is_named_and_the_rest_is_read(data, oddity):
    report = parse_report(data)
    assert oddity in report.oddities
    assert not report.finished
    assert report.outcomes["a::b"] == "passed"


def test_the_worse_of_two_outcomes_counts():
    for first, second in (("passed", "failed"), ("failed", "passed")):
        report = parse_report(lines(START, {**GOOD, "outcome": first}, {**GOOD, "outcome": second}, END))
        assert not report.passed("a::b")


def test_bytes_beyond_the_limit_are_not_looked_at():
    data = lines(START, GOOD, {**GOOD, "id": "c"}, END)
    report = parse_report(data, max_bytes=len(lines(START, GOOD)))
    assert list(report.outcomes) == ["a::b"] and report.oddities == ("cut",)
    assert parse_report(b"").exit_status is None


def test_only_outcomes_that_two_runs_share_can_be_relied_on():
    once = parse_report(lines(START, GOOD, {**GOOD, "id": "c"}, {**END, "count": 2}))
    again = parse_report(lines(START, GOOD, {**GOOD, "id": "c", "outcome": "failed"}, {**END, "count": 2}))
    assert same_outcomes([once, again]) == {"a::b": "passed"}


def test_the_plugin_needs_nothing_but_an_old_python_and_pytest():
    module = ast.parse(PLUGIN.read_text("utf-8"), feature_version=(3, 7))
    imports = {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
    assert imports == {"json", "os", "pytest", "time"}


ANYTHING = st.sampled_from(
    [None, True, 0, -1, 10**400, float("nan"), "", "x", "\ud800", [], {}, [[]], {"a": []}, "passed"]
)
FIELDS = ("id", "outcome", "format", "text", "message", "seconds", "count", "exit", "cpu_s")
EVENTS = st.sampled_from(["start", "test", "collect_error", "collected", "finish", [], {}])
LINE = st.builds(
    lambda event, fields: {"event": event, **fields}, EVENTS, st.dictionaries(st.sampled_from(FIELDS), ANYTHING)
)


@given(st.lists(LINE, max_size=5))
def test_code_under_test_can_write_whatever_it_likes_and_grading_goes_on(lines):
    """What raised here would fail the episode, and a policy that can fail at will never loses."""
    report = parse_report("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert set(report.outcomes.values()) <= OUTCOMES and not report.passed("nothing")


@pytest.mark.parametrize("outcome", ["[]", "{}", "null", "1"])
def test_an_outcome_that_is_no_word_is_junk(outcome):
    lines = f'{{"event": "start", "format": 1}}\n{{"event": "test", "id": "a", "outcome": {outcome}}}\n'
    report = parse_report(lines.encode())
    assert report.outcomes == {} and report.oddities == ("junk",)
