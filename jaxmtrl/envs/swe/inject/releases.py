"""Repairs that people made: the code of one release, and the tests of the next, some of which it does not pass."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jaxmtrl.envs.swe.inject.bench import Bench, Job
from jaxmtrl.envs.swe.inject.build import test_files
from jaxmtrl.envs.swe.inject.package import Package, is_test
from jaxmtrl.envs.swe.inject.search import MOST_SHARE, survey
from jaxmtrl.envs.swe.inject.statements import statements
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import make_patch
from jaxmtrl.errors import EnvironmentFailure

_MOST_PATCH = 200_000  # characters of a repair: larger ones are no repairs
_MOST_TOLD = 3000  # characters of a change log's section
_LOGS = re.compile(r"(change|history|news|release).*", re.IGNORECASE)


class NoRepair(EnvironmentFailure):
    """Two releases between which no test tells a repair; says why."""


def release_row(
    old: Package, new: Package, bench: Callable[[Path, Package], Bench], targets: Sequence[str], *, level: str
) -> SweInstance:
    """The row of the repair from one release to the next.

    Args:
        bench: makes one of a tree, in the environment of a package.
        level: of its statement where the change log says nothing: see `statements`.

    Raises:
        NoRepair: no test of the new release fails on the old code, most do, or the repair is not enough.
    """
    before, after = (_texts(package) for package in (old, new))
    tests = make_patch(*({path: text for path, text in files.items() if is_test(path)} for files in (before, after)))
    code = make_patch(
        *(
            {path: text for path, text in files.items() if path.endswith(".py") and not is_test(path)}
            for files in (before, after)
        )
    )
    if not code or len(code) > _MOST_PATCH:
        raise NoRepair(f"the code of {new.version} differs from {old.version} by {len(code)} characters")
    with tempfile.TemporaryDirectory(prefix="jaxmtrl-release-") as scratch:
        faulty = _joined(Path(scratch) / "faulty", code=old, tests=new, whole=old)
        mended = _joined(Path(scratch) / "mended", code=new, tests=new, whole=old)
        suite = survey(bench(mended, old), targets, coverage=False)
        runs = [
            bench(faulty, old).run(Job(targets=targets, cpu_s=3 * suite.cpu_s + 30, hash_seed=seed, text=3000))
            for seed in (0, 1)
        ]
    reports = [run.report for run in runs]
    fail = tuple(test for test in suite.passing if not any(report.passed(test) for report in reports))
    keep = tuple(test for test in suite.passing if all(report.passed(test) for report in reports))
    if not fail or not keep or len(fail) > MOST_SHARE * len(suite.passing) or not all(run.ended for run in runs):
        raise NoRepair(f"of {len(suite.passing)} tests of {new.version} {len(fail)} fail on the code of {old.version}")
    texts = {test: reports[1].texts.get(test, "") for test in fail}
    told = statements(old.name, new.tree, texts, reports[1].messages)
    return old.row(
        id=f"{old.name}-{old.version}__release-{new.version}",
        problem_statement=_changes(new) + told["c" if level == "mixed" else level],
        fail_to_pass=fail,
        pass_to_pass=keep,
        patch=code,
        test_patch=tests,
        test_files=test_files(new, [*fail, *keep]),
        source="release",
        extra={"kind": "release", "difficulty": "release", "statements": told, "next_version": new.version},
    )


def _texts(package: Package) -> dict[str, str]:
    """Files that a patch can hold: code, and whatever is text among the tests."""
    found = {}
    for path in sorted(package.tree.rglob("*")):
        name = str(path.relative_to(package.tree))
        if path.is_file() and not path.is_symlink() and (name.endswith(".py") or is_test(name)):
            try:
                found[name] = path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue
    return found


def _joined(folder: Path, *, code: Package, tests: Package, whole: Package) -> Path:
    """The tree of `whole` with the code of one release and the tests of another, as the row's patches make it."""
    shutil.copytree(whole.tree, folder, symlinks=True)
    for wanted, package in ((False, code), (True, tests)):
        theirs, ours = _texts(package), _texts(whole)
        for path in ours.keys() | theirs.keys():
            if is_test(path) is wanted:
                _write(folder / path, theirs, path)
    return folder


def _write(target: Path, files: Mapping[str, str], path: str) -> None:
    if path not in files:
        target.unlink(missing_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files[path].encode("utf-8"))


def _changes(package: Package) -> str:
    """What the package's own change log says of this version; "" where it has none."""
    logs = [path for folder in (package.tree, package.tree / "docs") for path in _files(folder)]
    for log in logs:
        text = log.read_text("utf-8", "replace")
        heading = rf"^[^\w\n]*(?:version |v)?{re.escape(package.version)}\b.*$"
        match = re.search(heading, text, re.MULTILINE | re.IGNORECASE)
        if match is None:
            continue
        rest = text[match.end() :]
        end = re.search(r"^[^\w\n]*(?:version |v)?\d+\.\d+(?:\.\d+)*\b(?!\w).*$", rest, re.MULTILINE | re.IGNORECASE)
        section = re.sub(r"\A\s*([=~^-]{3,}\s*\n)?\s*", "", rest[: end.start() if end else None]).rstrip("=~# \n")
        if section:
            return f"Wanted of {package.name}, in the words of its change log:\n\n{section[:_MOST_TOLD]}\n\n"
    return ""


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and _LOGS.fullmatch(path.name))
