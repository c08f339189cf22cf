"""What a policy is told of a fault."""

from __future__ import annotations

import pytest

from jaxmtrl.envs.swe.inject.splits import by_split, split_of
from jaxmtrl.envs.swe.inject.statements import observed, shorten, statements, steady
from jaxmtrl.envs.swe.instance import SweInstance

TEXT = """tests/test_a.py:4: in test_a
    assert clamp(
E   assert -1 == 0
E    +  where -1 = clamp(-1, 0)"""
MESSAGE = "assert -1 == 0\n +  where -1 = clamp(-1, 0)"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        "import a\n\ndef test_a():\n    assert clamp(\n        -1, 0\n    ) == 0\n"
    )
    return tmp_path


def test_a_wrong_value_is_told_as_a_user_would(tree):
    assert observed(TEXT, MESSAGE, tree) == "`clamp(-1, 0)` gives `-1`, but should give `0`."


def test_another_assertion_is_shown_with_the_tests_whole_statement(tree):
    told = observed(TEXT, "AssertionError: words\nassert not True", tree)
    assert "assert clamp(\n        -1, 0\n    ) == 0" in told and "assert not True" in told and "words" not in told


def test_an_error_is_told_with_what_raised_it(tree):
    told = observed(TEXT.replace("assert", "raise"), "TypeError: <x at 0x7f0011223344> in /tmp/abc/d", tree)
    assert "assert clamp(\n        -1, 0\n    ) == 0" in told
    assert told.endswith("What it says: TypeError: <x at 0x...> in /tmp/...")
    assert observed("", "KeyError: 3", tree) == "What it says: KeyError: 3"


def test_the_three_levels_tell_less_and_less_of_where(tree):
    tests = {f"tests/test_a.py::test_{number}": TEXT for number in range(12)}
    told = statements("tiny", tree, tests, dict.fromkeys(tests, MESSAGE))
    assert told["a"].count("tests/test_a.py::") == 10 and "and 2 more" in told["a"]
    assert "test_a.py:4" in told["b"] and "test_0" in told["b"] and "test_6" in told["b"]
    assert "tests/" not in told["c"] and told["c"].count("clamp(-1, 0)") == 1


def test_long_words_keep_their_end_and_whole_lines():
    text = "\n".join(f"line {number}" for number in range(500))
    short = shorten(text, 200)
    assert len(short) <= 205 and short.startswith("line 0\n") and short.endswith("line 499") and "\n...\n" in short
    assert steady("0x12 0xdeadbeef1") == "0x12 0x..."


def row(package="pypi/a", kind="cmp", function="f"):
    extra = {"kind": kind, "kinds": [kind], "functions": [f"m.py:{function}"]}
    return SweInstance(
        id="x", repo=package, problem_statement="", fail_to_pass=(), pass_to_pass=(), patch="", extra=extra
    )


def test_splits_by_package_kind_and_function():
    assert split_of(row(), ["b"], ["not"]) in ("train", "heldout")
    assert split_of(row("pypi/b"), ["b"], ["not"]) == "unseen_package"
    assert split_of(row(kind="not"), ["b"], ["not"]) == "unseen_kind"
    assert split_of(row("pypi/b", "not"), ["b"], ["not"]) == "unseen_both"
    splits = [split_of(row(function=f"f{number}"), [], []) for number in range(400)]
    assert 20 <= splits.count("heldout") <= 60  # a tenth
    assert split_of(row(function="f1"), [], []) == split_of(
        row(kind="bool", function="f1"), [], []
    )  # by function alone


def test_rows_by_split_in_a_fixed_order():
    rows = [row(), row(), row()]
    for each, split in zip(rows, ("unseen_kind", "train", "unseen_kind")):
        each.extra["split"] = split
    assert [(split, len(members)) for split, members in by_split(rows).items()] == [("train", 1), ("unseen_kind", 2)]
