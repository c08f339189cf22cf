"""Files and folders of tasks."""

from __future__ import annotations

import datetime
import decimal
import json
import sys

import pytest

from jaxmtrl.envs.swe.loading import load_instances, resolve_repo, save_instances
from jaxmtrl.envs.swe.rows import parse_row, row_hash
from jaxmtrl.errors import ConfigError


def row(number: int, **fields) -> dict:
    return {"instance_id": f"a__b-{number}", "repo": "a/b", "FAIL_TO_PASS": ["t.py::x"], **fields}


def test_a_folder_is_read_by_name_and_order(tmp_path):
    (tmp_path / "b.json").write_text(json.dumps([row(3)]))
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + f"{json.dumps(row(2))}\n\n{json.dumps(row(1))}".encode())
    (tmp_path / "README.md").write_text("not rows")
    assert [instance.id for instance in load_instances(tmp_path)] == ["a__b-2", "a__b-1", "a__b-3"]


def test_all_mistakes_of_a_file_come_at_once_with_their_lines(tmp_path):
    lines = [
        json.dumps(row(1)),
        "{broken",
        "[1]",
        json.dumps(row(1)),
        json.dumps({"repo": 1}),
        json.dumps(row(9, FAIL_TO_PASS=[])),
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    with pytest.raises(ConfigError) as caught:
        load_instances(tmp_path / "x.jsonl")
    told = caught.value.mistakes
    assert [line.split(":")[0] for line in told] == [f"x.jsonl line {number}" for number in (2, 3, 4, 5, 5, 6)]
    assert "is there already, in x.jsonl line 1" in told[2]
    assert "no FAIL_TO_PASS" in told[-1]
    assert len(load_instances_without_tests(tmp_path)) == 1


def load_instances_without_tests(folder):
    (folder / "y.jsonl").write_text(json.dumps(row(9, FAIL_TO_PASS=[])))
    return load_instances(folder / "y.jsonl", require_tests=False)


@pytest.mark.parametrize("name", ["none.jsonl", "rows.csv", "empty.jsonl", "folder", "object.json"])
def test_what_cannot_be_read_is_said(tmp_path, name):
    (tmp_path / "rows.csv").write_text("a,b")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "object.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError):
        load_instances(tmp_path / name)


def test_instances_are_saved_as_the_same_bytes(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps(row(1, problem_statement="caf\u00e9 \ud800", kind="cmp")))
    instances = load_instances(tmp_path / "x.jsonl")
    save_instances(tmp_path / "y.jsonl", instances)
    assert load_instances(tmp_path / "y.jsonl") == instances
    save_instances(tmp_path / "z.jsonl", load_instances(tmp_path / "y.jsonl"))
    assert (tmp_path / "y.jsonl").read_bytes() == (tmp_path / "z.jsonl").read_bytes()


def test_what_only_parquet_has_is_saved_as_words(tmp_path):
    dated = parse_row(row(1, created_at=datetime.datetime(2020, 1, 1), size=decimal.Decimal("1.5"), digest=b"\xff"))
    save_instances(tmp_path / "x.jsonl", [dated])
    (again,) = load_instances(tmp_path / "x.jsonl")
    assert again.extra["created_at"] == "2020-01-01 00:00:00" and row_hash(again) == row_hash(dated)


def test_parquet_is_read_where_pyarrow_is(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist([{"instance": row(1), "env_class": "x"}]), tmp_path / "x.parquet")
    (instance,) = load_instances(tmp_path / "x.parquet")
    assert instance.id == "a__b-1" and instance.fail_to_pass == ("t.py::x",)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ConfigError, match="no parquet"):
        load_instances(tmp_path / "x.parquet")


def test_parquet_without_pyarrow_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="pip install .*parquet"):
        load_instances(tmp_path / "x.parquet")


STUDY = ["getmoto/moto", "pydantic/pydantic", "python/mypy", "pandas-dev/pandas", "iterative/dvc", "python/cpython"]


@pytest.mark.parametrize(
    ("name", "repo"),
    [
        ("getmoto", 0),
        ("pydantic", 1),
        ("mypy", 2),
        ("Pandas", 3),
        ("iterative_dvc", 4),
        ("iterative__dvc", 4),
        ("python/mypy", 2),
    ],
)
def test_the_names_of_the_studys_five_task_types(name, repo):
    assert resolve_repo(name, STUDY) == STUDY[repo]


@pytest.mark.parametrize(("name", "words"), [("python", "may mean"), ("flask", "is none of")])
def test_a_name_that_means_no_single_repository_is_refused(name, words):
    with pytest.raises(ConfigError, match=words):
        resolve_repo(name, STUDY)


def test_rows_that_are_not_there_are_told_with_what_makes_them(tmp_path):
    with pytest.raises(ConfigError, match=r"no such file or folder; .* python -m jaxmtrl\.envs\.swe\.inject"):
        load_instances(tmp_path / "rows.jsonl")
