"""Rows that somebody else wrote: what could lead a file or a program astray is refused where it is read."""

from __future__ import annotations

import json

import pytest
from tiny_package import faulty, write_archive

from jaxmtrl.envs.swe.loading import load_instances
from jaxmtrl.envs.swe.row_rules import is_path, is_requirement, told
from jaxmtrl.envs.swe.rows import RowMistakes, parse_row, to_row
from jaxmtrl.errors import ConfigError

LINK = (
    "diff --git a/{0} b/{0}\nnew file mode 120000\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+/etc/passwd\n"
    "\\ No newline at end of file\n"
)


@pytest.fixture
def row(tmp_path) -> dict:
    return to_row(faulty(write_archive(tmp_path / "archives")))


def mistakes(row: dict) -> str:
    with pytest.raises(RowMistakes) as caught:
        parse_row(row)
    return "\n".join(caught.value.mistakes)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"instance_id": "a\nb"}, "instance_id must be one line of at most 300 characters, got 'a\\nb'"),
        ({"instance_id": "a\ud800"}, "instance_id must be one line"),
        ({"instance_id": "a" * 99999}, "(100001 characters)"),
        ({"repo": "pypi/--index-url=x"}, "repo must be owner/name"),
        ({"repo": "pypi/../.."}, "repo must be owner/name"),
        ({"repo": "getmoto/moto"}, "must be pypi/<package>"),
        ({"version": "../1.0"}, "version must be no path"),
        ({"version": "**"}, "of one version, got 'pypi/tiny-pkg' '**'"),
        ({"version": "1\0"}, "version must be one line"),
        ({"base_commit": "HEAD"}, "must be its archive's sha256"),
        ({"patch": "hello"}, "patch names no file that it changes, as a diff of git does; it begins with 'hello'"),
        ({"patch": "--- a/x\ud800\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}, "patch has characters that no text file has"),
        ({"patch": "--- a//etc/x\n+++ b//etc/x\n@@ -1 +1 @@\n-a\n+b\n"}, "patch: '/etc/x' is no path"),
        ({"bug_patch": LINK.format("../x")}, "bug_patch: '../x' is no path"),
        ({"test_patch": f"--- a/x\n+++ b/x\n@@ -1,{'9' * 5000} +1 @@\n-a\n+b\n", "test_files": []}, "begins no hunk"),
        ({"FAIL_TO_PASS": [""]}, "FAIL_TO_PASS has '', which is no test id"),
        ({"FAIL_TO_PASS": ["/etc/passwd::x"]}, "which is no test id"),
        ({"PASS_TO_PASS": ["-pevil::x"]}, "PASS_TO_PASS has '-pevil::x'"),
        ({"PASS_TO_PASS": ["a\nb.py::x"]}, "which is no test id"),
        ({"test_files": ["./a.py"]}, "test_files: './a.py' is no path within the repository"),
        ({"hidden_files": [""]}, "hidden_files: '' is no path"),
        ({"hidden_files": ["a" * 300]}, "is no path"),
        ({"image_name": "--privileged"}, "image_name must name a container image"),
        ({"roots": "src"}, "roots must be a list of folders"),
        ({"roots": ["../.."]}, "roots must be"),
        ({"roots": ["a:b"]}, "roots must be"),
        ({"suite_s": float("nan")}, "suite_s must be seconds, at least 0, got nan"),
        ({"suite_s": "abc"}, "suite_s must be seconds"),
        ({"suite_s": True}, "suite_s must be seconds"),
        ({"functions": 5}, "functions must be a list of strings"),
        ({"functions": [None]}, "functions must be a list of strings"),
        ({"kind": ["cmp"]}, "kind must be a string"),
        ({"requirements": "pytest"}, "requirements must be a list of name==version"),
        ({"requirements": ["--index-url=http://127.0.0.1/"]}, "requirements must be"),
        ({"requirements": ["a @ file:///x"]}, "requirements must be"),
        ({"python": 3.11}, "python must be 3.N in quotes"),
        ({"python": "../../x"}, "python must be 3.N"),
        ({"source": "x" * 99999}, "(100001 characters)"),
    ],
)
def test_a_hostile_field_is_told(row, fields, words):
    parse_row(row)
    found = mistakes({**row, **fields})
    assert words in found and len(found) < 1000


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def test_what_is_nested_too_deeply_is_told(row):
    parse_row({**row, "more": nested(60)})
    assert "'more' is nested more than 64 times" in mistakes({**row, "more": nested(500)})
    assert "kind must be a string, got a list, nested too deeply" in mistakes({**row, "kind": nested(500)})
    assert "FAIL_TO_PASS is a string that is no JSON" in mistakes({**row, "FAIL_TO_PASS": "[" * 99999})
    assert "instance is no JSON" in mistakes({"instance": "[" * 99999})


def test_all_mistakes_of_a_row_come_at_once(row):
    found = mistakes({**row, "instance_id": "a\nb", "roots": 3, "hidden_files": ["/x"], "FAIL_TO_PASS": [""]})
    assert len(found.split("\n")) == 4


def test_rows_of_others_may_have_other_fields_of_our_names():
    """SWE-rebench has the output of pip in `requirements`; ids of other runners than pytest are sentences."""
    row = {"instance_id": "a__b-1", "repo": "a/b", "FAIL_TO_PASS": ["test_x (forms.tests.Case)", "It's -/ a test.. "]}
    instance = parse_row({**row, "requirements": "pytest==8\nattrs==3\n", "python": 3.9, "source": "swe-bench"})
    assert instance.extra["requirements"].startswith("pytest")


def test_what_a_row_may_name():
    good = ["a", "a/b.py", "src/naïve file.py", ".github/x", "a..b", "-x"]
    bad = ["", ".", "..", "/a", "a/../b", "a//b", "a/", "./a", "a\0", "a\n", "a/" + "b" * 256, "é" * 200, "\ud800"]
    assert all(map(is_path, good)) and not any(map(is_path, bad))
    good = ["pytest", "pytest>=8.2,<10", "a.b-c_d==1.0+x", "a[b,c]~=1", "a != 1.*"]
    bad = ["", "-r x", "--pre", "../x", "/x", "a @ file:///x", "git+https://x", "a==1\n-r x", "a;b", "http://x/a.whl"]
    assert all(map(is_requirement, good)) and not any(map(is_requirement, bad))
    assert told("a" * 70).endswith("… (72 characters)") and told(3) == "3"


def test_what_no_file_system_takes_is_one_mistake(tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    (tmp_path / "good.jsonl").write_text(json.dumps({"instance_id": "a__b-1", "repo": "a/b", "FAIL_TO_PASS": ["t::x"]}))
    with pytest.raises(ConfigError) as caught:
        load_instances(tmp_path)
    assert [line.split(":")[0] for line in caught.value.mistakes] == ["folder.jsonl", "gone.jsonl"]
    for name in ("a" * 5000 + ".jsonl", "a\0b.jsonl"):
        with pytest.raises(ConfigError, match="no such file"):
            load_instances(tmp_path / name)
