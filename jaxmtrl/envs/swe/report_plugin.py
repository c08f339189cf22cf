"""A pytest plugin that writes what became of every test, one JSON line a test, into a file.

It is copied beside the tests that it watches and run by their Python (3.7 or newer, any pytest from 5.4 on), so it
imports nothing but the standard library. `pytest -p report_plugin` with the variable JAXMTRL_REPORT set to the file's
absolute path. Lines, in this order:

    {"event": "start", "format": 1}
    {"event": "collect_error", "id": "tests/test_x.py", "text": "…"}      where a file could not be collected
    {"event": "collected", "count": 12}
    {"event": "test", "id": "tests/test_x.py::test_y[a b]", "outcome": "passed", "seconds": 0.1}
    {"event": "finish", "exit": 0, "count": 12, "cpu_s": 1.5}

An outcome is one of passed, failed, error (in set-up or tear-down), skipped, xfailed, xpassed. With
JAXMTRL_REPORT_TEXT set to a number, lines of tests that fail also have that many characters of why: `text` as
pytest would print it, and `message`, the exception alone.
"""

import json
import os
import time

import pytest

# As they were before any test could replace them; the file is opened anew for every line, for tests close descriptors.
_open, _write, _close, _getpid, _dumps = os.open, os.write, os.close, os.getpid, json.dumps
_cpu_time = time.process_time
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Reporter:
    """Folds the phases of each test into one outcome."""

    def __init__(self, path: str, text: int):
        self.path = path
        self.text = text
        self.process = _getpid()
        self.phases = {}
        self.finished = 0
        self.write(event="start", format=1)

    def write(self, **line) -> None:
        if _getpid() != self.process:  # a test has forked, and its child came back into pytest
            return
        data = _dumps(line).encode("ascii") + b"\n"
        descriptor = _open(self.path, _FLAGS, 0o644)
        try:
            while data:
                data = data[_write(descriptor, data) :]
        finally:
            _close(descriptor)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.write(event="collect_error", id=report.nodeid, text=str(report.longrepr)[: max(self.text, 200)])

    def pytest_collection_finish(self, session) -> None:
        self.write(event="collected", count=len(session.items))

    def pytest_runtest_logreport(self, report) -> None:
        self.phases.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid) -> None:
        reports = self.phases.pop(nodeid, [])
        if not reports:
            return
        line = {"outcome": outcome(reports), "seconds": round(sum(report.duration for report in reports), 4)}
        if self.text and line["outcome"] in ("failed", "error"):
            line.update(why(reports, self.text))
        self.finished += 1
        self.write(event="test", id=nodeid, **line)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus) -> None:
        self.write(event="finish", exit=int(exitstatus), count=self.finished, cpu_s=round(_cpu_time(), 3))


def outcome(reports) -> str:
    """One word for the phases of one test (set-up, call with its subtests, tear-down)."""
    if any(report.failed and report.when == "call" for report in reports):
        return "failed"
    if any(report.failed for report in reports):
        return "error"
    calls = [report for report in reports if report.when == "call"] or reports[:1]
    last = calls[-1]  # reports of subtests come before the test's own
    if hasattr(last, "wasxfail"):
        return "xfailed" if last.skipped else "xpassed"
    return "skipped" if last.skipped else "passed"


def why(reports, limit: int):
    """What pytest would print of the first failed phase, and the exception alone."""
    report = next(report for report in reports if report.failed)
    crash = getattr(report.longrepr, "reprcrash", None)
    message = getattr(crash, "message", None) or str(report.longrepr)
    return {"text": str(report.longreprtext)[-limit:], "message": str(message)[:limit]}


def pytest_configure(config) -> None:
    path = os.environ.pop("JAXMTRL_REPORT", "")
    text = os.environ.pop("JAXMTRL_REPORT_TEXT", "0")
    if path and not hasattr(config, "workerinput"):  # with xdist, the process that hands out the tests reports
        config.pluginmanager.register(Reporter(path, int(text)), "jaxmtrl-reporter")
