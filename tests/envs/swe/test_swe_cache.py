"""Folders made once, by one of many, and swept away when there are too many bytes and nobody uses them."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

import pytest

from jaxmtrl.envs.swe.cache import CacheError, FolderCache
from jaxmtrl.envs.swe.files import write_whole


def write(folder, size=4096):
    (folder / "file").write_bytes(b"x" * size)


def test_many_threads_make_an_entry_once(tmp_path):
    cache = FolderCache(tmp_path, 1 << 30)
    made = []

    def make(folder):
        made.append(1)
        time.sleep(0.1)
        write(folder)

    threads = [threading.Thread(target=lambda: cache.get("a", "k", make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1] and (tmp_path / "a" / "k" / "files" / "file").exists()


def test_who_came_late_gets_it_while_it_is_in_use(tmp_path):
    """Whoever has made it shares its lock for as long as a run lasts; to wait for the lock alone would be for ever."""
    for number in range(40):
        caches = [FolderCache(tmp_path, 1 << 30) for _ in range(6)]  # as of six processes; none lets go
        threads = [threading.Thread(target=cache.get, args=("a", f"k{number}", write), daemon=True) for cache in caches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
        for cache in caches:
            cache.close()


def make_slowly(folder, log):
    def make(files):
        with open(log, "a") as lines:
            lines.write("made\n")
        time.sleep(0.2)
        write(files)

    FolderCache(folder, 1 << 30).get("a", "k", make)


def test_many_processes_make_an_entry_once(tmp_path):
    log = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=make_slowly, args=(tmp_path / "cache", log)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert log.read_text() == "made\n" and all(process.exitcode == 0 for process in processes)


def test_what_fails_leaves_nothing_and_can_be_tried_again(tmp_path):
    cache = FolderCache(tmp_path, 1 << 30)

    def fail(folder):
        write(folder)
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        cache.get("a", "k", fail)
    assert list((tmp_path / "a").iterdir()) == []
    assert (cache.get("a", "k", write) / "file").exists()


def test_the_entry_used_longest_ago_goes_first_and_one_in_use_stays(tmp_path):
    cache = FolderCache(tmp_path, 2 * 4096)
    for age, key in ((30, "held"), (20, "old"), (10, "new")):
        cache.get("a", key, write)
        os.utime(tmp_path / "a" / key / "made.json", (time.time() - age,) * 2)
    assert cache.size() == 3 * 4096  # all are in use
    cache.release("a", "old")
    cache.release("a", "new")
    cache.sweep()
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"held", "new"}
    other = FolderCache(tmp_path, 0)  # of another process
    other.sweep()
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"held"}
    cache.close()
    other.sweep()
    assert list((tmp_path / "a").iterdir()) == []


def test_an_entry_is_held_until_each_use_has_let_go(tmp_path):
    cache = FolderCache(tmp_path, 0)
    cache.get("a", "k", write)
    cache.get("a", "k", write)
    cache.release("a", "k")
    cache.sweep()
    assert (tmp_path / "a" / "k").exists()
    cache.release("a", "k")
    cache.sweep()
    assert not (tmp_path / "a" / "k").exists()


def test_an_entry_whose_files_somebody_removed_is_made_anew(tmp_path):
    cache = FolderCache(tmp_path, 1 << 30)
    cache.get("a", "k", write)
    cache.release("a", "k")
    (tmp_path / "a" / "k" / "files" / "file").unlink()
    (tmp_path / "a" / "k" / "files").rmdir()
    assert (cache.get("a", "k", write) / "file").exists()


@pytest.mark.parametrize("name", ["file", "file/below", "/proc/jaxmtrl", "nul\0"])
def test_a_folder_that_cannot_be_written_to_is_told_with_the_option_that_names_another(tmp_path, name):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CacheError, match="cannot be written to: .*env.options.cache, or --cache"):
        FolderCache(tmp_path / name, 1 << 30).get("a", "k", write)


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path):
    cache = FolderCache(tmp_path, 1 << 30)
    (tmp_path / "a" / ".making-old").mkdir(parents=True)
    (tmp_path / "archives" / ".fetching-old").mkdir(parents=True)
    (tmp_path / "archives" / ".fetching-new").mkdir()
    (tmp_path / "verdicts").mkdir()
    (tmp_path / "verdicts" / ".x.json.1.partial").write_text("x")
    for path in (
        tmp_path / "a" / ".making-old",
        tmp_path / "archives" / ".fetching-old",
        *tmp_path.glob("verdicts/.*"),
    ):
        os.utime(path, (time.time() - 2 * 24 * 3600,) * 2)
    cache.sweep()
    assert [path.name for path in tmp_path.glob("*/.*")] == [".fetching-new"]


def test_many_write_one_file_and_it_is_always_whole(tmp_path):
    threads = [
        threading.Thread(target=lambda n=n: [write_whole(tmp_path / "x" / "f", f"{n}" * 9999) for _ in range(20)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (tmp_path / "x" / "f").exists():
            assert len((tmp_path / "x" / "f").read_text()) == 9999
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["f"]
    assert (tmp_path / "x" / "f").stat().st_mode & 0o777 == 0o644


def test_an_entry_that_vanishes_while_it_is_in_use_is_told_and_not_waited_for(tmp_path):
    cache = FolderCache(tmp_path, 1 << 30)
    cache.get("a", "k", write)
    (tmp_path / "a" / "k" / "made.json").unlink()
    with pytest.raises(CacheError, match="removed while it was in use"):
        cache.get("a", "k", write)
    cache.release("a", "k")
    assert (cache.get("a", "k", write) / "file").exists()
