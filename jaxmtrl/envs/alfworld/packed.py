"""A split of games in one compressed file, a JSON object a line, made such that single games can be read.

The file (`<split>.jsonl.xz`) can only be read from its beginning, 180 MB of text for 3553 games. It is gone through
once; from then on a copy with every game packed by itself stands in the cache.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxmtrl.envs.alfworld.rows import one_line, read_row, walkthrough_of
from jaxmtrl.errors import EnvironmentFailure

_KINDS = "kinds.json"  # the member that lists the games
_TEXTS = ("id", "type", "task", "pddl_problem")  # of every game


class PackedSplit:
    """The games of one `.jsonl.xz`."""

    def __init__(self, source: Path, cache_dir: Path):
        """Makes the copy in `cache_dir` if there is none of this very file.

        Raises:
            EnvironmentFailure: the file is damaged, or the cache cannot be written.
        """
        stat = source.stat()
        stamp = hashlib.sha256(f"{source}|{stat.st_size}|{stat.st_mtime_ns}".encode()).hexdigest()[:16]
        self._source, self._path = source, cache_dir / f"{source.name.partition('.')[0]}-{stamp}.zip"
        if not self._path.is_file():
            self._pack()

    @property
    def kinds(self) -> dict[str, str]:
        """Id -> task type of every game."""
        kinds = self._member(_KINDS)
        if not all(isinstance(kind, str) for kind in kinds.values()):
            raise self._damaged("its list of games is none")
        return kinds

    def read(self, game: str) -> dict[str, Any]:
        """The object of one game. Raises EnvironmentFailure if there is none of that id."""
        return self._member(game)

    def _member(self, name: str) -> dict[str, Any]:
        try:
            with zipfile.ZipFile(self._path) as archive:
                return read_row(archive.read(name), () if name == _KINDS else _TEXTS)
        except KeyError:
            if name == _KINDS:
                raise self._damaged("its list of games is gone") from None
            raise EnvironmentFailure(f"{self._source} has no game {name!r}; list those it has.") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as err:
            raise self._damaged(str(err)) from err

    def _damaged(self, how: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"{self._path} is damaged ({how}); delete it, and it is made anew.")

    def _pack(self) -> None:
        """Written aside and moved into place, so that two processes may do it at once."""
        kinds: dict[str, str] = {}
        aside: Path | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
            aside = Path(name)
            with (
                os.fdopen(handle, "wb") as file,
                zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as out,
            ):
                for row in self._rows():
                    kinds[row["id"]] = row["type"]
                    out.writestr(row["id"], json.dumps(row))
                out.writestr(_KINDS, json.dumps(kinds))
            os.replace(aside, self._path)
        except (OSError, ValueError) as err:  # ValueError: a path that no system has
            raise EnvironmentFailure(
                f"The games of {self._source} cannot be unpacked to {self._path.parent}: {err}; name another cache_dir."
            ) from err
        finally:
            if aside is not None:
                aside.unlink(missing_ok=True)

    def _rows(self) -> Iterator[dict[str, Any]]:
        seen = {_KINDS}  # and every id, so that there are as many as the line has for a number
        try:
            with lzma.open(self._source, "rt", encoding="utf-8") as lines:
                for line in lines:
                    row = read_row(line, _TEXTS)
                    one_line(row["task"])
                    walkthrough_of(row)
                    if not row["id"] or "\0" in row["id"] or row["id"] in seen:
                        raise ValueError(f"the id {row['id']!r} is given twice, or names no game")
                    seen.add(row["id"])
                    yield row
        except (lzma.LZMAError, EOFError, OSError, ValueError) as err:
            raise EnvironmentFailure(f"{self._source} is damaged (line {len(seen)}: {err}); copy it anew.") from err
