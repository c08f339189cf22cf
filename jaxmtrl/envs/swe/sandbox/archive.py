"""Workspaces that come as tar archives out of a container: what one holds, and how it differs from another.

Archives are read as a stream and never unpacked: names in them are words, and links lead nowhere.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from jaxmtrl.envs.swe.sandbox.api import ChangeSet, FileChange
from jaxmtrl.envs.swe.sandbox.changes import NOT_LOOKED_AT
from jaxmtrl.errors import SandboxFailure

# By path: what a regular file holds, in short, and whether it can be executed; or where a link leads.
Listing = Mapping[str, tuple[bytes, bool] | str]


def packed(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """An archive of `files`: content and mode by absolute path."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (content, mode) in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def listing(stream: IO[bytes]) -> Listing:
    """What an archive of a workspace holds."""
    found: dict[str, tuple[bytes, bool] | str] = {}
    for path, entry, tar in _entries(stream):
        if entry.isreg():
            found[path] = (_digest(_content(tar, entry, entry.size)), bool(entry.mode & 0o100))
        elif entry.issym():
            found[path] = entry.linkname
    return found


def listing_of_trees(trees: Sequence[Path]) -> Listing:
    """What folders hold, laid over each other, the last one on top."""
    found: dict[str, tuple[bytes, bool] | str] = {}
    for tree in trees:
        for folder, folders, files in os.walk(tree):
            folders[:] = [name for name in folders if name not in NOT_LOOKED_AT]
            for name in (*files, *folders):
                place = Path(folder, name)
                path = str(place.relative_to(tree))
                if place.is_symlink():
                    found[path] = os.readlink(place)
                elif place.is_file():
                    found[path] = (_digest(place.read_bytes()), bool(place.stat().st_mode & 0o100))
    return found


def changes(stream: IO[bytes], pristine: Listing, *, max_files: int, max_bytes: int) -> ChangeSet:
    """How an archive of a workspace differs from what it was."""
    files: list[FileChange] = []
    dropped: list[str] = []
    gone = {path for path, what in pristine.items() if not isinstance(what, str)}
    total = 0
    for path, entry, tar in _entries(stream):
        before = pristine.get(path)
        if entry.isdir() or (entry.issym() and before == entry.linkname):
            continue
        if not entry.isreg():
            dropped.append(path)
            continue
        gone.discard(path)
        executable = bool(entry.mode & 0o100)
        content = _content(tar, entry, max(max_bytes, entry.size if before is not None else 0))
        if entry.size == len(content) and before == (_digest(content), executable):
            continue
        total += entry.size
        files.append(FileChange(path=path, content=content, executable=executable))
        if total > max_bytes or len(files) > max_files:
            break
    files += [FileChange(path=path, content=None) for path in gone] if total <= max_bytes else []
    if total > max_bytes or len(files) > max_files:
        return ChangeSet(files=(), dropped=tuple(sorted(dropped)), too_large=_too_large(total > max_bytes, max_files))
    return ChangeSet(files=tuple(sorted(files, key=lambda file: file.path)), dropped=tuple(sorted(dropped)))


def only_file(stream: IO[bytes], max_bytes: int) -> bytes:
    """What the one regular file of an archive holds."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            entry = tar.next()
            if entry is None or not entry.isreg():
                return b""  # the command has put something else in its place
            return _content(tar, entry, max_bytes)
    except tarfile.TarError as err:
        raise SandboxFailure(f"a report could not be copied out of a container: {err}") from err


def _entries(stream: IO[bytes]) -> Iterator[tuple[str, tarfile.TarInfo, tarfile.TarFile]]:
    """Entries with their path within the folder that was archived."""
    try:
        with tarfile.open(fileobj=stream, mode="r|", errors="backslashreplace") as tar:
            for entry in tar:
                parts = [part for part in entry.name.split("/") if part not in ("", ".")][1:]
                if parts and ".." not in parts and not NOT_LOOKED_AT.intersection(parts):
                    yield "/".join(parts), entry, tar
    except tarfile.TarError as err:
        raise SandboxFailure(f"a workspace could not be copied out of a container: {err}") from err


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo, most: int) -> bytes:
    file = tar.extractfile(entry)
    return file.read(most) if file is not None else b""


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _too_large(by_size: bool, max_files: int) -> str:
    return "too many bytes in changed files" if by_size else f"more than {max_files} files changed"
