"""Files and folders of tasks: JSON lines, JSON, parquet. A file's mistakes are told all at once, with their places."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxmtrl.envs.swe.files import write_whole
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.rows import RowMistakes, parse_row, to_row
from jaxmtrl.errors import ConfigError

SUFFIXES = (".jsonl", ".json", ".parquet")
_SHOWN = 50  # mistakes that are told one by one
_CURE = "put published rows there, or make some by python -m jaxmtrl.envs.swe.inject"


def load_instances(path: str | Path, *, source: str = "", require_tests: bool = True) -> list[SweInstance]:
    """The tasks of a file, or of all files of a folder (by name), in their order.

    Args:
        source: where rows come from, where they do not say it: see `rows.parse_row`.
        require_tests: a row without FAIL_TO_PASS is a mistake: it could never be solved.

    Raises:
        ConfigError: every mistake, with file and line; or there is no such file, or none in the folder.
    """
    path = Path(path)
    mistakes: list[str] = []
    instances: list[SweInstance] = []
    places: dict[str, str] = {}
    for file in _files(path):
        for place, row in _rows(file, mistakes):
            try:
                instance = parse_row(row, source)
            except RowMistakes as err:
                mistakes += [f"{place}: {mistake}" for mistake in err.mistakes]
                continue
            if require_tests and not instance.fail_to_pass:
                mistakes.append(f"{place}: {instance.id} has no FAIL_TO_PASS: no test could tell that it is solved")
            if instance.id in places:
                mistakes.append(f"{place}: instance_id {instance.id!r} is there already, in {places[instance.id]}")
            places.setdefault(instance.id, place)
            instances.append(instance)
    if mistakes:
        more = [f"and {len(mistakes) - _SHOWN} more"] if len(mistakes) > _SHOWN else []
        raise ConfigError(str(path), mistakes[:_SHOWN] + more)
    if not instances:
        raise ConfigError(str(path), ["no rows in it"])
    return instances


def save_instances(path: Path, instances: Iterable[SweInstance]) -> None:
    """Writes JSON lines: the same bytes for the same instances. Dates, and what else JSON has not, become strings."""
    lines = [json.dumps(to_row(instance), ensure_ascii=True, default=str) + "\n" for instance in instances]
    write_whole(path, "".join(lines))


def resolve_repo(name: str, repos: Sequence[str]) -> str:
    """The repository that a mix means by "getmoto/moto", its owner "getmoto", its name "moto", or "getmoto_moto".

    Raises:
        ConfigError: none of `repos` is meant, or several are.
    """
    name = name.lower()
    for forms in (lambda repo: {repo}, _short_forms):
        found = sorted({repo for repo in repos if name in forms(repo)})
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError("repositories", [f"{name!r} may mean {', '.join(found)}: write owner/name"])
    raise ConfigError("repositories", [f"{name!r} is none of {', '.join(sorted(set(repos)))}"])


def _short_forms(repo: str) -> set[str]:
    owner, _, name = repo.partition("/")
    return {owner, name, f"{owner}_{name}", f"{owner}__{name}"}


def _files(path: Path) -> list[Path]:
    if _is_file(path, folder=True):
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and not file.name.startswith("."))
        if not files:
            raise ConfigError(str(path), [f"no files in it that end in {', '.join(SUFFIXES)}"])
        return files
    if not _is_file(path):
        raise ConfigError(str(path), [f"there is no such file or folder; {_CURE}"])
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            str(path), [f"a file of tasks ends in {', '.join(SUFFIXES)}, got {path.suffix or 'no ending'!r}"]
        )
    return [path]


def _is_file(path: Path, *, folder: bool = False) -> bool:
    try:
        return path.is_dir() if folder else path.is_file()
    except OSError:  # a name that no file system has
        return False


def _rows(file: Path, mistakes: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(place, row) of a file; what is no row becomes a mistake."""
    read = {".jsonl": _json_lines, ".json": _json_list, ".parquet": _parquet}[file.suffix]
    if not file.is_file():  # a pipe would be waited for
        mistakes.append(f"{file.name}: is a folder, a pipe or a link that leads nowhere; a file of rows was wanted")
        return
    try:
        for place, row in read(file, mistakes):
            if isinstance(row, Mapping):
                yield place, row
            else:
                mistakes.append(f"{place}: a row must be an object, got {type(row).__name__}")
    except OSError as err:
        mistakes.append(f"{file.name}: cannot be read: {err.strerror}")


def _json_lines(file: Path, mistakes: list[str]) -> Iterator[tuple[str, Any]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            place = f"{file.name} line {number}"
            if not line.strip(b"\xef\xbb\xbf \t\r\n"):
                continue
            try:
                yield place, json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as err:
                mistakes.append(f"{place}: no JSON ({err})")


def _json_list(file: Path, mistakes: list[str]) -> Iterator[tuple[str, Any]]:
    try:
        rows = json.loads(file.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as err:
        mistakes.append(f"{file.name}: no JSON ({err}); a file of one row a line ends in .jsonl")
        return
    if not isinstance(rows, list):
        mistakes.append(f"{file.name}: must be a list of rows, got {type(rows).__name__}")
        return
    yield from ((f"{file.name} entry {number}", row) for number, row in enumerate(rows, 1))


def _parquet(file: Path, mistakes: list[str]) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports]
    except ImportError as err:
        cure = 'pip install "jaxmtrl[parquet]" (pyarrow), or turn it into JSON lines'
        raise ConfigError(str(file), [f"parquet needs a package that is not installed: {cure}"]) from err
    try:
        batches = parquet.ParquetFile(file).iter_batches(batch_size=256)
        number = 0
        for batch in batches:
            for row in batch.to_pylist():
                number += 1
                yield f"{file.name} row {number}", row
    except (OSError, ValueError) as err:  # pyarrow's own errors are of these kinds
        mistakes.append(f"{file.name}: no parquet ({err})")
