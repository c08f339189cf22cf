"""Where a repair is made: lines that a hint names tell the place and no more."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmtrl.envs.swe.expert import gold_actions
from jaxmtrl.envs.swe.places import hint, places
from jaxmtrl.envs.swe.sandbox.api import Base, FileChange

# Line 1 is a constant, 4 the function's first line, 5 to 73 its body, 76 the next function.
BODY = [f"    x{i} = {i}" for i in range(5, 74)]
CODE = "\n".join(["LIMIT = 10", "", "", "def long(a):", *BODY, "", "", "def short():", "    return 1", ""])


def changed(line: int) -> str:
    lines = CODE.split("\n")
    lines[line - 1] += "  # mended"
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (1, (1, 9)),  # in no function: eight lines around
        (4, (4, 35)),  # the first piece, 4 to 33, and two lines more
        (33, (4, 35)),
        (34, (32, 65)),  # the second, 34 to 63
        (63, (32, 65)),
        (64, (62, 73)),  # the rest
        (76, (76, 77)),
    ],
)
def test_a_place_is_a_piece_of_its_function(line, told):
    (place,) = places("a.py", CODE, changed(line))
    assert (place.first, place.last) == told


def test_the_lines_do_not_tell_where_among_them_the_fault_is(tmp_path):
    (tmp_path / "a.py").write_text(CODE)
    told = {
        hint(Base(tree=tmp_path), [FileChange(path="a.py", content=changed(line).encode())]) for line in range(34, 64)
    }
    assert told == {"Look at lines 32 to 65 of a.py."}


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(1, 77), min_size=1, max_size=5))
def test_every_changed_line_is_among_those_told(tmp_path_factory, mended):
    tree = tmp_path_factory.mktemp("tree")
    (tree / "a.py").write_text(CODE)
    lines = CODE.split("\n")
    after = "\n".join(line + "  # mended" if at in mended else line for at, line in enumerate(lines, 1))
    told = hint(Base(tree=tree), [FileChange(path="a.py", content=after.encode())])
    spans = [(int(a), int(b)) for a, b in re.findall(r"lines (\d+) to (\d+) of a\.py", told)]
    assert all(any(first <= at <= last for first, last in spans) for at in mended)


def test_who_is_told_looks_at_those_lines_and_no_others(tmp_path):
    (tmp_path / "a b.py").write_text(CODE)
    gold = [FileChange(path="a b.py", content=changed(40).encode())]
    assert hint(Base(tree=tmp_path), gold) == "Look at lines 32 to 65 of a b.py."
    look, edit, _ = gold_actions(Base(tree=tmp_path), gold, form="fenced", way="told") or []
    assert "sed -n '32,65p' 'a b.py'" in look and "mended" in edit


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"new\n"])
def test_files_that_are_new_or_go_or_are_no_text_have_no_place(tmp_path, content):
    (tmp_path / "a.py").write_text(CODE)
    path = "b.py" if content == b"new\n" else "a.py"
    assert hint(Base(tree=tmp_path), [FileChange(path=path, content=content)]) == ""


def test_code_that_python_cannot_read_is_told_by_lines(tmp_path):
    (tmp_path / "a.py").write_text("def f(:\n" + CODE)
    gold = [FileChange(path="a.py", content=("def f(:\n" + changed(40)).encode())]
    assert hint(Base(tree=tmp_path), gold) == "Look at lines 33 to 49 of a.py."
