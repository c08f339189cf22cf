"""A package of the registry as something to hide faults in: its files, which of them are tests, what the tests need."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jaxmtrl.envs.swe.files import write_whole
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.sources import archive_name, fetch_archive, file_hash, unpack_archive
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.envs.swe.venvs import build_venv, find_python, read_metadata

# What tests import beyond the package's own requirements, by package.
NEEDS: Mapping[str, Sequence[str]] = {
    "humanize": ["freezegun"],
    "tabulate": ["wcwidth"],
    "python-slugify": ["Unidecode"],
    "moto": ["flask", "flask-cors", "docker", "openapi-spec-validator", "jsonpath-ng", "freezegun", "PyYAML"],
}
_TOOLS = ("pytest>=8.2,<10", "coverage>=7.6,<8")
_TEST_FOLDERS = frozenset({"tests", "test"})
_TEST_FILE = re.compile(r"(test_.*|.*_test|tests?|conftest)\.py")
_OTHER_FOLDERS = frozenset({"docs", "doc", "examples", "example", "benchmarks", "benchmark", "scripts", "tools", "bin"})
_OTHER_FILES = frozenset({"setup.py", "noxfile.py", "tasks.py", "fabfile.py", "conf.py"})


@dataclass(frozen=True, kw_only=True)
class Package:
    """What is known of one version of a package before any test has run."""

    name: str  # as the registry compares names
    version: str
    sha256: str  # of its source archive
    licence: str
    requirements: tuple[str, ...]  # of its tests and its own, name==version, all of them
    python: str  # "3.11"
    roots: tuple[str, ...]  # folders that its modules are imported from
    tree: Path  # its files, with its tests
    venv: Path

    def row(self, **fields) -> SweInstance:
        """A row of this package: what all of them share, and `fields`."""
        extra = {
            "requirements": list(self.requirements),
            "roots": list(self.roots),
            "python": self.python,
            "licence": self.licence,
            **fields.pop("extra", {}),
        }
        known = {
            "repo": f"pypi/{self.name}",
            "version": self.version,
            "base": self.sha256,
            "problem_statement": "",
            "fail_to_pass": (),
            "pass_to_pass": (),
            "patch": "",
        }
        return SweInstance(**{**known, **fields}, extra=extra)

    def sources(self) -> list[str]:
        """Paths of the code that faults may be set in: no tests, no set-up, no documents."""
        return [path for path in self.python_files() if not is_test(path) and not _is_beside(path)]

    def python_files(self) -> list[str]:
        return sorted(str(path.relative_to(self.tree)) for path in self.tree.rglob("*.py") if not path.is_symlink())


def is_test(path: str) -> bool:
    """Whether a file belongs to the tests, by its name or by its folder's."""
    parts = PurePosixPath(path).parts
    return bool(_TEST_FOLDERS & set(parts[:-1])) or _TEST_FILE.fullmatch(parts[-1]) is not None


def _is_beside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return parts[0] in _OTHER_FOLDERS or (len(parts) == 1 and parts[0] in _OTHER_FILES)


def prepare(cache: TreeCache, name: str, version: str = "", needs: Sequence[str] = ()) -> Package:
    """Fetches a package and makes what its tests run in; later calls find both in the cache.

    Args:
        version: "" for the newest that has a source archive; a later call takes the newest again.
        needs: further packages that its tests import.

    Raises:
        SourceError, VenvError: it has no source archive, or its environment cannot be made.
    """
    archive = fetch_archive(name, version, cache.archives)
    name, version = archive_name(archive)
    metadata = read_metadata(archive)
    wanted = [*_TOOLS, *NEEDS.get(name, ()), *needs, *_own_requirements(metadata)]
    python = _python_version()
    row = SweInstance(
        id=f"{name}-{version}",
        repo=f"pypi/{name}",
        version=version,
        base=file_hash(archive),
        problem_statement="",
        fail_to_pass=(),
        pass_to_pass=(),
        patch="",
        source="injected",
        extra={
            "requirements": _resolved(cache.folder / "requirements" / f"{name}-{version}-{python}.json", wanted),
            "roots": _roots(archive),
            "python": python,
        },
    )
    tree, venv = cache.sources(row)
    return Package(
        name=name,
        version=version,
        sha256=row.base,
        licence=_licence(metadata),
        requirements=tuple(row.extra["requirements"]),
        python=python,
        roots=tuple(row.extra["roots"]),
        tree=tree,
        venv=venv,
    )


def _own_requirements(metadata: Mapping[str, list[str]]) -> list[str]:
    """What the package itself requires, without its extras."""
    return [line for line in metadata.get("requires-dist", []) if not re.search(r";.*\bextra\b", line)]


def _licence(metadata: Mapping[str, list[str]]) -> str:
    said = list(metadata.get("license-expression", []))
    said += [line.split("::")[-1].strip() for line in metadata.get("classifier", []) if line.startswith("License ::")]
    said += metadata.get("license", [])  # some put the whole text there
    return next((line for line in said if line and line != "UNKNOWN"), "unknown")[:100]


def _python_version() -> str:
    python = find_python("")
    match = re.search(r"python(3\.\d+)$", python)
    if match:
        return match[1]
    import sys

    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _resolved(lock: Path, wanted: Sequence[str]) -> list[str]:
    """`wanted` with all that they require, at versions that stay: pip is asked once, and its answer kept."""
    try:
        kept = json.loads(lock.read_text("utf-8"))
        if kept["wanted"] == list(wanted):
            return [str(line) for line in kept["found"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or damaged: pip is asked again
    with tempfile.TemporaryDirectory() as scratch:
        found = build_venv(Path(scratch), find_python(""), wanted)
    write_whole(lock, json.dumps({"wanted": list(wanted), "found": found}, indent=1))
    return found


def _roots(archive: Path) -> list[str]:
    """ "src" where the package keeps its modules there, and the top folder."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack_archive(archive, Path(scratch))
        has_source = any(Path(scratch, "src").glob("*/__init__.py")) or any(Path(scratch, "src").glob("*.py"))
    return ["src", "."] if has_source else ["."]
