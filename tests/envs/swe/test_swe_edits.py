"""The command `edit`: exact replacement of lines, refusals that help, and commands that rebuild any text by it."""

from __future__ import annotations

import os
import resource
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.envs.swe import edit_tool
from jaxmtrl.envs.swe.edits import SHOWN, edit_command
from jaxmtrl.envs.swe.sandbox.surroundings import is_program

FILE = "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n"


def hunk(old: str, new: str, mark: int = 4) -> str:
    return f"{'<' * mark}\n{old}{'=' * mark}\n{new}{'>' * mark}\n"


def refusal(path, text: str) -> str:
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(edit_tool.Refused) as caught:
        edit_tool.edit(str(path), text)
    assert (path.read_bytes() if path.exists() else None) == before
    return str(caught.value)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "a.py"
    made.write_text(FILE)
    return made


def test_whole_lines_are_replaced_and_shown(path):
    told = edit_tool.edit(str(path), hunk("def g(x):\n    return x\n", "def g(x):\n    return -x\n"))
    assert path.read_text() == FILE.replace("g(x):\n    return x", "g(x):\n    return -x")
    assert told == f"edited {path}\n     3  \n     4  \n     5  def g(x):\n     6      return -x\n     7  "


def test_a_line_is_not_found_within_a_longer_one(path):
    assert "not in" in refusal(path, hunk("def g\n", "def h\n"))


def test_lines_that_stand_twice_are_refused_with_their_places(path):
    assert "stand 2 times" in (told := refusal(path, hunk("    return x\n", "    return 1\n"))) and "lines 2, 6" in told


def test_other_white_space_is_told_with_what_is_there(path):
    told = refusal(path, hunk("def g(x):\n\treturn x\n", ""))
    assert "white space" in told and "at line 5:\ndef g(x):\n    return x" in told


def test_a_first_line_that_is_there_is_shown(path):
    assert "     5  def g(x):\n     6      return x" in refusal(path, hunk("def g(x):\n    return y\n", ""))


def test_all_are_done_or_none(path):
    both = hunk("def f(x):\n", "def f(y):\n") + "\n" + hunk("nothing\n", "")
    refusal(path, both)
    edit_tool.edit(str(path), hunk("def f(x):\n", "def f(y):\n") + hunk("def g(x):\n", "def g(y):\n"))
    assert path.read_text() == FILE.replace("(x)", "(y)")


def test_an_edit_that_changes_nothing_is_refused(path):
    """Told "edited", a policy would submit what it never changed; a new empty file is a change."""
    assert "old ones again" in refusal(path, hunk("def g(x):\n", "def g(x):\n"))
    there_and_back = hunk("def g(x):\n", "def h(x):\n") + hunk("def h(x):\n", "def g(x):\n")
    assert "old ones again" in refusal(path, there_and_back)
    assert edit_tool.edit(str(path.with_name("b.py")), hunk("", "")).startswith("made")


def test_lines_go_where_nothing_takes_their_place(path):
    edit_tool.edit(str(path), hunk("\n\ndef g(x):\n    return x\n", ""))
    assert path.read_text() == "def f(x):\n    return x\n"


def test_a_file_is_made_where_nothing_is_replaced(tmp_path):
    made = tmp_path / "new" / "b.py"
    assert edit_tool.edit(str(made), hunk("", "x = 1\n")).startswith(f"made {made}")
    assert made.read_text() == "x = 1\n"
    assert "not empty" in refusal(made, hunk("", "x = 2\n"))
    assert "does not exist" in refusal(tmp_path / "c.py", hunk("x\n", "y\n"))
    with pytest.raises(edit_tool.Refused, match="folder"):
        edit_tool.edit(str(tmp_path / "new"), hunk("x\n", "y\n"))


def test_longer_marks_hold_shorter_ones(tmp_path):
    made = tmp_path / "a.rst"
    made.write_text("Title\n====\n")
    edit_tool.edit(str(made), hunk("Title\n====\n", "Other\n====\n", mark=5))
    assert made.read_text() == "Other\n====\n"


@pytest.mark.parametrize("text", ["", "\n", "x\n", "<<<<\na\n", "<<<<\na\n====\nb\n", "<<<\na\n===\nb\n>>>\n"])
def test_what_is_no_replacement_is_refused_with_the_usage(path, text):
    assert "usage: edit FILE" in refusal(path, text)


def test_python_that_no_longer_parses_is_told(path):
    told = edit_tool.edit(str(path), hunk("def f(x):\n", "def f(x:\n"))
    assert "WARNING" in told and path.read_text().startswith("def f(x:\n")


def test_what_python_thinks_of_other_lines_is_not_told(path, recwarn):
    path.write_text(FILE + 'SAID = "x" is 1\n')
    assert "Warning" not in edit_tool.edit(str(path), hunk("def f(x):\n", "def f(y):\n"))
    assert not recwarn.list


def test_line_ends_and_bytes_that_are_no_text_stay(tmp_path):
    made = tmp_path / "a.txt"
    made.write_bytes(b"one\r\ntwo\xff\r\nthree\r\n")
    edit_tool.edit(str(made), hunk("one\n", "1\n"))
    assert made.read_bytes() == b"1\r\ntwo\xff\r\nthree\r\n"


@pytest.mark.parametrize(
    ("content", "old", "new", "result"),
    [
        (b"a\r\nb\nc\r\n", "b\n", "x\n", b"a\r\nx\nc\r\n"),  # ends of other lines stay, whatever they are
        (b"a\r\nb\nc\r\n", "c\n", "x\ny\n", b"a\r\nb\nx\r\ny\r\n"),
        (b"a\nb\r\n", "a\nb\n", "c\n", b"c\n"),
        (b"a\nb", "b\n", "c\nd\n", b"a\nc\nd"),  # no end of the last line stays none
        (b"a\r\nb", "a\n", "", b"b"),
        (b"a\nb", "b\n", "", b"a\n"),
        (b"a", "a\n", "b\n", b"b"),
        (b"a\n", "a\n", "", b""),
        (b"\n\n", "", "x\n", b"x\n"),
        (b" \r\n", "", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\rb\n", "a\rb\n", "c\n", b"c\n"),
        (b"\xef\xbb\xbfa\nb\n", "b\n", "c\n", b"\xef\xbb\xbfa\nc\n"),
        (b"\x00\xff\nb\n", "b\n", "c\n", b"\x00\xff\nc\n"),
    ],
)
def test_every_line_keeps_its_end(tmp_path, content, old, new, result):
    made = tmp_path / "a.txt"
    made.write_bytes(content)
    edit_tool.edit(str(made), hunk(old, new))
    assert made.read_bytes() == result


@pytest.mark.parametrize("old, new", [("Title\n", "====\nNew\n====\n"), ("def f(x):\n", "<<<<\nb\n")])
def test_a_mark_that_may_be_a_line_is_refused(path, old, new):
    assert "make all three marks longer" in refusal(path, hunk(old, new))


def test_a_full_disk_leaves_the_file_as_it_was(path):
    path.chmod(0o750)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            edit_tool.edit(str(path), hunk("def f(x):\n", "def f(x):\n" + "    pass\n" * 99))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == FILE and [file.name for file in path.parent.iterdir()] == ["a.py"]
    edit_tool.edit(str(path), hunk("def f(x):\n", "def f(y):\n"))
    assert path.stat().st_mode & 0o777 == 0o750


def test_what_is_no_file_is_refused_and_a_link_leads_to_its_file(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(edit_tool.Refused, match="no ordinary file"):
            edit_tool.edit(name, hunk("a\n", "b\n"))
    (tmp_path / "link").symlink_to("a.py")
    edit_tool.edit(str(tmp_path / "link"), hunk("def f(x):\n", "def f(y):\n"))
    assert (tmp_path / "link").is_symlink() and path.read_text().startswith("def f(y)")


def run(command: str, folder) -> subprocess.CompletedProcess:
    """As a sandbox runs it: what is shown lies about the place that bash reads at its start."""
    for path, content in SHOWN.items():
        place = folder / path.removeprefix("/run/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o755 if is_program(content) else 0o644)
    environment = {"BASH_ENV": str(folder / "swe/start"), "PATH": "/usr/bin:/bin"}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 20}
    return subprocess.run(["bash", "-c", command], **options)


def test_bash_runs_the_command_that_is_written(path, tmp_path):
    after = FILE.replace("def g(x)", "def g(x, y='$HOME `ls` \\\\')").replace(
        "    return x\n", "E\n    return 'é'\n", 1
    )
    done = run(edit_command("a.py", FILE, after), tmp_path)
    assert done.returncode == 0 and path.read_text() == after
    refused = run(edit_command("a.py", FILE, after), tmp_path)
    assert refused.returncode == 1 and refused.stdout.endswith("Nothing was changed.\n")
    assert run("edit a.py </dev/null", tmp_path).returncode == 1 and run("edit", tmp_path).returncode == 2


@pytest.mark.parametrize("carrier", ["{}", "timeout 5 {}", "sh -c '{}'", "env {}", "(cd / && {})"])
def test_it_is_a_program_in_path_whoever_runs_it(path, tmp_path, carrier):
    (tmp_path / "hunk").write_text(hunk("def f(x):\n", "def f(y):\n"))
    done = run(carrier.format(f"edit {path} < {tmp_path}/hunk"), tmp_path)
    assert done.returncode == 0 and path.read_text().startswith("def f(y)"), done.stderr
    assert run("command -v edit", tmp_path).stdout == f"{tmp_path}/swe/bin/edit\n"


def test_a_change_among_equal_blocks_takes_as_many_lines_as_make_it_the_only_place(tmp_path):
    block = "if x:\n    y = 1\n    z = 2\n\n"
    before = "".join(f"# {n}\n{block}" for n in range(6))
    after = before.replace(f"# 3\n{block}", "# 3\n" + block.replace("y = 1", "y = 3"))
    command = edit_command("a", before, after)
    (tmp_path / "a").write_text(before)
    assert run(command, tmp_path).returncode == 0 and (tmp_path / "a").read_text() == after
    assert "# 3" in command and "# 2" not in command


def test_no_line_is_copied_that_need_not_be():
    """A replaced line that stands once stands alone; lines that come or go need one beside them to say where."""
    changed = edit_command("a", FILE, FILE.replace("def g(x)", "def g(y)"))
    assert changed == "edit a <<'E'\n<<<<\ndef g(x):\n====\ndef g(y):\n>>>>\nE"
    added = edit_command("a", "one\ntwo\n", "one\nhalf\ntwo\n")
    assert added == "edit a <<'E'\n<<<<\none\ntwo\n====\none\nhalf\ntwo\n>>>>\nE"


LINES = st.lists(st.sampled_from(["a", "b", "  a", "", "====", ">>>>", "<<<<<", "E", "é"]), max_size=14)


@given(before=LINES, after=LINES)
def test_any_text_is_made_of_any_other(tmp_path_factory, before, after):
    path = tmp_path_factory.mktemp("edit") / "a"
    old, new = "".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after)
    path.write_text(old)
    if old == new:
        return
    command = edit_command("a", old, new).split("\n")
    edit_tool.edit(str(path), "\n".join(command[1:-1]) + "\n")
    assert path.read_text() == new
