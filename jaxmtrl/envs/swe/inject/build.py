"""Rows out of faults that tests have seen."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from jaxmtrl.envs.swe.inject.mutators import mutate
from jaxmtrl.envs.swe.inject.package import Package, is_test
from jaxmtrl.envs.swe.inject.search import Fault
from jaxmtrl.envs.swe.inject.statements import LEVELS, statements
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import make_patch, reverse_patch


def fault_row(package: Package, fault: Fault, *, level: str, hidden: bool) -> SweInstance:
    """The row of a fault.

    Args:
        level: of its statement, "a", "b", "c" or "mixed"; all three stand in the row.
        hidden: the files of the tests that fail are taken out of the tree that the policy meets.
    """
    paths = sorted({site.path for site in fault.sites})
    clean = {path: (package.tree / path).read_bytes() for path in paths}
    faulty = {path: mutate(clean[path], [site for site in fault.sites if site.path == path]) for path in paths}
    bug = make_patch(*({path: data.decode("utf-8") for path, data in files.items()} for files in (clean, faulty)))
    told = statements(package.name, package.tree, fault.texts, fault.messages)
    name = f"{package.name}-{package.version}__{fault.kind}-{hashlib.sha256(bug.encode()).hexdigest()[:8]}"
    level = random.Random(name).choice(LEVELS) if level == "mixed" else level
    return package.row(
        id=name,
        problem_statement=told[level],
        fail_to_pass=fault.fail_to_pass,
        pass_to_pass=fault.pass_to_pass,
        patch=reverse_patch(bug),
        bug_patch=bug,
        test_files=test_files(package, [*fault.fail_to_pass, *fault.pass_to_pass]),
        hidden_files=files_of(fault.fail_to_pass) if hidden else (),
        source="injected",
        extra={
            "kind": fault.kind,
            "kinds": sorted({site.kind for site in fault.sites}),
            "functions": sorted({f"{site.path}:{site.function}" for site in fault.sites}),
            "difficulty": fault.kind if fault.kind in ("multi", "stub") else "single",
            "statement_level": level,
            "statements": told,
        },
    )


def files_of(tests: Sequence[str]) -> tuple[str, ...]:
    """The files that tests stand in, in order of their first test."""
    return tuple(dict.fromkeys(test.partition("::")[0] for test in tests))


def test_files(package: Package, tests: Sequence[str]) -> tuple[str, ...]:
    """Files that decide: those of the tests, and what pytest reads beside them."""
    beside = {path for path in package.python_files() if path.rpartition("/")[2] == "conftest.py"}
    there = {path for path in files_of(tests) if (package.tree / path).is_file()}
    return tuple(sorted(there | {path for path in beside if is_test(path)}))
