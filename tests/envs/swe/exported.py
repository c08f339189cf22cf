"""The root file system of an image of published tasks, as `docker export` writes it, made without an engine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import shop
from sandboxes import make_rootfs

_SECRET = "the repair is: price - price * percent / 100"
_PYTHON = Path("/usr/bin/python3")


def export_image(folder: Path, venv: Path, *, faulty: bool) -> Path:
    """An image whose /testbed is the shop with its tests and, in git's folder, its future; Python where images have it.

    Args:
        venv: of `shop.make_venv`.
        faulty: whether the fault is there already, as in SWE-Gym's images and not in SWE-smith's.
    """
    make_rootfs(folder)
    shutil.rmtree(folder / "testbed")
    shop.write_tree(folder / "testbed", tests=True)
    if not faulty:
        (folder / "testbed/shop/prices.py").write_text(shop.PRICES)
    (folder / "testbed/.git").mkdir()
    (folder / "testbed/.git/FUTURE").write_text(_SECRET)
    (folder / "testbed/shop/_fast.so").write_bytes(b"built")
    os.mkfifo(folder / "testbed/pipe")
    _add_programs(folder, ["tar", "xargs", "head", "sed", "grep"])
    _add_python(folder)
    shutil.copytree(venv, folder / "opt/miniconda3/envs/testbed", symlinks=True)
    return folder


def _add_programs(folder: Path, names: list[str]) -> None:
    for name in names:
        path = str(shutil.which(name))
        shutil.copy(path, folder / "usr/bin" / name)
        _add_libraries(folder, [path])


def _add_python(folder: Path) -> None:
    real = _PYTHON.resolve()
    shutil.copy(real, folder / "usr/bin" / real.name)
    (folder / "usr/bin/python3").symlink_to(real.name)
    library = Path(f"usr/lib/{real.name}")
    unwanted = shutil.ignore_patterns("__pycache__", "test", "idlelib", "ensurepip", "config-*", "dist-packages")
    shutil.copytree("/" / library, folder / library, ignore=unwanted, ignore_dangling_symlinks=True)
    _add_libraries(folder, [str(real), *map(str, ("/" / library / "lib-dynload").glob("*.so"))])


def _add_libraries(folder: Path, programs: list[str]) -> None:
    for line in subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout.splitlines():
        library = next((word for word in line.split() if word.startswith("/") and not word.endswith(":")), None)
        if library is not None and not (folder / library.lstrip("/")).exists():
            (folder / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(library), folder / library.lstrip("/"))
