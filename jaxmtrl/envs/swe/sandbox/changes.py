"""What an episode has changed: the upper layer of its overlay, held against the trees below, file by file.

No git, and no link is ever followed: everything here was laid out by the policy, and we look at it with our own rights.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO

from jaxmtrl.envs.swe.sandbox.api import ChangeSet, FileChange

# Folders of tools that keep books; neither files of a solution nor of interest.
NOT_LOOKED_AT = frozenset({".git", "__pycache__", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache"})
_DEEPEST = 64
_MOST_DROPPED = 1000
_PIECE = 1 << 20
_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


class TooLarge(Exception):
    """More has changed than was asked for; says what."""


class _Found:
    """Collects, and counts before anything is read."""

    def __init__(self, max_files: int, max_bytes: int):
        self.files: dict[str, FileChange] = {}
        self.dropped: list[str] = []
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._bytes = 0

    def drop(self, path: str) -> None:
        if len(self.dropped) < _MOST_DROPPED:
            self.dropped.append(path.encode("utf-8", "backslashreplace").decode())

    def change(self, change: FileChange) -> None:
        self._bytes += len(change.content or b"")
        self.files[change.path] = change
        self.room_for(0)
        if len(self.files) > self._max_files:
            raise TooLarge(f"more than {self._max_files} files changed")

    def room_for(self, size: int) -> None:
        if self._bytes + size > self._max_bytes:
            raise TooLarge(f"more than {self._max_bytes} bytes in changed files")


def changes(upper: int, lower: Sequence[int], *, max_files: int, max_bytes: int, whole: bool = False) -> ChangeSet:
    """What the upper layer makes of those below it.

    Args:
        upper: descriptor of its folder.
        lower: descriptors of the layers below it, the topmost first.
        whole: `upper` is a whole tree, from which what it does not hold has gone, and no layer of an overlay.
    """
    found = _Found(max_files, max_bytes)
    try:
        _walk(found, "", upper, lower, opaque=whole)
    except TooLarge as err:
        return ChangeSet(files=(), dropped=tuple(sorted(found.dropped)), too_large=str(err))
    files = tuple(found.files[path] for path in sorted(found.files))
    return ChangeSet(files=files, dropped=tuple(sorted(found.dropped)))


def _walk(found: _Found, folder: str, upper: int, lower: Sequence[int], *, opaque: bool) -> None:
    """One folder of the upper layer. Opaque: what lies below it and is not in it is gone."""
    names = sorted(os.listdir(upper))
    if opaque:
        for name in _names(lower):
            if name not in names:
                _gone(found, folder + name, name, lower)
    for name in names:
        path = folder + name
        mode = os.stat(name, dir_fd=upper, follow_symlinks=False)
        if name in NOT_LOOKED_AT:
            continue
        if not _is_utf8(name):
            found.drop(path)
        elif stat.S_ISCHR(mode.st_mode) and mode.st_rdev == 0:
            _gone(found, path, name, lower)
        elif stat.S_ISDIR(mode.st_mode):
            _folder(found, path, name, upper, lower, opaque=opaque)
        elif stat.S_ISREG(mode.st_mode):
            _file(found, path, name, upper, lower, mode)
        elif not _same_link(name, upper, lower):
            _gone(found, path, name, lower)
            found.drop(path)


def _folder(found: _Found, path: str, name: str, upper: int, lower: Sequence[int], *, opaque: bool) -> None:
    if path.count("/") >= _DEEPEST:
        found.drop(path)
        return
    below = _lstat(name, lower)
    if below is not None and not stat.S_ISDIR(below.st_mode):
        _gone(found, path, name, lower)
    with _opened(name, upper) as inner:
        opaque = opaque or any(_attribute(inner, attribute) == b"y" for attribute in _OPAQUE)
        with _folders_below(name, lower) as inner_lower:
            _walk(found, path + "/", inner, inner_lower, opaque=opaque)


def _file(found: _Found, path: str, name: str, upper: int, lower: Sequence[int], mode: os.stat_result) -> None:
    below = _lstat(name, lower)
    if below is not None and stat.S_ISDIR(below.st_mode):
        _gone(found, path, name, lower)
    executable = bool(mode.st_mode & stat.S_IXUSR)
    if below is not None and stat.S_ISREG(below.st_mode) and bool(below.st_mode & stat.S_IXUSR) == executable:
        if below.st_size == mode.st_size and _same(name, upper, _holder_of(name, lower)):  # it was only touched
            return
    found.room_for(mode.st_size)
    content = _read(name, upper, mode.st_size)
    found.change(FileChange(path=path, content=content, executable=executable))


def _gone(found: _Found, path: str, name: str, lower: Sequence[int]) -> None:
    """Every regular file that was at or below `path` in the base, and is not there any more."""
    below = _lstat(name, lower)
    if below is None or name in NOT_LOOKED_AT:
        return
    if stat.S_ISREG(below.st_mode):
        found.change(FileChange(path=path, content=None))
    elif stat.S_ISDIR(below.st_mode):
        with _folders_below(name, lower) as inner:
            for inner_name in _names(inner):
                _gone(found, f"{path}/{inner_name}", inner_name, inner)


def _same_link(name: str, upper: int, lower: Sequence[int]) -> bool:
    """Whether it is a link that was there before."""
    try:
        return os.readlink(name, dir_fd=upper) == os.readlink(name, dir_fd=_holder_of(name, lower))
    except OSError:
        return False


def _holder_of(name: str, lower: Sequence[int]) -> int:
    """The topmost layer that has `name`."""
    for layer in lower:
        try:
            os.stat(name, dir_fd=layer, follow_symlinks=False)
        except OSError:
            continue
        return layer
    raise FileNotFoundError(name)


def _lstat(name: str, lower: Sequence[int]) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=_holder_of(name, lower), follow_symlinks=False)
    except FileNotFoundError:
        return None


def _names(lower: Sequence[int]) -> list[str]:
    return sorted({name for layer in lower for name in os.listdir(layer)})


@contextmanager
def _folders_below(name: str, lower: Sequence[int]) -> Iterator[list[int]]:
    """The folders of that name in the layers, down to the first layer in which it is something else."""
    with ExitStack() as stack:
        inner = []
        for layer in lower:
            try:
                mode = os.stat(name, dir_fd=layer, follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            if not stat.S_ISDIR(mode):
                break
            inner.append(stack.enter_context(_opened(name, layer)))
        yield inner


@contextmanager
def _opened(name: str, folder: int) -> Iterator[int]:
    descriptor = _open(name, folder, os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(name: str, folder: int, most: int) -> bytes:
    with _file_of(name, folder) as file:
        return file.read(most)


def _same(name: str, one: int, other: int) -> bool:
    """Whether two folders' files of that name hold the same; in pieces, since a base may hold large ones."""
    with _file_of(name, one) as first, _file_of(name, other) as second:
        while (piece := first.read(_PIECE)) == second.read(_PIECE):
            if not piece:
                return True
    return False


def _file_of(name: str, folder: int) -> IO[bytes]:
    file = os.fdopen(_open(name, folder, os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{name!r} is no plain file any more")
    return file


def _open(name: str, folder: int, flags: int) -> int:
    """Opens for reading; what its owner, who is ours, made unreadable is made readable first."""
    flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{place}", 0o700)  # leads to what was opened, wherever its name leads by now
        finally:
            os.close(place)
        return os.open(name, flags, dir_fd=folder)


def _attribute(descriptor: int, name: str) -> bytes:
    try:
        return os.getxattr(descriptor, name)
    except OSError:
        return b""


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # the file system's bytes, escaped as surrogates
        return False
    return True
