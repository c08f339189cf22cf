"""The options that bwrap is given for one command: what it sees, and what it may not.

bwrap runs within the holder's namespaces, where everything is laid out under STAGE. Paths that the policy can write to
are the sources of mounts here and never the way to a target: a link that it planted could lead a mount astray.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxmtrl.envs.swe.sandbox.api import VENV, WORKDIR
from jaxmtrl.envs.swe.sandbox.holder import EMPTY, LOWER, ROOT, SHARED, STAGE, TEMPORARY, WORKSPACE

COMMAND = "/run/command"
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "mime.types", "ssl/certs", "magic")
_FILES = {
    "/etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:1000:1000:agent:/tmp:/bin/bash\n",
    "/etc/group": "root:x:0:\nagent:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_OWN = ("proc", "dev", "sys", "tmp", "run", WORKDIR.strip("/"))  # at the root of an image, ours instead of its


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What one episode's commands see of the host and of the holder."""

    rootfs: Path | None
    venv: int | None  # its number among the holder's lower trees
    interpreter: tuple[tuple[str, int], ...]  # folders of the interpreter behind the venv, with their numbers
    disable_userns: bool  # whether this bwrap can


def options(
    layout: Layout,
    *,
    variables: Mapping[str, str],
    data: Mapping[str, int],
    shown: Mapping[str, str],
    bound: Mapping[str, str],
    seccomp: int,
    status: int,
) -> list[str]:
    """All of them, in the order in which bwrap does them.

    Args:
        variables: the command's whole environment.
        data: by path, descriptors of what to show there, read-only.
        shown: by path, files within STAGE to show there, read-only.
        bound: the same, writable.
        seccomp: descriptor of the filter.
        status: descriptor that bwrap tells its process and its exit code.
    """
    given = ["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    given += ["--disable-userns"] if layout.disable_userns else []
    given += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    given += ["--json-status-fd", str(status), "--seccomp", str(seccomp)]
    for name, value in variables.items():
        given += ["--setenv", name, value]
    given += _of_an_image(layout.rootfs) if layout.rootfs is not None else _of_the_host(layout)
    given += ["--proc", "/proc", "--dev", "/dev"]
    for name, path in ((SHARED, "/dev/shm"), (TEMPORARY, "/tmp"), (WORKSPACE, WORKDIR)):
        given += ["--bind", f"{STAGE}/{name}", path]
    for path, descriptor in data.items():
        given += ["--perms", "0444", "--ro-bind-data", str(descriptor), path]
    for path, source in shown.items():
        given += ["--ro-bind", f"{STAGE}/{source}", path]
    for path, source in bound.items():
        given += ["--bind", f"{STAGE}/{source}", path]
    return [*given, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKDIR]


def host_files() -> dict[str, bytes]:
    """Files of /etc that we write ourselves."""
    return {path: text.encode() for path, text in _FILES.items()}


def _of_the_host(layout: Layout) -> list[str]:
    given = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = f"/{name}"
        if os.path.islink(path):
            given += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            given += ["--ro-bind", path, path]
    for name in _ETC:
        given += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for prefix, number in layout.interpreter:
        given += ["--ro-bind", f"{STAGE}/{LOWER}/{number}", prefix]
    for folder in _packages_of(["/usr", "/usr/local", *(prefix for prefix, _ in layout.interpreter)]):
        given += ["--ro-bind", f"{STAGE}/{EMPTY}", folder]
    if layout.venv is not None:
        given += ["--ro-bind", f"{STAGE}/{LOWER}/{layout.venv}", VENV]
    return given


def _packages_of(prefixes: Sequence[str]) -> list[str]:
    """Where the host's Python packages lie: what the policy should mend may be installed there, mended."""
    found = []
    for prefix in prefixes:
        for pattern in ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages"):
            found += sorted(str(folder) for folder in Path(prefix).glob(pattern) if folder.is_dir())
    return sorted({os.path.realpath(folder) for folder in found})


def _of_an_image(rootfs: Path) -> list[str]:
    """The entries of its root one by one, so that the root itself stays ours and read-only."""
    given: list[str] = []
    for entry in sorted(os.scandir(rootfs), key=lambda entry: entry.name):
        if entry.name in _OWN:
            continue
        if entry.is_symlink():
            given += ["--symlink", os.readlink(entry.path), f"/{entry.name}"]
        elif entry.is_dir():
            given += ["--bind", f"{STAGE}/{ROOT}/{entry.name}", f"/{entry.name}"]
    return given


def interpreter_of(venv: Path) -> tuple[str, ...]:
    """The folders of the interpreter that a virtual environment was made from, but for those that /usr holds."""
    found = set()
    for line in (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            found.add(str(Path(value.strip()).parent))
    python = venv / "bin" / "python"
    if python.exists():
        found.add(str(Path(os.path.realpath(python)).parent.parent))
    seen = ("/usr", "/")
    kept = {folder for folder in found if not any(folder == top or folder.startswith("/usr/") for top in seen)}
    return tuple(sorted(kept))
