"""One row of a published or injected data set, as a task, and back. Knows no files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmtrl.envs.swe.images import image_name, parse_smith_mirror
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import PatchError, patched_paths, reverse_patch
from jaxmtrl.envs.swe.row_rules import row_mistakes, told

SOURCES = ("swe-gym", "swe-bench", "swe-smith", "injected", "release")
_GYM_REPOS = frozenset(
    "getmoto/moto pandas-dev/pandas python/mypy dask/dask project-monai/monai pydantic/pydantic conan-io/conan "
    "facebookresearch/hydra bokeh/bokeh modin-project/modin iterative/dvc spyder-ide/spyder".split()
)
# Names in rows of what a task has; the first that is there counts.
_TEXTS: Mapping[str, Sequence[str]] = {
    "id": ("instance_id", "id"),
    "repo": ("repo", "repo_name"),
    "problem_statement": ("problem_statement",),
    "patch": ("patch",),
    "test_patch": ("test_patch",),
    "bug_patch": ("bug_patch",),
    "base": ("base_commit", "base", "commit_hash"),
    "version": ("version",),
    "environment_commit": ("environment_setup_commit",),
    "image": ("image_name", "docker_image", "image"),
    "eval_script": ("eval_script",),
    "source": ("source",),
}
_LISTS: Mapping[str, Sequence[str]] = {
    "fail_to_pass": ("FAIL_TO_PASS", "fail_to_pass"),
    "pass_to_pass": ("PASS_TO_PASS", "pass_to_pass"),
    "test_files": ("test_files",),
    "hidden_files": ("hidden_files",),
}
_KNOWN = frozenset(name for names in (*_TEXTS.values(), *_LISTS.values()) for name in names)


class RowMistakes(ValueError):
    """What is wrong with one row, all of it."""

    def __init__(self, mistakes: Sequence[str]):
        super().__init__("; ".join(mistakes))
        self.mistakes = tuple(mistakes)


def parse_row(row: Mapping[str, Any], source: str = "") -> SweInstance:
    """Brings a row of SWE-Gym, SWE-bench, SWE-smith, the study's parquet or ours into one form.

    Args:
        source: one of `SOURCES`, where the row does not say it and its repository does not tell.

    Raises:
        RowMistakes: fields that are missing or of the wrong type.
    """
    mistakes: list[str] = []
    row = _unnested(row, mistakes)
    texts = {name: _text(row, names, mistakes) for name, names in _TEXTS.items()}
    lists = {name: _list(row, names, mistakes) for name, names in _LISTS.items()}
    for name in ("id", "repo"):
        if not any(row.get(field) not in (None, "") for field in _TEXTS[name]):
            mistakes.append(f"{_TEXTS[name][0]} is missing")
    if texts["source"] not in ("", *SOURCES):
        mistakes.append(f"source must be one of {', '.join(SOURCES)}, got {told(texts['source'])}")
    texts["source"] = texts["source"] or source or _source_of(row, texts)
    if texts["source"] == "swe-smith":
        _turn_smith_round(texts, lists, mistakes)
    texts["image"] = texts["image"] or image_name(texts["source"], texts["id"], texts["repo"])
    patched = {name: _paths(texts[name], name, mistakes) for name in ("patch", "test_patch", "bug_patch")}
    lists["test_files"] = lists["test_files"] or list(patched["test_patch"])
    texts["repo"] = repo_name(texts["repo"])
    extra = {name: value for name, value in row.items() if name not in _KNOWN}
    tests = {name: tuple(values) for name, values in lists.items()}
    ids = tests["fail_to_pass"] + tests["pass_to_pass"]
    instance = SweInstance(**texts, **tests, truncated_ids=any(map(is_truncated, ids)), extra=extra)  # type: ignore[arg-type]
    mistakes += row_mistakes(instance, patched)
    if mistakes:
        raise RowMistakes(list(dict.fromkeys(mistakes)))
    return instance


def to_row(instance: SweInstance) -> dict[str, Any]:
    """The row of an instance in the form of SWE-Gym, with what that form does not have under our own names."""
    row: dict[str, Any] = {
        "instance_id": instance.id,
        "repo": instance.repo,
        "base_commit": instance.base,
        "version": instance.version,
        "problem_statement": instance.problem_statement,
        "patch": instance.patch,
        "test_patch": instance.test_patch,
        "FAIL_TO_PASS": list(instance.fail_to_pass),
        "PASS_TO_PASS": list(instance.pass_to_pass),
        "source": instance.source,
    }
    optional = {
        "bug_patch": instance.bug_patch,
        "environment_setup_commit": instance.environment_commit,
        "image_name": instance.image,
        "test_files": list(instance.test_files),
        "hidden_files": list(instance.hidden_files),
        "eval_script": instance.eval_script,
    }
    row.update({name: value for name, value in optional.items() if value})
    if instance.source == "swe-smith":  # there the patch is the fault, and its reverse is the cure
        row["patch"] = row.pop("bug_patch")
    return {**row, **instance.extra}


def row_hash(instance: SweInstance) -> str:
    """Equal for equal tasks, whatever the order of their fields and however long their tests were found to take."""
    known = dataclasses.asdict(instance)
    known["extra"] = {name: value for name, value in instance.extra.items() if name != "suite_s"}
    fields = json.dumps(known, sort_keys=True, default=str)
    return hashlib.sha256(fields.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_truncated(test: str) -> bool:
    """True for the id of a parametrised test that has lost its end: scorers that read the screen stop at a space."""
    return "[" in test and not test.endswith("]")


def repo_name(repo: str) -> str:
    """owner/name in lower case; of a SWE-smith mirror, the repository that it mirrors."""
    mirror = parse_smith_mirror(repo)
    return (f"{mirror[0]}/{mirror[1]}" if mirror else repo).lower()


def _unnested(row: Mapping[str, Any], mistakes: list[str]) -> Mapping[str, Any]:
    """The study's parquet keeps the row of SWE-Gym in a field `instance`, beside fields of its own."""
    inner = row.get("instance")
    if isinstance(inner, str):
        try:
            inner = json.loads(inner)
        except (ValueError, RecursionError):
            mistakes.append("instance is no JSON")
    if not isinstance(inner, Mapping):
        return row
    return {name: value for name, value in {**row, **inner}.items() if name != "instance"}


def _text(row: Mapping[str, Any], names: Sequence[str], mistakes: list[str]) -> str:
    name = next((name for name in names if row.get(name) not in (None, "")), names[0])
    value = row.get(name)
    if isinstance(value, float | int) and name == "version" and not isinstance(value, bool):
        value = str(value)  # YAML and pandas make numbers of "2.0"
    if value is None or isinstance(value, str):
        return value or ""
    mistakes.append(f"{name} must be a string, got {type(value).__name__}")
    return ""


def _list(row: Mapping[str, Any], names: Sequence[str], mistakes: list[str]) -> list[str]:
    name = next((name for name in names if row.get(name) is not None), names[0])
    value = row.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except (ValueError, RecursionError):
            mistakes.append(f"{name} is a string that is no JSON list: {value[:60]!r}")
            return []
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(test, str) for test in value):
        mistakes.append(f"{name} must be a list of strings, or one as JSON, got {type(value).__name__}")
        return []
    return list(dict.fromkeys(value))


def _paths(patch: str, name: str, mistakes: list[str]) -> tuple[str, ...]:
    try:
        paths = patched_paths(patch)
    except PatchError as err:
        mistakes.append(f"{name}: {err}")
        return ()
    if patch.strip() and not paths:
        mistakes.append(f"{name} names no file that it changes, as a diff of git does; it begins with {told(patch)}")
    return paths


def _source_of(row: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    said = re.sub(r"[^a-z]", "", str(row.get("data_source") or "").lower())
    for source in ("swe-gym", "swe-bench", "swe-smith"):
        if source.replace("-", "") in said:
            return source
    if "swesmith" in texts["repo"] + texts["image"]:
        return "swe-smith"
    if texts["repo"].lower() in _GYM_REPOS:
        return "swe-gym"
    # of the two that are left, SWE-bench writes its lists as strings
    return "swe-bench" if isinstance(row.get("FAIL_TO_PASS"), str) else "swe-gym"


def _turn_smith_round(texts: dict[str, str], lists: dict[str, list[str]], mistakes: list[str]) -> None:
    """In SWE-smith `patch` makes the fault, the repository's name holds the commit, and the tests are removed."""
    if not texts["bug_patch"]:
        texts["bug_patch"] = texts["patch"]
        try:
            texts["patch"] = reverse_patch(texts["patch"])
        except PatchError as err:
            mistakes.append(f"patch: {err}")
            texts["patch"] = texts["bug_patch"] = ""
    mirror = parse_smith_mirror(texts["repo"]) or parse_smith_mirror(texts["id"])
    if not texts["base"] and mirror is not None:
        texts["base"] = mirror[2]
    files = list(dict.fromkeys(test.split("::")[0] for test in lists["fail_to_pass"]))
    lists["test_files"] = lists["test_files"] or files
    lists["hidden_files"] = lists["hidden_files"] or files
