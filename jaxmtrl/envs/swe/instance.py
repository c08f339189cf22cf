"""One task of software engineering: a repository with a fault, words that describe it, and tests that decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SweInstance:
    """A row of SWE-Gym, SWE-bench or SWE-smith, or one that we injected, in one form.

    The repository as the policy meets it is its base, with `bug_patch` applied where there is one. What solves the task
    (`patch`) and the tests that decide are never shown to who plays.
    """

    id: str  # unique in its file, for example "getmoto__moto-6226" or "parse-1.20.2__cmp-1a2b3c4d"
    repo: str  # the task's type for mixes, lower case, for example "getmoto/moto" or "pypi/parse"
    problem_statement: str
    fail_to_pass: tuple[str, ...]  # pytest ids that fail before and pass after; exactly as pytest names them
    pass_to_pass: tuple[str, ...]  # ids that pass before and must still pass
    patch: str  # unified diff that solves it, from the policy's tree; "" where nobody knows one
    test_patch: str = ""  # unified diff of the tests that decide; "" where `test_files` are those of the base
    bug_patch: str = ""  # unified diff that made the fault, from the clean base
    base: str = ""  # commit, or the archive's sha256
    version: str = ""
    environment_commit: str = ""  # SWE-bench's environment_setup_commit
    image: str = ""  # container image that holds repository and packages
    test_files: tuple[str, ...] = ()  # paths of the tests that decide, shown only while they decide
    hidden_files: tuple[str, ...] = ()  # paths that are taken out of the tree that the policy meets
    eval_script: str = ""  # how others run its tests; kept, not run by us
    source: str = ""  # "swe-gym", "swe-bench", "swe-smith", "injected", "release"
    truncated_ids: bool = False  # ids of this file may have lost all that followed their first space
    extra: Mapping[str, Any] = field(default_factory=dict)  # fields of the row that we do not know, and a bug's kind
