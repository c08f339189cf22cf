"""A source archive of a package of two modules with tests, as the registry has them, and a fault in it."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import make_patch, reverse_patch

SECRET = "return low if value < low else high if value > high else value  # the cure"
CODE = f"""
def clamp(value, low, high):
    {SECRET}


def total(values, start=0):
    result = start
    for value in values:
        if value is None:
            continue
        result = result + value
    return result


def first_long(words, size):
    for word in words:
        if len(word) >= size and word.isalpha():
            return word
    return None


def untested(value):
    return value * 2
"""
TESTS = """
import pytest
from tiny import clamp, total, first_long

@pytest.mark.parametrize("value, wanted", [(5, 5), (-1, 0), (11, 10)])
def test_clamp(value, wanted):
    assert clamp(value, 0, 10) == wanted

def test_total():
    assert total([1, None, 2]) == 3
    assert total([], 4) == 4

def test_first_long():
    assert first_long(["a", "abc", "1234"], 3) == "abc"
    assert first_long(["a"], 3) is None
    assert first_long(["1234", "wxyz"], 4) == "wxyz"
"""
OTHER_TESTS = "from tiny import total\n\ndef test_sum(): assert total([1, 2]) == 3\n"
FILES = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: tiny-pkg\nVersion: 1.0\nLicense: MIT\n\nWords\n",
    "README.md": "# tiny\n",
    "CHANGES.md": "# Changes\n\n## 1.1\n\n- first_long() skips words with digits\n\n## 1.0\n\n- first\n",
    "tiny/__init__.py": "from tiny.core import clamp, first_long, total\n",
    "tiny/core.py": CODE,
    "tests/test_core.py": TESTS,
    "tests/test_other.py": OTHER_TESTS,
    "tests/conftest.py": "",
    ".gitignore": "*.md\n",
}
BUILT = {
    "tiny/__pycache__/core.cpython-311.pyc": SECRET,
    "build/lib/tiny/core.py": CODE,
    "tiny_pkg.egg-info/SOURCES.txt": SECRET,
    ".coverage": SECRET,
    ".git/config": SECRET,
}


def write_archive(archives: Path, version: str = "1.0", changed: dict[str, str] | None = None) -> Path:
    """The archive in `archives`; the same bytes for the same files."""
    archives.mkdir(parents=True, exist_ok=True)
    path = archives / f"tiny_pkg-{version}.tar.gz"
    with gzip.GzipFile(path, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in {**FILES, **BUILT, **(changed or {})}.items():
            member = tarfile.TarInfo(f"tiny_pkg-{version}/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
        for name, target in (("inside", "README.md"), ("outside", "../../../etc/passwd"), ("far", "/etc/passwd")):
            member = tarfile.TarInfo(f"tiny_pkg-{version}/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return path


def faulty(archive: Path, **fields) -> SweInstance:
    """A fault in `clamp`; the tests that see it are hidden."""
    bug = make_patch({"tiny/core.py": CODE}, {"tiny/core.py": CODE.replace(SECRET, "return value")})
    known = {
        "id": "tiny-pkg-1.0__stub-1",
        "repo": "pypi/tiny-pkg",
        "version": "1.0",
        "problem_statement": "clamp does not clamp",
        "fail_to_pass": ("tests/test_core.py::test_clamp[-1-0]", "tests/test_core.py::test_clamp[11-10]"),
        "pass_to_pass": ("tests/test_core.py::test_total", "tests/test_other.py::test_sum"),
        "bug_patch": bug,
        "patch": reverse_patch(bug),
        "base": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "test_files": ("tests/conftest.py", "tests/test_core.py", "tests/test_other.py"),
        "hidden_files": ("tests/test_core.py",),
        "source": "injected",
    }
    return SweInstance(**{**known, **fields})  # type: ignore[arg-type]
