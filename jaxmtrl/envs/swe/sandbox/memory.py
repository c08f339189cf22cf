"""How much memory a process and all that it has started take, where no cgroup counts it."""

from __future__ import annotations

import os


def resident(first: int) -> int:
    """Bytes of memory that are not a file's pages, of `first` and its descendants, as far as they live now.

    In a process namespace every orphan comes back to its first process, so that nobody leaves the tree. Pages that two
    processes share count twice.
    """
    total, waiting, seen = 0, [first], {first}
    while waiting:
        pid = waiting.pop()
        total += _own(pid)
        for child in _children(pid):
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return total


def _own(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:  # it has ended
        return 0
    fields = (line.split() for line in lines if line.startswith((b"RssAnon:", b"RssShmem:")))
    return sum(int(words[1]) for words in fields) << 10


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found
