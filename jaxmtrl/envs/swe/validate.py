"""`python -m jaxmtrl.envs.swe.validate`: which rows are tasks on this machine, proved in sandboxes.

Without a change every test that should fail fails and the others pass; with the known repair all pass; each of it
twice. A verdict is kept for as long as the row, its environment and the grader stay what they are.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxmtrl.envs.swe import canary, grade, report, screen
from jaxmtrl.envs.swe.command_line import ended, named, positive, threads
from jaxmtrl.envs.swe.files import must_take_files, write_whole
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.loading import load_instances, save_instances
from jaxmtrl.envs.swe.preparing import Preparer
from jaxmtrl.envs.swe.rows import row_hash
from jaxmtrl.envs.swe.sandbox.api import Backend, Base, Limits
from jaxmtrl.envs.swe.sandbox.choice import NAMES, choose
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.envs.swe.venvs import site_packages, venv_key
from jaxmtrl.errors import ConfigError, JaxmtrlError, SandboxFailure

TIMES = 2  # that each of it is proved
_MACHINE, _NOT_LAID_OUT = "the machine", "it cannot be laid out"
_SHOWN = 3  # tests that a verdict names
_GRADER = (
    grade.__file__,
    canary.__file__,
    report.__file__,
    screen.__file__,
    report.PLUGIN,
    Path(grade.__file__).with_name("launch_tool.py"),
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a row is a task."""

    valid: bool
    why: str = ""  # it is none
    suite_s: float = 0.0  # what its tests took, the longest time

    @property
    def lasting(self) -> bool:
        """Whether it may be kept: what the machine failed at, or a network that is gone, is tried again."""
        return not self.why.startswith((_MACHINE, _NOT_LAID_OUT))


def prove(backend: Backend, cache: TreeCache, instance: SweInstance, *, limits: Limits, tests_s: float) -> Verdict:
    """Runs a row's tests without a change and with its repair. What is wrong with it is in the verdict.

    Args:
        tests_s: the most that one run of them may take.
    """
    if not instance.fail_to_pass:
        return Verdict(valid=False, why="it names no test that must pass")
    if not instance.patch:
        return Verdict(valid=False, why="nobody knows a repair, so none can be proved to pass")
    try:
        prepared = Preparer(cache, limits).prepare(backend, instance)
        try:
            return _proved(backend, cache, prepared, instance, limits=limits, tests_s=tests_s)
        finally:
            cache.release(instance)
    except SandboxFailure as err:
        return Verdict(valid=False, why=f"{_MACHINE} failed: {err}")
    except JaxmtrlError as err:
        return Verdict(valid=False, why=f"{_NOT_LAID_OUT}: {err}")


def _proved(
    backend: Backend,
    cache: TreeCache,
    prepared: grade.Prepared,
    instance: SweInstance,
    *,
    limits: Limits,
    tests_s: float,
) -> Verdict:
    took = 0.0
    gold = cache.gold(instance)
    for time in ("first", "second")[:TIMES]:
        why, seconds = _unchanged(backend, prepared, instance, limits=limits, tests_s=tests_s)
        took = max(took, seconds)
        if not why:
            found = grade.grade(backend, prepared, instance, gold, limits=limits, tests_s=tests_s)
            took = max(took, found.tests_s)
            if found.status != "resolved":
                bad = [test for test, good in {**found.fail_to_pass, **found.pass_to_pass}.items() if not good]
                why = f"with its repair it is {found.status} ({found.detail or _named(bad)})"
        if why:
            return Verdict(valid=False, why=f"{why}, the {time} time", suite_s=took)
    return Verdict(valid=True, suite_s=took)


def _unchanged(
    backend: Backend, prepared: grade.Prepared, instance: SweInstance, *, limits: Limits, tests_s: float
) -> tuple[str, float]:
    """What is wrong with the tests' outcomes on the policy's tree, "" if nothing; and what they took."""

    def once(_: int):
        sandbox = backend.open(prepared.base, limits)
        try:
            return grade.run_tests(sandbox, prepared, grade.deciding_files(instance), tests_s=tests_s)
        finally:
            sandbox.close()

    result, outcomes = grade.persist(once)
    if result.why or not outcomes.finished:
        said = result.output[-300:].decode("utf-8", "replace").strip()
        return f"its tests do not come to their end ({result.why or 'no report'}: {said})", result.wall_s
    passed = {
        test: grade.has_passed(outcomes, test, truncated=instance.truncated_ids)
        for test in (*instance.fail_to_pass, *instance.pass_to_pass)
    }
    solved = [test for test in instance.fail_to_pass if passed[test]]
    broken = [test for test in instance.pass_to_pass if not passed[test]]
    if solved:
        return f"{len(solved)} tests of FAIL_TO_PASS pass without a change ({_named(solved)})", result.wall_s
    if broken:
        return f"{len(broken)} tests of PASS_TO_PASS fail without a change ({_named(broken)})", result.wall_s
    return "", result.wall_s


def _named(tests: Sequence[str]) -> str:
    more = f" and {len(tests) - _SHOWN} more" if len(tests) > _SHOWN else ""
    return ", ".join(tests[:_SHOWN]) + more


class Verdicts:
    """Verdicts on disk: one file each, by row, environment and grader."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.grader = hashlib.sha256(b"".join(Path(file).read_bytes() for file in _GRADER)).hexdigest()[:12]

    def place(self, instance: SweInstance, base: Base) -> Path:
        return self.folder / f"{row_hash(instance)}-{environment_hash(instance, base)}-{self.grader}.json"

    def read(self, place: Path) -> Verdict | None:
        try:
            return Verdict(**json.loads(place.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, place: Path, verdict: Verdict) -> None:
        write_whole(place, json.dumps(dataclasses.asdict(verdict)))


def environment_hash(instance: SweInstance, base: Base) -> str:
    """Equal for equal machines, interpreters and installed packages, as far as their names and versions tell."""
    words = [
        platform.machine(),
        platform.python_version(),
        venv_key(instance),
        instance.image if base.image or base.rootfs else "",
    ]
    if base.venv is not None:
        words += sorted(info.name for info in site_packages(base.venv).glob("*.dist-info"))
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]


def judge(
    backend: Backend, cache: TreeCache, instances: Sequence[SweInstance], *, tests_s: float, jobs: int = 1
) -> Iterator[tuple[SweInstance, Verdict]]:
    """A verdict on each row, in order; those that are known already cost nothing."""
    verdicts = Verdicts(cache.folder / "verdicts")
    limits = Limits()

    def one(instance: SweInstance) -> Verdict:
        try:
            base = cache.base(instance)
        except JaxmtrlError as err:
            return Verdict(valid=False, why=f"{_NOT_LAID_OUT}: {err}")
        place = verdicts.place(instance, base)
        known = verdicts.read(place)
        if known is None:
            known = prove(backend, cache, instance, limits=limits, tests_s=tests_s)
            if known.lasting:
                verdicts.write(place, known)
        cache.release(instance)
        return known

    with threads(jobs) as pool:
        yield from zip(instances, pool.map(one, instances))


def run(arguments: Sequence[str] | None = None) -> int:
    """Writes valid.jsonl and rejected.jsonl; 1 where no row is valid."""
    options = _parser().parse_args(arguments)
    if options.rows.resolve() == options.out.resolve():
        raise ConfigError("the command line", [f"--out {options.out} is read as rows too; name another folder"])
    instances = load_instances(options.rows)
    must_take_files(options.out, "--out")
    cache = TreeCache(options.cache, mirrors=options.mirrors, venvs=options.venvs, rootfs=options.rootfs)
    backend = choose(options.backend, unsafe=options.unsafe, images=cache.needs_containers(instances))
    valid, rejected = [], []
    for instance, verdict in judge(backend, cache, instances, tests_s=options.tests_s, jobs=options.jobs):
        print(f"{instance.id}: {'valid' if verdict.valid else verdict.why}", file=sys.stderr, flush=True)
        told = {"suite_s": math.ceil(verdict.suite_s)} if verdict.valid else {"rejected": verdict.why}
        kept = dataclasses.replace(instance, extra={**instance.extra, **told})
        (valid if verdict.valid else rejected).append(kept)
    for name, members in (("valid", valid), ("rejected", rejected)):
        save_instances(options.out / f"{name}.jsonl", members)
    print(f"{len(valid)} of {len(instances)} rows are valid; {options.out}/valid.jsonl", file=sys.stderr)
    return 0 if valid else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jaxmtrl.envs.swe.validate", description=__doc__)
    add = parser.add_argument
    add("rows", type=named, help="file or folder of rows")
    add("--out", type=named, required=True, help="folder for valid.jsonl and rejected.jsonl")
    add(
        "--tests-s",
        type=positive(float),
        default=600.0,
        help="the most that one run of a row's tests may take, in seconds",
    )
    add("--jobs", type=positive(int), default=1, help="rows at a time")
    add("--mirrors", type=named, help="folder of <owner>__<repo>.git")
    add("--venvs", type=named, help="folder of <owner>__<repo>__<version>")
    add("--rootfs", type=named, help="folder of exported images, each named as its image without registry and tag")
    add("--cache", type=named, help="folder for trees, environments and verdicts")
    add("--backend", choices=NAMES, default="auto")
    add(
        "--unsafe",
        action="store_true",
        help="allow --backend local: tests run as plain processes, with all your rights",
    )
    return parser


if __name__ == "__main__":
    kept = "what was proved is kept, and the same command goes on from there; nothing was written to --out"
    sys.exit(ended(run, interrupted=kept))
