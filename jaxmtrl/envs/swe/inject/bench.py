"""Runs a package's tests on its tree with files of it changed, each time from the beginning."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from jaxmtrl.envs.swe.report import PLUGIN, PLUGIN_NAME, REPORT_VARIABLE, TEXT_VARIABLE, SuiteReport, parse_report
from jaxmtrl.envs.swe.sandbox.api import WORKDIR, Backend, Base, Limits

_COVERAGE_PLUGIN = Path(__file__).with_name("coverage_plugin.py")
_COVERAGE_NAME = "jaxmtrl_coverage"
_PLACE = f"{WORKDIR}/.jaxmtrl-bench"  # pytest looks for no tests in folders of such names
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
    cpu_s: float  # that it may take; a busy machine then changes nothing. By the clock it may take a good deal longer
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


class Bench:
    """Each run in a sandbox of its own; safe for threads."""

    def __init__(self, backend: Backend, base: Base, roots: Sequence[str], limits: Limits | None = None):
        self.backend = backend
        self.base = base
        self.roots = roots  # folders of the tree that modules are imported from
        self.used_s: list[float] = []  # CPU time of each run, without what the sandbox itself takes
        self.limits = limits or Limits(file_size=_MOST_REPORT)

    def run(self, job: Job) -> Ran:
        shown = {f"{WORKDIR}/{path}": content for path, content in job.changed.items()}
        shown |= {f"{_PLACE}/{name}": content for name, content in _given(job).items()}
        reports = [f"{_PLACE}/report", f"{_PLACE}/coverage"]
        sandbox = self.backend.open(self.base, self.limits)
        try:
            done = sandbox.run(
                f"{_limited(job)} python -m pytest {shlex.join(_options(job))} @{_PLACE}/targets",
                wall_s=_wall_s(job),
                environment=_variables(job, self.roots),
                shown=shown,
                reports=reports,
            )
            report = sandbox.report(reports[0], max_bytes=_MOST_REPORT)
            lines = sandbox.report(reports[1], max_bytes=_MOST_REPORT) if job.coverage else b""
        finally:
            sandbox.close()
        ran = _ran(report, lines, done.output, done.wall_s, in_time=not done.why)
        self.used_s.append(ran.report.cpu_s or job.cpu_s)
        return ran


def _limited(job: Job) -> str:
    return f"ulimit -t {math.ceil(job.cpu_s)}; exec"


def _wall_s(job: Job) -> float:
    return 8 * job.cpu_s + 60


def _given(job: Job) -> dict[str, bytes]:
    """Files beside the run: the plugins, and the targets, one a line, for there may be more than a command holds."""
    given = {
        f"{PLUGIN_NAME}.py": PLUGIN.read_bytes(),
        "targets": "".join(f"{target}\n" for target in job.targets).encode(),
    }
    return given | ({f"{_COVERAGE_NAME}.py": _COVERAGE_PLUGIN.read_bytes()} if job.coverage else {})


def _options(job: Job) -> list[str]:
    """Not among the targets' lines: pytest loads plugins before it reads those."""
    return [*_OPTIONS, f"--rootdir={WORKDIR}", "-p", PLUGIN_NAME, *(("-p", _COVERAGE_NAME) if job.coverage else ())]


def _variables(job: Job, roots: Sequence[str]) -> dict[str, str]:
    variables = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": str(job.hash_seed),
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": ":".join([_PLACE, *(str(PurePosixPath(WORKDIR, root)) for root in roots)]),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        REPORT_VARIABLE: f"{_PLACE}/report",
        "JAXMTRL_COVERAGE": f"{_PLACE}/coverage",
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
    """Nothing where the run did not come to write all of it, or its tests wrote something else there."""
    try:
        found = json.loads(data)
        tests = [str(test) for test in found["tests"]]
        return {
            path: {int(line): [tests[number] for number in numbers] for line, numbers in lines.items()}
            for path, lines in found["files"].items()
        }
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return {}


def is_plain_id(test: str) -> bool:
    """Whether an id can be given to pytest as one line."""
    return re.search(r"[\n\r\x00]", test) is None
