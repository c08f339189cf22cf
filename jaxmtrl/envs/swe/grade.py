"""Whether a policy's changes solve a task: official tests, in a fresh sandbox, on the clean base with the changes.

Nothing that the policy's sandbox says of itself counts. Neither does what is printed: outcomes are those that the
report plugin wrote, by exact id, and only if tests of known outcome came out as they must and pytest ended as it said.
Code that runs in the same process as the tests can still fool them; `screen.py` names what looks like it, and changes
that have such words earn nothing.
"""

from __future__ import annotations

import io
import shlex
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from jaxmtrl.envs.swe.canary import Canary, make_canary
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.report import PLUGIN, PLUGIN_NAME, REPORT_VARIABLE, SuiteReport, parse_report
from jaxmtrl.envs.swe.sandbox.api import WORKDIR, Backend, Base, ChangeSet, ExecResult, FileChange, Limits, Sandbox
from jaxmtrl.envs.swe.screen import Screened, added_lines, screen
from jaxmtrl.errors import SandboxFailure

Answer = TypeVar("Answer")
Status = Literal[
    "resolved",
    "unresolved",
    "no_change",  # nothing was changed that counts; no test was run
    "patch_too_large",
    "apply_error",  # the changes could not be laid over the base
    "timeout",  # the tests took too long
    "runner_died",  # pytest was killed
    "no_report",  # pytest never came to its end, or not past all tests
    "exit_mismatch",  # pytest ended otherwise than it had said
    "canary",  # tests of known outcome came out otherwise
    "tampered",  # the tests came out as told here, but the changes have words that no repair needs
]
TRIES = 3  # of what the machine, not the policy, makes fail
_PAUSE_S = 0.2  # before the second try; twice as long before the third
MAX_FILES, MAX_BYTES = 100, 1 << 20  # of the changes

_LAUNCH = Path(__file__).with_name("launch_tool.py")
_FOLDER = "/run/swe/grade"
_PLACE, _PLUGIN_PLACE = f"{_FOLDER}/launch.py", f"{_FOLDER}/{PLUGIN_NAME}.py"
_ARCHIVE, _GONE = f"{_FOLDER}/changes.tar", f"{_FOLDER}/gone"
_REPORT = "/run/swe/report"
_OPTIONS = (
    *("-q", "-c", "/dev/null", f"--rootdir={WORKDIR}", "-p", "no:cacheprovider", "-o", "addopts="),
    *("--continue-on-collection-errors", "--tb=no", "--disable-warnings"),
)
_ENVIRONMENT = {  # as rows were made under: the same order of sets, language and clock
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    REPORT_VARIABLE: _REPORT,
}
_FAILED_TESTS = 1  # pytest's exit code where some test failed, as canaries do


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What an instance is made of, once it lies on the disk."""

    base: Base  # as the policy meets it
    tests: Mapping[str, bytes]  # the files that decide, by their path within the workspace
    roots: tuple[str, ...] = (f"{WORKDIR}/src", WORKDIR)  # folders that Python imports from
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of every command
    baseline_s: float = 0.0  # how long the tests take on the clean base; 0 where nobody knows


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The verdict on one episode."""

    status: Status
    fail_to_pass: Mapping[str, bool]  # by id: passed now
    pass_to_pass: Mapping[str, bool]
    screened: Screened = Screened(files=(), dropped=(), flags=())
    detail: str = ""  # more of the status, for people
    retries: int = 0  # times that the machine failed before this came out
    tests_s: float = 0.0

    @property
    def verified(self) -> bool:
        """Whether what the tests say may be paid for."""
        return self.status in ("resolved", "unresolved")


def grade(
    backend: Backend, prepared: Prepared, instance: SweInstance, changes: ChangeSet, *, limits: Limits, tests_s: float
) -> Grade:
    """The verdict on what a policy has changed.

    Args:
        tests_s: the most that the tests may take.

    Raises:
        SandboxFailure: the machine failed `TRIES` times.
    """
    if changes.too_large:
        return _unproved("patch_too_large", instance, Screened(files=(), dropped=(), flags=()), changes.too_large)
    deciding = {*instance.test_files, *prepared.tests}
    screened = screen(changes, base=prepared.base, deciding=deciding, gold=added_lines(instance.patch))
    if not screened.files:
        return _unproved("no_change", instance, screened)

    def once(retries: int) -> Grade:
        sandbox = backend.open(prepared.base, limits)
        try:
            return _graded(sandbox, prepared, instance, screened, tests_s=tests_s, retries=retries)
        finally:
            sandbox.close()

    return persist(once)


def persist(attempt: Callable[[int], Answer]) -> Answer:
    """What `attempt` returns, which is told how often it was tried before. Raises the last try's SandboxFailure."""
    for retries in range(TRIES - 1):
        try:
            return attempt(retries)
        except SandboxFailure:  # a machine that has no process or memory to give may have some soon
            time.sleep(_PAUSE_S * 2**retries)
    return attempt(TRIES - 1)


def run_tests(
    sandbox: Sandbox, prepared: Prepared, files: Sequence[str], *, tests_s: float, canary: Canary | None = None
) -> tuple[ExecResult, SuiteReport]:
    """Runs test files as grading does: shown read-only, with nothing that a workspace could say about pytest.

    Args:
        files: paths within the workspace, from where the tests of `prepared` take the place of what lies there.
        canary: run among them.

    Raises:
        SandboxFailure: the sandbox could not be used.
    """
    shown = {f"{WORKDIR}/{path}": content for path, content in prepared.tests.items()}
    shown |= {_PLACE: _LAUNCH.read_bytes(), _PLUGIN_PLACE: PLUGIN.read_bytes()}
    wanted = list(files)
    if canary is not None:
        shown[f"{WORKDIR}/{canary.path}"] = canary.content
        wanted.insert(len(wanted) // 2, canary.path)
    python = '"$(command -v python || command -v python3)"'
    arguments = " ".join(shlex.quote(argument) for argument in (":".join(prepared.roots), *_OPTIONS, *wanted))
    result = sandbox.run(
        f"exec {python} {_PLACE} {arguments}",
        wall_s=tests_s,
        environment={**prepared.environment, **_ENVIRONMENT},
        shown=shown,
        reports=[_REPORT],
    )
    return result, parse_report(sandbox.report(_REPORT, max_bytes=16 << 20))


def deciding_files(instance: SweInstance) -> list[str]:
    """Files that hold the tests which decide, in order of their first id."""
    ids = (*instance.fail_to_pass, *instance.pass_to_pass)
    return list(dict.fromkeys(test.partition("::")[0] for test in ids))


def has_passed(report: SuiteReport, test: str, *, truncated: bool) -> bool:
    """Whether a test passed; one that is not there did not.

    Args:
        truncated: ids may have lost all that followed their first space. Such a one has a bracket that is not closed,
            and stands for all tests that begin like it: all must pass.
    """
    if test in report.outcomes or not truncated or test.count("[") <= test.count("]"):
        return report.passed(test)
    meant = [known for known in report.outcomes if known.startswith(f"{test} ")]
    return bool(meant) and all(report.passed(known) for known in meant)


def _graded(
    sandbox: Sandbox,
    prepared: Prepared,
    instance: SweInstance,
    screened: Screened,
    *,
    tests_s: float,
    retries: int,
) -> Grade:
    failure = _lay_over(sandbox, screened.files)
    if failure:
        return _unproved("apply_error", instance, screened, failure, retries)
    files = deciding_files(instance)
    canary = make_canary(files[0])
    result, report = run_tests(sandbox, prepared, files, tests_s=tests_s, canary=canary)
    status, detail = _status(result, report, canary)
    if status != "unresolved":
        return _unproved(status, instance, screened, detail, retries, result.wall_s)
    fail_to_pass, pass_to_pass = (
        {test: has_passed(report, test, truncated=instance.truncated_ids) for test in tests}
        for tests in (instance.fail_to_pass, instance.pass_to_pass)
    )
    solved = all(fail_to_pass.values()) and all(pass_to_pass.values())
    return Grade(
        status="tampered" if screened.flags else "resolved" if solved else "unresolved",
        fail_to_pass=fail_to_pass,
        pass_to_pass=pass_to_pass,
        screened=screened,
        detail=", ".join(screened.flags),
        retries=retries,
        tests_s=result.wall_s,
    )


def _status(result: ExecResult, report: SuiteReport, canary: Canary) -> tuple[Status, str]:
    """ "unresolved" where the outcomes can be believed; else why not."""
    if result.why == "timeout":
        return "timeout", f"the tests took more than {result.wall_s:.0f} s"
    if result.why:
        return "runner_died", result.why
    seen = {test: report.outcomes.get(test) for test in canary.outcomes}
    wrong = sum(seen[test] not in (outcome, None) for test, outcome in canary.outcomes.items())
    if wrong:
        return "canary", f"{wrong} tests of known outcome came out otherwise"
    if not report.finished:
        died = result.exit_code is not None and result.exit_code > 128
        told = f"exit code {result.exit_code}; {', '.join(report.oddities) or 'the report has no end'}"
        return ("runner_died" if died else "no_report"), told
    if None in seen.values():
        return "no_report", "tests of known outcome were not run"
    if report.exit_status != _FAILED_TESTS or result.exit_code != _FAILED_TESTS:
        return "exit_mismatch", f"pytest said {report.exit_status} and ended with {result.exit_code}"
    return "unresolved", ""


def _unproved(
    status: Status, instance: SweInstance, screened: Screened, detail: str = "", retries: int = 0, tests_s: float = 0.0
) -> Grade:
    """A verdict without tests that could be believed: none has passed, but those that passed before and no change."""
    return Grade(
        status=status,
        fail_to_pass=dict.fromkeys(instance.fail_to_pass, False),
        pass_to_pass=dict.fromkeys(instance.pass_to_pass, status == "no_change"),
        screened=screened,
        detail=detail,
        retries=retries,
        tests_s=tests_s,
    )


def _lay_over(sandbox: Sandbox, files: Sequence[FileChange]) -> str:
    """Brings changes into a fresh workspace; returns what went wrong, if anything did."""
    gone = [change.path for change in files if change.content is None]
    command = f"cd {WORKDIR} && xargs -0 -r rm -f -- < {_GONE} && tar --no-same-owner -xf {_ARCHIVE}"
    result = sandbox.run(
        command, shown={_ARCHIVE: _archive(files), _GONE: b"".join(f"{path}\0".encode() for path in gone)}
    )
    if result.exit_code == 0:
        return ""
    return f"exit code {result.exit_code}: {result.output[-300:].decode('utf-8', 'replace')}"


def _archive(files: Sequence[FileChange]) -> bytes:
    """Regular files only, with no more than their paths, contents and whether they may be run."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for change in files:
            if change.content is not None:
                entry = tarfile.TarInfo(change.path)
                entry.size, entry.mode = len(change.content), 0o755 if change.executable else 0o644
                archive.addfile(entry, io.BytesIO(change.content))
    return out.getvalue()
