"""Rows of every published form become tasks of one form."""

from __future__ import annotations

import json

import pytest

from jaxmtrl.envs.swe.images import image_name
from jaxmtrl.envs.swe.patches import make_patch
from jaxmtrl.envs.swe.rows import RowMistakes, is_truncated, parse_row, repo_name, row_hash, to_row

FAULT = make_patch({"src/a.py": "good\n"}, {"src/a.py": "bad\n"})
CURE = make_patch({"src/a.py": "bad\n"}, {"src/a.py": "good\n"})
TESTS = make_patch({"tests/test_a.py": "old\n"}, {"tests/test_a.py": "new\n", "tests/data.json": "{}\n"})
GYM = {
    "instance_id": "getmoto__moto-6226",
    "repo": "getmoto/moto",
    "base_commit": "0a19243",
    "version": "4.1",
    "patch": CURE,
    "test_patch": TESTS,
    "problem_statement": "Tags are lost.",
    "hints_text": "look at models",
    "created_at": "2023-04-18",
    "FAIL_TO_PASS": ["tests/test_a.py::test_x[hello world]"],
    "PASS_TO_PASS": ["tests/test_a.py::test_y", "tests/test_a.py::test_y"],
}
OURS = {**GYM, "repo": "pypi/moto", "base_commit": "0a" * 32}


def test_a_row_of_swe_gym():
    instance = parse_row(GYM)
    assert (instance.id, instance.repo, instance.base) == ("getmoto__moto-6226", "getmoto/moto", "0a19243")
    assert instance.fail_to_pass == ("tests/test_a.py::test_x[hello world]",)
    assert instance.pass_to_pass == ("tests/test_a.py::test_y",)  # once
    assert instance.test_files == ("tests/data.json", "tests/test_a.py")
    assert instance.image == "docker.io/xingyaoww/sweb.eval.x86_64.getmoto_s_moto-6226"
    assert instance.source == "swe-gym" and not instance.truncated_ids
    assert instance.extra == {"hints_text": "look at models", "created_at": "2023-04-18"}


def test_a_row_of_swe_bench_has_its_lists_as_strings():
    row = {**GYM, "repo": "Pallets/Flask", "instance_id": "Pallets__Flask-4992", "environment_setup_commit": "abc"}
    row |= {"FAIL_TO_PASS": json.dumps(["t.py::a[x", "t.py::b"]), "PASS_TO_PASS": "[]"}
    instance = parse_row(row)
    assert instance.source == "swe-bench" and instance.repo == "pallets/flask"
    assert instance.image == "docker.io/swebench/sweb.eval.x86_64.pallets_1776_flask-4992:latest"
    assert instance.fail_to_pass == ("t.py::a[x", "t.py::b") and instance.truncated_ids
    assert instance.environment_commit == "abc"


def test_the_patch_of_swe_smith_is_the_fault_and_its_reverse_the_cure():
    row = {
        "instance_id": "oauthlib__oauthlib.1fd52536.combine_file__0fceycuu",
        "repo": "swesmith/oauthlib__oauthlib.1fd52536",
        "patch": FAULT,
        "problem_statement": "It is bad.",
        "FAIL_TO_PASS": ["tests/test_a.py::test_x"],
        "PASS_TO_PASS": ["tests/test_b.py::test_y"],
    }
    instance = parse_row(row)
    assert (instance.bug_patch, instance.patch) == (FAULT, CURE)
    assert (instance.repo, instance.base, instance.source) == ("oauthlib/oauthlib", "1fd52536", "swe-smith")
    assert instance.image == "docker.io/jyangballin/swesmith.x86_64.oauthlib_1776_oauthlib.1fd52536"
    assert instance.test_files == instance.hidden_files == ("tests/test_a.py",)
    assert parse_row(to_row(instance)) == instance


@pytest.mark.parametrize("nested", [GYM, json.dumps(GYM)])
def test_the_studys_parquet_nests_the_row(nested):
    row = {"data_source": "swe-gym", "prompt": [{"role": "user"}], "env_class": "x", "instance": nested}
    instance = parse_row(row)
    assert instance.id == GYM["instance_id"] and instance.patch == CURE
    assert instance.extra["env_class"] == "x" and instance.extra["data_source"] == "swe-gym"
    assert "instance" not in instance.extra


def test_what_may_be_missing():
    instance = parse_row(
        {"instance_id": "a__b-1", "repo": "a/b", "FAIL_TO_PASS": None, "test_patch": None, "patch": ""}
    )
    assert instance.fail_to_pass == instance.pass_to_pass == () and instance.patch == instance.test_patch == ""


def test_every_mistake_of_a_row_is_told():
    bad = {"repo": 3, "FAIL_TO_PASS": "[broken", "PASS_TO_PASS": [1], "patch": "@@ -1,2 +1,2 @@\n x\n", "source": "web"}
    with pytest.raises(RowMistakes) as caught:
        parse_row({**bad, "hidden_files": ["../x", "/etc/passwd"]})
    told = "\n".join(caught.value.mistakes)
    for words in (
        "repo must be a string, got int",
        "FAIL_TO_PASS is a string that is no JSON",
        "PASS_TO_PASS must be a list of strings",
        "instance_id is missing",
        "not as many lines",
        "source must be one of",
        "'../x' is no path",
        "'/etc/passwd' is no path",
    ):
        assert words in told


def test_a_row_of_ours_comes_back_as_it_was():
    instance = parse_row(
        {**OURS, "bug_patch": FAULT, "source": "injected", "kind": "cmp", "hidden_files": ["tests/x.py"]}
    )
    assert instance.image == "" and instance.extra["kind"] == "cmp"
    again = parse_row(json.loads(json.dumps(to_row(instance))))
    assert again == instance and row_hash(again) == row_hash(instance)
    assert row_hash(parse_row({**to_row(instance), "patch": FAULT})) != row_hash(instance)


@pytest.mark.parametrize(
    ("source", "instance_id", "repo", "name"),
    [
        ("swe-gym", "Project-MONAI__MONAI-1", "x", "docker.io/xingyaoww/sweb.eval.x86_64.project-monai_s_monai-1"),
        ("swe-bench", "a__B_c-2", "x", "docker.io/swebench/sweb.eval.x86_64.a_1776_b_c-2:latest"),
        ("swe-smith", "x", "swesmith/A__b.c.0123456789", "docker.io/jyangballin/swesmith.x86_64.a_1776_b.c.01234567"),
        ("swe-smith", "a__b-1", "a/b", ""),
        ("injected", "a__b-1", "a/b", ""),
    ],
)
def test_image_names(source, instance_id, repo, name):
    assert image_name(source, instance_id, repo) == name


def test_an_image_that_the_row_names_is_taken():
    assert parse_row({**GYM, "docker_image": "namanjain12/x:1"}).image == "namanjain12/x:1"


def test_small_rules():
    assert repo_name("Getmoto/Moto") == "getmoto/moto"
    assert [is_truncated(test) for test in ("a::b", "a::b[x]", "a::b[x y]", "a::b[x", "a::b[[")] == [0, 0, 0, 1, 1]
