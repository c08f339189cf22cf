"""Makes way, in a workspace that the policy has written, for a file that is to be mounted over it for one command.

A link on the way would lead bwrap, which makes what is missing of a mount's target, out of the workspace; so links and
other things that are neither folder nor file are removed first.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_way(top: int, path: str) -> bool:
    """Leaves on the way to `path` only folders, and at its end a file or nothing; whether there was a file.

    Args:
        top: descriptor of the folder that `path` is relative to.
    """
    *folders, name = path.split("/")
    with ExitStack() as stack:
        for folder in folders:
            mode = _mode(top, folder)
            if mode is None:
                return False
            if not stat.S_ISDIR(mode):
                os.unlink(folder, dir_fd=top)
                return False
            top = _enter(stack, top, folder)
        mode = _mode(top, name)
        if mode is None or stat.S_ISREG(mode):
            return mode is not None
        if stat.S_ISDIR(mode):
            shutil.rmtree(name, dir_fd=top)  # follows no links
        else:
            os.unlink(name, dir_fd=top)
        return False


def clear_way(top: int, path: str) -> None:
    """Removes what a mount at `path` has left: an empty file, and the folders above it that hold nothing else."""
    *folders, name = path.split("/")
    with ExitStack() as stack:
        chain = [top]
        for folder in folders:
            mode = _mode(chain[-1], folder)
            if mode is None or not stat.S_ISDIR(mode):
                return
            chain.append(_enter(stack, chain[-1], folder))
        if (mode := _mode(chain[-1], name)) is None or not stat.S_ISREG(mode):
            return
        os.unlink(name, dir_fd=chain[-1])
        for above, folder in zip(reversed(chain[:-1]), reversed(folders)):
            try:
                os.rmdir(folder, dir_fd=above)
            except OSError:  # not empty
                return


def _mode(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _enter(stack: ExitStack, folder: int, name: str) -> int:
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:  # the policy has closed it, and it is ours to open
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{place}", 0o700)
        finally:
            os.close(place)
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    stack.callback(os.close, descriptor)
    return descriptor
