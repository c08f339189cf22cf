"""Run as a program: holds the mounts of one episode, in a user and a mount namespace that nobody else sees.

It reads what to mount from its standard input, says "ready", and lives until that input ends, which it does when the
trainer closes it or dies. Everything that was written is in memory and goes with it. Knows nothing of the rest of the
package, and imports little: it is started once an episode.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

STAGE = "/sys"  # covered by our own mounts in here: it exists everywhere, and nobody keeps trees in it
WORKSPACE = "workspace"  # within STAGE: what the policy sees at WORKDIR
ROOT = "root"  # its copy of the root filesystem, where there is one
TEMPORARY = "temporary"  # its /tmp
SHARED = "shared"  # its /dev/shm
EMPTY = "empty"  # an empty folder, read-only
GIVEN = "given"  # files that single commands read from us, or write for us
LOWER = "lower"  # the read-only trees, by number
_UPPER = "written/{}/upper"  # what was written in an overlay, by the overlay's name

_NEW_NAMESPACE, _NEW_USER = 0x00020000, 0x10000000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _REMOUNT, _BIND = 1, 2, 4, 32, 4096
_RECURSIVE, _PRIVATE = 16384, 1 << 18
_SET_DUMPABLE = 4

_libc = ctypes.CDLL(None, use_errno=True)


def upper(overlay: str) -> str:
    """Where an overlay's writes are kept, within STAGE."""
    return _UPPER.format(overlay)


def main() -> None:
    order = marshal.loads(_line(0))
    user = order["user"]
    if user is None:
        _own_namespaces(os.getuid(), os.getgid())
        _mount_everything(order, None)
    else:  # from root: its mounts first, which reach folders that the other user cannot, then its rights go
        _check(_libc.unshare(_NEW_NAMESPACE), "unshare a mount namespace")
        _mount("none", "/", "", _RECURSIVE | _PRIVATE)
        _mount_everything(order, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        _own_namespaces(user, user)
    os.chdir("/")
    shell = "/bin/sh"  # small, and its memory and namespaces can be looked at, unlike ours after a change of user
    os.execve(shell, [shell, "-c", "echo ready; read -r _; exit 0"], {})


def _line(descriptor: int) -> bytes:
    """A length of eight digits, then as many bytes; not one more is read."""
    count = int(os.read(descriptor, 8) or sys.exit("nobody told what to hold"))
    parts = b""
    while len(parts) < count:
        part = os.read(descriptor, count - len(parts))
        if not part:
            sys.exit("what to hold was cut short")
        parts += part
    return parts


def _own_namespaces(uid: int, gid: int) -> None:
    _libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
    _check(_libc.unshare(_NEW_USER | _NEW_NAMESPACE), "unshare a user and a mount namespace")
    _libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except OSError as err:
            sys.exit(f"writing /proc/self/{name}: {err.strerror}")
    _mount("none", "/", "", _RECURSIVE | _PRIVATE)


def _mount_everything(order: dict, owner: int | None) -> None:
    safe = _NO_SETUID | _NO_DEVICES
    stage = "size=256k,nr_inodes=1k,mode=755"
    _mount("tmpfs", STAGE, "tmpfs", safe, stage)
    os.chdir(STAGE)
    for name in (EMPTY, LOWER, "written", GIVEN, TEMPORARY, SHARED, *order["overlays"]):
        os.mkdir(name)
    _mount("tmpfs", "written", "tmpfs", safe, f"size={order['size']},nr_inodes={order['files']},mode=755")
    _mount("tmpfs", GIVEN, "tmpfs", safe, f"size={order['temporary']},nr_inodes=20k,mode=755")
    for name in (TEMPORARY, SHARED):
        _mount("tmpfs", name, "tmpfs", safe, f"size={order['temporary']},nr_inodes={order['files']},mode=1777")
    for name in (GIVEN, TEMPORARY, SHARED):
        if owner is not None:
            os.chown(name, owner, owner)
    for number, path in enumerate(order["lower"]):
        os.mkdir(f"{LOWER}/{number}")
        _mount(path, f"{LOWER}/{number}", "", _BIND | _RECURSIVE)
    for name, layers in order["overlays"].items():
        _overlay(name, [f"{STAGE}/{LOWER}/{order['lower'].index(layer)}" for layer in layers], owner)
    _mount("none", STAGE, "", _REMOUNT | _READ_ONLY | safe, stage)


def _overlay(name: str, layers: list[str], owner: int | None) -> None:
    above, work = upper(name), f"written/{name}/work"
    _make_folder(os.path.dirname(above), owner)
    _make_folder(above, owner)
    _make_folder(work, owner)
    # A user namespace may not write the attributes that root's overlays keep; without redirects, as it is by itself
    # there, a renamed folder is copied, and the upper layer says all.
    special = "userxattr" if owner is None else "redirect_dir=off,metacopy=off"
    options = f"lowerdir={':'.join(layers)},upperdir={above},workdir={work},{special}"
    _mount("overlay", name, "overlay", _NO_SETUID | _NO_DEVICES, options)


def _make_folder(path: str, owner: int | None) -> None:
    os.mkdir(path, 0o755)
    if owner is not None:
        os.chown(path, owner, owner)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    arguments = [text.encode() if text else None for text in (source, target, kind)]
    result = _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() if options else None)
    _check(result, f"mount {kind or 'bind'} {source} on {target} {options}")


def _check(result: int, what: str) -> None:
    if result != 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
