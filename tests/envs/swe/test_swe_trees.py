"""What lies under a sandbox: all that the policy may see, and nothing of what solves its task."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tiny_package import CODE, FILES, SECRET, TESTS, faulty, write_archive

from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import PatchError, make_patch
from jaxmtrl.envs.swe.sandbox.api import Base, Limits
from jaxmtrl.envs.swe.sandbox.owner import USER
from jaxmtrl.envs.swe.sources import SourceError
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.errors import EnvironmentFailure

pytest_plugins = ["swe_fixtures"]


@pytest.fixture
def cache(tmp_path) -> TreeCache:
    return TreeCache(tmp_path / "cache")


@pytest.fixture
def instance(cache) -> SweInstance:
    return faulty(write_archive(cache.archives))


def seen(base: Base, folder: Path) -> Path:
    """The workspace as an overlay shows it: a file of a layer hides the one below."""
    assert base.tree is not None
    for layer in (base.tree, *base.layers):
        shutil.copytree(layer, folder, dirs_exist_ok=True, symlinks=True)
    return folder


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    return done.stdout.decode() + done.stderr.decode()


def grep(folder: Path, words: str) -> list[str]:
    """Files that hold `words`, in git's packed objects too."""
    found = [str(path) for path in folder.rglob("*") if path.is_file() and words.encode() in path.read_bytes()]
    objects = git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    return found + [name for name in objects if words in git(folder, "cat-file", "-p", name)]


def test_the_policy_meets_the_fault_and_no_trace_of_the_cure(cache, instance, tmp_path):
    folder = seen(cache.base(instance), tmp_path / "seen")
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if ".git" not in path.parts and path.is_file()}
    assert files == set(FILES) - {"tests/test_core.py"} | {"inside"}
    assert "return value" in (folder / "tiny/core.py").read_text()
    assert grep(folder, SECRET) == []
    assert grep(folder, "test_first_long") == []  # the hidden tests
    assert grep(folder, "def total") != []  # the search finds what is there


def test_git_knows_one_commit_and_nothing_beside_it(cache, instance, tmp_path):
    folder = seen(cache.base(instance), tmp_path / "seen")
    assert len(git(folder, "rev-list", "--all").split()) == 1
    assert git(folder, "fsck", "--full", "--unreachable", "--no-reflogs", "--lost-found") == ""
    assert git(folder, "status", "--porcelain", "--ignored") == ""
    assert git(folder, "remote") == git(folder, "stash", "list") == git(folder, "reflog") == ""
    assert {"hooks", "logs", "FETCH_HEAD", "ORIG_HEAD"} & set(os.listdir(folder / ".git")) == set()
    assert set(git(folder, "ls-files").split()) == set(FILES) - {"tests/test_core.py"} | {"inside"}


def test_faults_of_one_package_share_its_clean_files(cache, instance):
    other = faulty(cache.archives / "tiny_pkg-1.0.tar.gz", id="other", hidden_files=())
    one, two = cache.base(instance), cache.base(other)
    assert one.tree == two.tree and one.layers != two.layers
    assert not (one.tree / "tests" / "test_core.py").exists()
    assert not (one.layers[0] / "README.md").exists()  # the layer is small
    assert (two.layers[0] / "tests" / "test_core.py").read_text() == TESTS
    assert cache.base(instance) == one


def test_what_decides_and_what_solves_are_given_to_the_grader_only(cache, instance):
    tests = cache.tests(instance)
    assert sorted(tests) == sorted(instance.test_files)
    assert tests["tests/test_core.py"].decode() == TESTS
    (change,) = cache.gold(instance).files
    assert (change.path, change.content) == ("tiny/core.py", CODE.encode())


def test_an_archive_that_is_not_the_rows_is_refused(cache, instance):
    write_archive(cache.archives, changed={"README.md": "another"})
    with pytest.raises(SourceError, match="sha256"):
        cache.base(instance)


@pytest.fixture
def mirror(tmp_path) -> tuple[Path, str]:
    """A repository with a fault, and a commit after it that cures it; its bare clone and the faulty commit."""
    work = tmp_path / "work"
    work.mkdir()
    settings = ["-c", "user.name=x", "-c", "user.email=x"]
    git(work, "init", "-q", "-b", "main")
    files = {"src/a.py": "bad\n", "tests/test_a.py": "old\n", "build/keep.py": "x\n", "a.pyc": SECRET}
    for path, text in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    git(work, "add", "-A")
    git(work, *settings, "commit", "-qm", "fault")
    commit = git(work, "rev-parse", "HEAD").strip()
    (work / "src/a.py").write_text(SECRET + "\n")
    git(work, *settings, "commit", "-qam", "cure")
    git(tmp_path, "clone", "-q", "--mirror", str(work), str(tmp_path / "mirrors" / "Some__Repo.git"))
    return tmp_path / "mirrors", commit


def repository_row(commit: str) -> SweInstance:
    return SweInstance(
        id="some__repo-1",
        repo="some/repo",
        problem_statement="bad",
        fail_to_pass=("tests/test_a.py::x",),
        pass_to_pass=(),
        patch=make_patch({"src/a.py": "bad\n"}, {"src/a.py": SECRET + "\n"}),
        test_patch=make_patch({"tests/test_a.py": "old\n"}, {"tests/test_a.py": "new\n", "tests/d.json": "{}"}),
        test_files=("tests/d.json", "tests/test_a.py"),
        base=commit,
        source="swe-gym",
        image="docker.io/x",
    )


def test_a_repository_comes_from_its_mirror_without_its_future(tmp_path, mirror):
    mirrors, commit = mirror
    cache = TreeCache(tmp_path / "cache", mirrors=mirrors)
    row = repository_row(commit)
    base = cache.base(row)
    folder = seen(base, tmp_path / "seen")
    assert base.layers == () and base.image is None
    assert set(git(folder, "ls-files").split()) == {"src/a.py", "tests/test_a.py", "build/keep.py"}
    assert grep(folder, SECRET) == [] and (folder / "tests/test_a.py").read_text() == "old\n"
    assert len(git(folder, "rev-list", "--all").split()) == 1 and commit not in git(folder, "rev-list", "--all")
    assert cache.tests(row) == {"tests/d.json": b"{}", "tests/test_a.py": b"new\n"}
    assert cache.gold(row).files[0].content == f"{SECRET}\n".encode()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"base": "0" * 40}, "does not give the commit"),
        ({"base": "--output=/tmp/x"}, "no commit in base_commit"),
        ({"repo": "no/such"}, "has no no__such.git"),
    ],
)
def test_a_missing_mirror_or_commit_is_named(tmp_path, mirror, fields, words):

    mirrors, commit = mirror
    with pytest.raises(SourceError, match=words):
        TreeCache(tmp_path / "cache", mirrors=mirrors).base(dataclasses.replace(repository_row(commit), **fields))


def test_without_a_mirror_an_image_holds_the_repository(tmp_path):
    assert TreeCache(tmp_path / "cache").base(repository_row("0" * 40)) == Base(tree=None, image="docker.io/x")


LINK = "diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{2}\n"


def test_a_patch_that_does_not_fit_is_told_with_its_row_and_field(cache, instance):
    for field in ("bug_patch", "patch", "test_patch"):
        wrong = dataclasses.replace(instance, **{field: make_patch({"tiny/core.py": "x\n"}, {"tiny/core.py": "y\n"})})
        with pytest.raises(PatchError, match=f"{field} of tiny-pkg-1.0__stub-1: a patch does not fit"):
            cache.base(wrong)
            cache.tests(wrong)
            cache.gold(wrong)


def test_a_folder_among_hidden_files_is_told_with_its_row(cache, instance):
    for path in ("tests", "README.md/x"):
        with pytest.raises(SourceError, match=f"tiny-pkg-1.0__stub-1: {path}, of its test_files or hidden_files"):
            cache.base(dataclasses.replace(instance, hidden_files=(path,)))


def test_a_repair_has_empty_files_and_no_links_or_submodules(cache, instance):
    empty = "diff --git a/tiny/new/__init__.py b/tiny/new/__init__.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    link = LINK.format("link", "120000", "/etc/passwd") + "\\ No newline at end of file\n"
    gold = cache.gold(dataclasses.replace(instance, patch=instance.patch + empty + link))
    assert {change.path: change.content for change in gold.files}["tiny/new/__init__.py"] == b""
    assert gold.dropped == ("link",) and len(gold.files) == 2
    submodule = LINK.format("sub", "160000", "Subproject commit " + "0" * 40)
    assert cache.base(dataclasses.replace(instance, bug_patch=instance.bug_patch + submodule))


def test_a_machine_without_git_says_so(cache, instance, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentFailure, match="git is not installed; install it"):
        cache.base(instance)


def test_files_belong_to_the_sandboxs_user(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    cache = TreeCache(tmp_path / "cache")
    base = cache.base(faulty(write_archive(cache.archives)))
    for place in (base.tree, *base.layers):
        for path in [place, *place.rglob("*")]:
            status = path.lstat()
            assert (status.st_uid, status.st_gid) == (USER, USER)
            assert path.is_symlink() or status.st_mode & 0o444 == 0o444


@pytest.mark.sandbox
def test_a_policy_that_looks_for_the_cure_everywhere_finds_none(instance, cache, backend):
    sandbox = backend.open(cache.base(instance), Limits())
    try:

        def said(command: str) -> str:
            return sandbox.run(command).output.decode()

        assert said("git rev-list --all | wc -l; git fsck --unreachable --no-reflogs; git status --porcelain") == "1\n"
        looking = (
            "grep -rlsE '# [t]he cure|[t]est_first_long' /testbed /tmp /run /opt /etc /home /root /var /srv /mnt /media"
        )
        assert said(looking) == ""
        objects = "git cat-file --batch-all-objects --batch | grep -cE"
        assert said(f"{objects} '# [t]he cure|[t]est_first_long'") == "0\n"
        assert said(f"{objects} '[d]ef total'") == "1\n"  # the search finds what is there
        assert said("cat tiny/core.py | head -3 | tail -1").strip() == "return value"
        sandbox.run("git commit -qam x; echo 1 > tiny/core.py")
        assert [change.path for change in sandbox.changes().files] == ["tiny/core.py"]
    finally:
        sandbox.close()
    assert "return value\n" in (cache.base(instance).layers[0] / "tiny" / "core.py").read_text()


def test_what_a_base_takes_is_let_go_of_once_for_each_time(tmp_path):
    cache = TreeCache(tmp_path / "cache", max_bytes=0)
    instance = faulty(write_archive(cache.archives))
    cache.base(instance)
    layer = cache.base(instance).layers[0]
    cache.release(instance)
    cache._cache.sweep()
    assert layer.exists()
    cache.release(instance)
    cache._cache.sweep()
    assert not layer.exists()
    with pytest.raises(PatchError):
        cache.base(dataclasses.replace(instance, bug_patch="--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-x\n+y\n"))
    cache._cache.sweep()
    assert cache._cache.size() == 0  # nothing is held by what failed


def test_a_link_that_a_rows_patch_makes_is_not_followed(cache, instance):
    patch = "diff --git a/tests/x b/tests/x\nnew file mode 120000\n--- /dev/null\n+++ b/tests/x\n@@ -0,0 +1 @@\n"
    patch += "+/etc/passwd\n\\ No newline at end of file\n"
    row = dataclasses.replace(instance, test_patch=patch, test_files=("tests/x", "tests/test_other.py"))
    assert sorted(cache.tests(row)) == ["tests/test_other.py"]
