"""Folders made once, by one of many, and swept away when there are too many bytes and nobody uses them."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

import pytest

from jaxmtrl.envs.swe.cache import FolderCache


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
