"""Diffs: what we make, git applies; what we turn round undoes it."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmtrl.envs.swe.patches import PatchError, apply_patch, make_patch, patched_paths, reverse_patch

BEFORE = {"a.py": "one\ntwo\nthree\n", "b/c.py": "no end", "gone.txt": "x\n", "form.py": "a\x0cb\n\x1c\nc\u2028d\n"}
AFTER = {"a.py": "one\n2\nthree\n-- x\n", "b/c.py": "no end\n", "new.txt": "y", "form.py": "a\x0cb\n\x1c\nc\u2028e\n"}


def write(folder, files):
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())


def read(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes().decode() for path in files}


def test_a_patch_leads_there_and_its_reverse_back(tmp_path):
    write(tmp_path, BEFORE)
    patch = make_patch(BEFORE, AFTER)
    apply_patch(tmp_path, patch)
    assert read(tmp_path) == AFTER
    apply_patch(tmp_path, reverse_patch(patch))
    assert read(tmp_path) == BEFORE
    assert reverse_patch(reverse_patch(patch)) == patch
    assert patched_paths(patch) == ("a.py", "b/c.py", "form.py", "gone.txt", "new.txt")


def test_what_looks_like_a_header_within_a_hunk_is_a_line():
    patch = make_patch({"a": "-- b/x\nkeep\n"}, {"a": "++ a/x\nkeep\n"})
    assert "--- b/x\n" in patch and "+++ a/x\n" in patch
    assert patched_paths(patch) == ("a",)
    assert reverse_patch(patch) == make_patch({"a": "++ a/x\nkeep\n"}, {"a": "-- b/x\nkeep\n"})


def committed(folder, files):
    """git in a repository of these files."""

    def git(*arguments):
        command = ["git", "-c", "user.name=x", "-c", "user.email=x", *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout.decode()

    git("init", "-q")
    write(folder, files)
    git("add", "-A")
    git("commit", "-qm", "a")
    return git


def test_gits_own_diffs_with_renames_and_modes_turn_round(tmp_path):
    old = "".join(f"line {number}\n" for number in range(20))
    git = committed(tmp_path, {"old.py": old, "run.sh": "x\n"})
    (tmp_path / "old.py").unlink()
    write(tmp_path, {"new.py": old.replace("line 7", "line seven")})
    (tmp_path / "run.sh").chmod(0o755)
    git("add", "-A")
    patch = git("diff", "--cached", "-M")
    assert "rename from" in patch and patched_paths(patch) == ("new.py", "old.py", "run.sh")
    git("commit", "-qm", "b")
    (tmp_path / ".git").rename(tmp_path.parent / f"{tmp_path.name}.git")
    apply_patch(tmp_path, reverse_patch(patch))
    assert read(tmp_path) == {"old.py": old, "run.sh": "x\n"}
    assert (tmp_path / "run.sh").stat().st_mode & 0o111 == 0


lines = st.lists(st.sampled_from(["a\n", "b\n", "\n", "-- c\n", "++ d\n", "@@ -1 +1 @@\n"]), max_size=12)


@settings(max_examples=60, deadline=None)
@given(lines, lines, st.sampled_from(["", "end"]))
def test_turning_round_twice_changes_nothing(old, new, end):
    patch = make_patch({"f": "".join(old) + "x\n"}, {"f": "".join(new) + end})
    assert reverse_patch(reverse_patch(patch)) == patch


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n-two\n", "not as many lines"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 3\n", "binary"),
    ],
)
def test_a_damaged_patch_is_refused(patch, words):
    with pytest.raises(PatchError, match=words):
        reverse_patch(patch)


@pytest.mark.parametrize("path", ["../outside", "/tmp/outside", ".git/config"])
def test_a_patch_cannot_leave_its_folder(tmp_path, path):
    folder = tmp_path / "tree"
    folder.mkdir()
    patch = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(PatchError, match="does not fit"):
        apply_patch(folder, patch)
    assert read(tmp_path) == {}


def test_a_patch_is_applied_below_another_repository_too(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    folder = tmp_path / "tree"
    write(folder, BEFORE)
    apply_patch(folder, make_patch(BEFORE, AFTER))
    assert read(folder) == AFTER


def test_paths_of_every_kind_of_change_that_git_tells(tmp_path):
    git = committed(tmp_path, {"old": "a\nb\nc\n", "mod e": "x\n", "naïve.py": "1\n", "copied": "d\ne\nf\n"})
    write(tmp_path, {"naïve.py": "2\n", "sub/__init__.py": "", "copy": "d\ne\nf\n", "copied": "d\ne\nf\ng\n"})
    (tmp_path / "mod e").chmod(0o755)
    (tmp_path / "old").rename(tmp_path / "new")
    git("add", "-A")
    names = ("copied", "copy", "mod e", "naïve.py", "new", "old", "sub/__init__.py")
    patch = git("diff", "--cached", "-M")
    assert "rename to" in patch and '"b/na\\303' in patch
    assert patched_paths(patch) == patched_paths(patch.replace("\n", "\r\n")) == names
    copying = git("diff", "--cached", "-C")
    assert "copy to" in copying and patched_paths(copying) == names
    with pytest.raises(PatchError, match="copies a file"):
        reverse_patch(copying)


PIECES = (
    *(
        "diff --git a/x b/x",
        "diff --git ",
        "--- a/x",
        "--- ",
        "+++ b/x",
        "+++",
        "@@ -1 +1 @@",
        "@@ -0,0 +1 @@",
        "@@ -x @@",
    ),
    *(
        "-a",
        "+b",
        " c",
        "",
        "\\",
        "rename from x",
        "rename to y",
        "rename from",
        "rename ",
        "copy to y",
        "copy to",
        "\r",
    ),
    *(
        "new file mode 100644",
        "deleted file mode",
        "old mode 1",
        '--- "a/\\303"',
        '+++ "b/x',
        'rename to "a\\"b"',
        "Binary files",
    ),
)


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_what_is_no_patch_is_refused_or_has_paths_and_nothing_else_happens(pieces):
    for read in (patched_paths, reverse_patch):
        try:
            read("\n".join(pieces))
        except PatchError:
            continue


def test_files_without_hunks_turn_round_each_for_itself(tmp_path):
    git = committed(tmp_path, {"a": "a\nb\nc\n", "c": "d\ne\nf\n", "y": "1\n", "z.sh": "x\n"})
    before = git("rev-parse", "HEAD^{tree}")
    for old, new in (("a", "b"), ("c", "d")):
        (tmp_path / old).rename(tmp_path / new)
    (tmp_path / "z.sh").chmod(0o755)
    write(tmp_path, {"e": ""})
    git("add", "-A")
    patch = git("diff", "--cached", "-M")
    assert patched_paths(patch) == ("a", "b", "c", "d", "e", "z.sh")
    apply_patch(tmp_path, reverse_patch(patch))
    git("add", "-A")
    assert git("write-tree") == before
