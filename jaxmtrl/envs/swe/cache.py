"""Folders that are made once and used by many processes, up to a size. Knows nothing of what is in them.

An entry is `<kind>/<key>/`, with `files/` and, written last, `made.json`. Who uses an entry holds a shared lock on it,
so that nobody sweeps it away; who makes one holds the lock alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jaxmtrl.errors import EnvironmentFailure

_REMOVED_S = 10.0  # an entry that is not made and is in use for as long has been removed by somebody
_STALE_S = 24 * 3600.0  # what a killed process left half made is removed after a day


class CacheError(EnvironmentFailure):
    """A cache's folder cannot be written to; says what to do."""


def default_folder() -> Path:
    """Where users keep what can be made again. Not in root's home, which no other user may enter."""
    if os.geteuid() == 0:
        return Path("/var/cache/jaxmtrl/swe")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "jaxmtrl" / "swe"


class FolderCache:
    """Entries by kind and key; safe for threads and processes of one machine."""

    def __init__(self, folder: Path, max_bytes: int):
        self.folder = folder
        self.max_bytes = max_bytes
        self._held: dict[tuple[str, str], tuple[int, int]] = {}  # descriptor of the lock, and how many use it
        self._guard = threading.Lock()

    def get(self, kind: str, key: str, make: Callable[[Path], None]) -> Path:
        """The entry's `files/`, made by `make` into an empty folder where it is not there; held until `release`."""
        place = self.folder / kind / key
        make_folder(place.parent)
        lock = self._lock(kind, key)
        made = False
        refused_since = 0.0
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)  # while somebody makes it, this waits
            while not _is_made(place):
                # Never wait for the lock alone: who has made it meanwhile shares it for as long as it is in use.
                alone = _alone(lock)
                if not _is_made(place):
                    if alone:
                        self._make(place, make)
                        made = True
                    else:
                        refused_since = refused_since or time.monotonic()
                        if (kind, key) in self._held or time.monotonic() - refused_since > _REMOVED_S:
                            raise CacheError(f"{place} was removed while it was in use; end that run, or begin again")
                        fcntl.flock(lock, fcntl.LOCK_UN)
                        time.sleep(random.uniform(0.005, 0.05))  # those who look at the same time part ways
                fcntl.flock(lock, fcntl.LOCK_SH)
            os.utime(place / "made.json")
        except BaseException:
            os.close(lock)
            raise
        with self._guard:
            held, uses = self._held.get((kind, key), (lock, 0))
            self._held[kind, key] = (held, uses + 1)
        if uses:
            os.close(lock)
        if made:
            self.sweep()
        return place / "files"

    def release(self, kind: str, key: str) -> None:
        """Lets go of an entry; it stays until room is wanted."""
        with self._guard:
            lock, uses = self._held.pop((kind, key), (-1, 0))
            if uses > 1:
                self._held[kind, key] = (lock, uses - 1)
        if uses == 1:
            os.close(lock)

    def close(self) -> None:
        """Lets go of every entry."""
        with self._guard:
            locks = [lock for lock, _ in self._held.values()]
            self._held.clear()
        for lock in locks:
            os.close(lock)

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(size for _, _, size in self._entries())

    def sweep(self) -> None:
        """Removes the entries that were not used for longest until the rest fits; never one that is in use."""
        self._sweep_stale()
        entries = sorted(self._entries())
        total = sum(size for _, _, size in entries)
        for _, place, size in entries:
            if total <= self.max_bytes:
                return
            if self._remove(place):
                total -= size

    def _entries(self) -> Iterator[tuple[float, Path, int]]:
        """(last use, folder, bytes) of each."""
        for page in self.folder.glob("*/*/made.json"):
            try:
                yield page.stat().st_mtime, page.parent, int(json.loads(page.read_text("utf-8"))["bytes"])
            except (OSError, ValueError, KeyError):
                continue  # swept by another process, or not ours

    def _remove(self, place: Path) -> bool:
        lock = self._lock(place.parent.name, place.name)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (place / "made.json").unlink(missing_ok=True)  # first: what is half gone is no entry
            shutil.rmtree(place, ignore_errors=True)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    def _make(self, place: Path, make: Callable[[Path], None]) -> None:
        partial = Path(tempfile.mkdtemp(prefix=".making-", dir=place.parent))
        try:
            partial.chmod(0o755)
            (partial / "files").mkdir()
            make(partial / "files")
            (partial / "made.json").write_text(json.dumps({"bytes": folder_bytes(partial / "files")}), "utf-8")
            shutil.rmtree(place, ignore_errors=True)  # one that was half removed
            partial.rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _sweep_stale(self) -> None:
        for partial in self.folder.glob("*/.*"):
            try:
                if time.time() - partial.lstat().st_mtime <= _STALE_S:
                    continue
                if partial.is_dir() and not partial.is_symlink():
                    shutil.rmtree(partial, ignore_errors=True)
                else:
                    partial.unlink()
            except OSError:
                continue

    def _lock(self, kind: str, key: str) -> int:
        locks = self.folder / "locks"
        make_folder(locks)
        try:
            return os.open(locks / f"{kind}-{key}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as err:
            raise _unwritable(self.folder, err) from err


def _alone(lock: int) -> bool:
    """Takes a lock for itself if nobody else has it; else it may be lost."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_made(place: Path) -> bool:
    """Whether an entry is whole, as far as can be told at once: somebody may have removed its files to make room."""
    return (place / "made.json").exists() and (place / "files").is_dir()


def make_folder(folder: Path) -> None:
    """Makes a folder of a cache. Raises CacheError, with the cure."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as err:  # ValueError: a path that no system has
        raise _unwritable(folder.parent, err) from err


def _unwritable(folder: Path, err: Exception) -> CacheError:
    words = f"the cache {folder} cannot be written to: {getattr(err, 'strerror', None) or err}"
    return CacheError(f"{words}; mend that, or name another folder (env.options.cache, or --cache)")


def folder_bytes(folder: Path) -> int:
    """What a folder takes on disk, as far as its files go (4 KiB blocks)."""
    return sum(
        (os.lstat(os.path.join(top, name)).st_size + 4095) // 4096 * 4096
        for top, folders, files in os.walk(folder)
        for name in [*folders, *files]
    )
