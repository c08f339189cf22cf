"""Runs a package's tests on its tree, with files of it changed, as often as is asked for: each time from the beginning.

In sandboxes; or, where whoever asks says that it is safe, in plain processes on a copy.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from jaxmtrl.envs.swe.report import PLUGIN, PLUGIN_NAME, REPORT_VARIABLE, TEXT_VARIABLE, SuiteReport, parse_report
from jaxmtrl.envs.swe.sandbox.api import WORKDIR, Backend, Base, Limits

_COVERAGE_PLUGIN = Path(__file__).with_name("coverage_plugin.py")
_COVERAGE_NAME = "jaxmtrl_coverage"
_PLACE = "/run/swe/bench"
_MOST_REPORT = 256 << 20
# As the grader runs them: nothing that a workspace says about pytest counts.
_OPTIONS = (
    *("-q", "-c", "/dev/null", "-p", "no:cacheprovider", "-o", "addopts=", "--continue-on-collection-errors"),
    *("--disable-warnings", "--tb=short", "--color=no"),
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of pytest."""

    targets: Sequence[str]  # files, folders or ids
    wall_s: float
    changed: Mapping[str, bytes] = field(default_factory=dict)  # files of the tree as they are for this run
    hash_seed: int = 0  # two runs with two seeds find tests that hang on the order of sets
    text: int = 0  # characters of what pytest says of a test that fails
    coverage: bool = False


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What came of it."""

    report: SuiteReport
    ended: bool  # pytest came to its end, in time
    output: str  # the last of what it printed
    wall_s: float
    lines: Mapping[str, Mapping[int, Sequence[str]]] = field(default_factory=dict)  # tests by file and line


class Bench(Protocol):
    def run(self, job: Job) -> Ran: ...


class SandboxBench:
    """Each run in a sandbox of its own; safe for threads."""

    def __init__(self, backend: Backend, base: Base, limits: Limits | None = None):
        self.backend = backend
        self.base = base
        self.limits = limits or Limits(file_size=_MOST_REPORT)

    def run(self, job: Job) -> Ran:
        shown = {f"{WORKDIR}/{path}": content for path, content in job.changed.items()}
        shown |= {f"{_PLACE}/{name}": content for name, content in _given(job).items()}
        reports = [f"{_PLACE}/report", f"{_PLACE}/coverage"]
        sandbox = self.backend.open(self.base, self.limits)
        try:
            done = sandbox.run(
                f"exec python -m pytest {shlex.join(_options(job, WORKDIR))} @{_PLACE}/targets",
                wall_s=job.wall_s,
                environment=_variables(job, _PLACE),
                shown=shown,
                reports=reports,
            )
            report = sandbox.report(reports[0], max_bytes=_MOST_REPORT)
            lines = sandbox.report(reports[1], max_bytes=_MOST_REPORT) if job.coverage else b""
        finally:
            sandbox.close()
        return _ran(report, lines, done.output, done.wall_s, in_time=not done.why)


class PlainBench:
    """Plain processes with all rights of ours: for packages that are trusted as much as one that is installed."""

    def __init__(self, tree: Path, python: str, roots: Sequence[str]):
        self.tree = tree
        self.python = python
        self.roots = roots
        self._spare: list[Path] = []  # copies that nobody uses
        self._guard = threading.Lock()
        self._scratch = tempfile.TemporaryDirectory(prefix="jaxmtrl-bench-")

    def close(self) -> None:
        self._scratch.cleanup()

    def run(self, job: Job) -> Ran:
        with self._guard:
            folder = self._spare.pop() if self._spare else None
        folder = folder or self._copy()
        try:
            return self._run(job, folder)
        finally:
            for path in job.changed:
                shutil.copy2(self.tree / path, folder / "tree" / path)
            with self._guard:
                self._spare.append(folder)

    def _copy(self) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self._scratch.name))
        shutil.copytree(self.tree, folder / "tree", symlinks=True)
        return folder

    def _run(self, job: Job, folder: Path) -> Ran:
        tree, place = folder / "tree", folder / "bench"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name, content in _given(job).items():
            (place / name).write_bytes(content)
        for path, content in job.changed.items():
            (tree / path).write_bytes(content)
        variables = _variables(job, str(place)) | {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)}
        variables["PYTHONPATH"] = ":".join([str(place), *(str(tree / root) for root in self.roots)])
        command = [self.python, "-m", "pytest", *_options(job, str(tree)), f"@{place}/targets"]
        started = time.monotonic()
        with (place / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=tree,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                process.wait(job.wall_s)
                in_time = True
            except subprocess.TimeoutExpired:
                in_time = False
            finally:
                _end(process)
        report, lines = (_read(place / name) for name in ("report", "coverage"))
        return _ran(report, lines, _read(place / "output"), time.monotonic() - started, in_time=in_time)


def _end(process: subprocess.Popen) -> None:
    """Ends it with all that it started and that stayed in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _given(job: Job) -> dict[str, bytes]:
    """Files beside the run: the plugins, and the targets, one a line, for there may be more than a command holds."""
    given = {
        f"{PLUGIN_NAME}.py": PLUGIN.read_bytes(),
        "targets": "".join(f"{target}\n" for target in job.targets).encode(),
    }
    return given | ({f"{_COVERAGE_NAME}.py": _COVERAGE_PLUGIN.read_bytes()} if job.coverage else {})


def _options(job: Job, workdir: str) -> list[str]:
    """Not among the targets' lines: pytest loads plugins before it reads those."""
    return [*_OPTIONS, f"--rootdir={workdir}", "-p", PLUGIN_NAME, *(("-p", _COVERAGE_NAME) if job.coverage else ())]


def _variables(job: Job, place: str) -> dict[str, str]:
    variables = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": str(job.hash_seed),
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": place,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        REPORT_VARIABLE: f"{place}/report",
        "JAXMTRL_COVERAGE": f"{place}/coverage",
    }
    return variables | ({TEXT_VARIABLE: str(job.text)} if job.text else {})


def _ran(report: bytes, lines: bytes, output: bytes, wall_s: float, *, in_time: bool) -> Ran:
    parsed = parse_report(report, max_bytes=_MOST_REPORT)
    return Ran(
        report=parsed,
        ended=in_time and parsed.finished,
        output=output[-2000:].decode("utf-8", "replace"),
        wall_s=wall_s,
        lines=_tests_by_line(lines),
    )


def _tests_by_line(data: bytes) -> dict[str, dict[int, list[str]]]:
    if not data:
        return {}
    found = json.loads(data)
    tests = found["tests"]
    return {
        path: {int(line): [tests[number] for number in numbers] for line, numbers in lines.items()}
        for path, lines in found["files"].items()
    }


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def is_plain_id(test: str) -> bool:
    """Whether an id can be given to pytest as one line."""
    return re.search(r"[\n\r\x00]", test) is None
