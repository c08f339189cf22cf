"""The verdict on an episode: what solves is resolved, and nothing else is (D1-D26, C17)."""

from __future__ import annotations

import pytest
import shop

from jaxmtrl.envs.swe.grade import Grade, grade
from jaxmtrl.envs.swe.sandbox.api import ChangeSet, FileChange, Limits

pytestmark = pytest.mark.sandbox


def changed(**files: str | bytes | None) -> ChangeSet:
    return ChangeSet(
        files=tuple(
            FileChange(path=path, content=content.encode() if isinstance(content, str) else content)
            for path, content in sorted(files.items())
        )
    )


@pytest.fixture
def graded(backend, prepared):
    def judge(changes: ChangeSet, instance=shop.INSTANCE, *, tests_s=30.0, on=None) -> Grade:
        return grade(backend, on or prepared, instance, changes, limits=Limits(), tests_s=tests_s)

    return judge


def test_the_gold_patch_resolves(graded):
    verdict = graded(changed(**{"shop/prices.py": shop.PRICES}))
    assert verdict.status == "resolved"
    assert all(verdict.fail_to_pass.values()) and all(verdict.pass_to_pass.values())


def test_a_junk_comment_resolves_nothing(graded):
    verdict = graded(changed(**{"shop/prices.py": shop.FAULTY + "# fixed\n"}))
    assert verdict.status == "unresolved"
    assert not any(verdict.fail_to_pass.values()) and all(verdict.pass_to_pass.values())
