"""What a row must be like so that files can be named after it and programs be given its words. Knows no row's form."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jaxmtrl.envs.swe.instance import SweInstance

OURS = ("injected", "release")  # sources of rows that are made of packages of the registry
_SHOWN = 60  # characters of a wrong value that are told
_LONGEST_NAME = 300
_DEEPEST = 64
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_REPO = re.compile(r"[\w.-]+(/[\w.-]+)*")
_PACKAGE = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_VERSION = r"[A-Za-z0-9][\w.!+-]*"
_REQUIREMENT = re.compile(f"{_PACKAGE}==={{0,1}}{_VERSION}", re.ASCII)
_PYTHON = re.compile(r"3\.\d{1,3}", re.ASCII)
_WANTED = re.compile(rf"{_PACKAGE}(\[[\w., -]*\])? *([<>=!~]=?[\w.*!+,<>=~ -]+)?", re.ASCII)


def told(value: object) -> str:
    """A value as a message tells it, however long it is."""
    words = f"a {type(value).__name__}, nested too deeply" if _is_deep(value) else repr(value)
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}… ({len(words)} characters)"


def row_mistakes(instance: SweInstance, patched: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What is wrong with a row whose fields are of the right types, a sentence each.

    Args:
        patched: paths that its patches name, by field.
    """
    yield from _name_mistakes(instance)
    for field, tests in (("FAIL_TO_PASS", instance.fail_to_pass), ("PASS_TO_PASS", instance.pass_to_pass)):
        yield from (f"{field} has {told(test)}, which is no test id" for test in tests if not _is_test_id(test))
    paths = {"test_files": instance.test_files, "hidden_files": instance.hidden_files, **patched}
    for field, names in paths.items():
        for name in names:
            if not is_path(name):
                yield f"{field}: {told(name)} is no path within the repository"
    yield from _extra_mistakes(instance)


def _is_deep(value: object) -> bool:
    """Whether lists lie in lists more than `_DEEPEST` times: programs that go down into them would give up."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            part
            for outer in level
            for part in (outer.values() if isinstance(outer, Mapping) else outer if isinstance(outer, list) else ())
        ]
    return bool(level)


def is_path(path: str) -> bool:
    """Whether it is the one plain way to write a path below a folder."""
    if not path or path != posixpath.normpath(path) or path.startswith("/") or _CONTROL.search(path):
        return False
    parts = path.split("/")
    return path != "." and ".." not in parts and all(len(part.encode()) <= 255 for part in parts) and len(path) < 2048


def is_requirement(words: str) -> bool:
    """Whether pip takes it for a package of the registry, and for nothing else: no option, path or address."""
    return _WANTED.fullmatch(words) is not None


def is_package(name: str, version: str) -> bool:
    """The same for a name, and its version, which may be ""."""
    words = f"{name}=={version}" if version else f"{name}==0"
    return _REQUIREMENT.fullmatch(words) is not None


def _name_mistakes(instance: SweInstance) -> Iterator[str]:
    names = {
        "instance_id": instance.id,
        "repo": instance.repo,
        "version": instance.version,
        "base_commit": instance.base,
        "image_name": instance.image,
    }
    for field, name in names.items():
        if _CONTROL.search(name) or len(name) > _LONGEST_NAME or name != name.strip():
            yield f"{field} must be one line of at most {_LONGEST_NAME} characters, got {told(name)}"
    for field in ("patch", "test_patch", "bug_patch"):
        if re.search("[\x00\ud800-\udfff]", getattr(instance, field)):
            yield f"{field} has characters that no text file has (NUL, or halves of characters)"
    if not instance.repo:
        return  # told already
    if not _REPO.fullmatch(instance.repo) or {".", ".."} & set(instance.repo.split("/")):
        yield f"repo must be owner/name, got {told(instance.repo)}"
    elif instance.source in OURS and not is_package(instance.repo.removeprefix("pypi/"), instance.version):
        got = f"{told(instance.repo)} {told(instance.version)}"
        yield f"repo of a row from {instance.source} must be pypi/<package>, of one version, got {got}"
    if "/" in instance.version:
        yield f"version must be no path, got {told(instance.version)}"
    if instance.image.startswith("-") or " " in instance.image:
        yield f"image_name must name a container image, got {told(instance.image)}"
    if instance.source in OURS and not re.fullmatch(r"([0-9a-f]{64})?", instance.base):
        yield f"base_commit of a row from {instance.source} must be its archive's sha256, got {told(instance.base)}"


def _is_test_id(test: str) -> bool:
    """Ids of other runners than pytest are left alone: a filter may take their rows out."""
    file, colons, _ = test.partition("::")
    return bool(test) and not _CONTROL.search(test) and (not colons or (is_path(file) and not file.startswith("-")))


def _extra_mistakes(instance: SweInstance) -> Iterator[str]:
    """Fields that the form of SWE-Gym does not have, and that are used where a row has them."""
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "roots": (_all(_is_root), "a list of folders within the repository"),
        "suite_s": (_is_seconds, "seconds, at least 0"),
        "functions": (_all(bool), "a list of strings"),
        "kinds": (_all(bool), "a list of strings"),
        "kind": (lambda value: isinstance(value, str), "a string"),
    }
    if instance.source in OURS:
        rules["requirements"] = (_all(lambda words: bool(_REQUIREMENT.fullmatch(words))), "a list of name==version")
        rules["python"] = (lambda value: _all(_PYTHON.fullmatch)([value]), "3.N in quotes")
    for field, value in instance.extra.items():
        if _is_deep(value):
            yield f"{told(field)} is nested more than {_DEEPEST} times"
    for field, (is_right, wanted) in rules.items():
        value = instance.extra.get(field)
        if value is not None and not is_right(value):
            yield f"{field} must be {wanted}, got {told(value)}"


def _is_root(path: str) -> bool:
    return path == "." or (is_path(path) and ":" not in path)


def _all(is_right: Callable[[str], object]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return isinstance(value, list | tuple) and all(
            isinstance(part, str) and not _CONTROL.search(part) and is_right(part) for part in value
        )

    return check


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
