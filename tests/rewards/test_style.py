"""What a linter makes of code: findings for statements, nothing for what is no code, and no way round it."""

from __future__ import annotations

import subprocess

import pytest

from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.rewards.style import style_score

CLEAN = '"""Adds."""\n\n\ndef add(a, b):\n    return a + b\n'


def test_clean_code_is_worth_1():
    assert style_score(CLEAN) == 1.0


def test_findings_count_by_statements():
    """An unused import: 1 / (1 + 10 / 10) in a short text; in 40 statements 1 / (1 + 10 / 40) = .8."""
    assert style_score("import os\n\nx = 1\n") == 0.5
    assert style_score("import os\n\n" + "x = 1\n" * 39) == pytest.approx(0.8)


@pytest.mark.parametrize("code", ["", "  \n", "# nothing\n", "def f(:\n", "x = \x00\n", "(" * 500, "take the key"])
def test_what_is_no_code_is_worth_nothing(code):
    assert style_score(code) == 0.0


@pytest.mark.parametrize("trick", ["import os  # noqa\n\nx = 1\n", "# ruff: noqa\nimport os\n\nx = 1\n"])
def test_the_linter_cannot_be_told_to_look_away(trick):
    assert style_score(trick) == 0.5


def test_comments_do_not_thin_findings_out():
    assert style_score("# fine\n" * 200 + "import os\n\nx = 1\n") == 0.5


def test_whatever_files_lie_about_the_score_is_the_same(tmp_path, monkeypatch):
    (tmp_path / "ruff.toml").write_text('lint.ignore = ["F401"]\n')
    monkeypatch.chdir(tmp_path)
    assert style_score("import os\n\nx = 1\n") == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ruff.toml"]  # no cache


def test_a_linter_that_fails_is_a_failure_and_no_score(monkeypatch):
    def late(*arguments, **others):
        raise subprocess.TimeoutExpired("ruff", 10)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(EnvironmentFailure, match="the style of 46 characters of code was not told"):
        style_score(CLEAN)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess([], 2, b"", b"bad flag"))
    with pytest.raises(EnvironmentFailure, match="exit code 2: bad flag"):
        style_score(CLEAN)
