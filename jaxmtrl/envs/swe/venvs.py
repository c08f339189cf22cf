"""The Python environment of a task: what its tests need, and never the package itself.

The package is imported from the workspace, by a .pth file; of its metadata there is what its archive says.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.row_rules import OURS
from jaxmtrl.envs.swe.sandbox.api import VENV, WORKDIR
from jaxmtrl.envs.swe.sources import ARCHIVE_ERRORS, SourceError, damaged, plain_name
from jaxmtrl.errors import EnvironmentFailure


class VenvError(EnvironmentFailure):
    """An environment could not be made; with pip's words."""


def venv_key(instance: SweInstance) -> str:
    """Equal for instances of one environment; "" for rows that do not say what theirs holds."""
    if instance.source not in OURS or instance.extra.get("requirements") is None:
        return ""  # others mean other things by that field
    words = [
        instance.repo,
        instance.version,
        *(instance.extra.get(name) for name in ("requirements", "roots", "python")),
    ]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def make_venv(instance: SweInstance, folder: Path) -> None:
    """Fills `folder` with the environment of an injected row: its `requirements` (name==version, all) and paths."""
    extra = instance.extra
    build_venv(folder, find_python(extra.get("python", "")), extra["requirements"], dependencies=False)
    join_package(folder, instance.repo.removeprefix("pypi/"), instance.version, extra.get("roots") or ["."])


def build_venv(folder: Path, python: str, requirements: Sequence[str], *, dependencies: bool = True) -> list[str]:
    """Makes a virtual environment without pip; returns what is in it as name==version, sorted.

    Args:
        dependencies: False where `requirements` are complete.

    Raises:
        VenvError: with the words of venv or pip.
    """
    _run([python, "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(folder / "bin" / "python")]
    if requirements:
        _run([*pip, "install", "--quiet", *(() if dependencies else ("--no-deps",)), *requirements])
    for script in (folder / "bin").iterdir():  # they would begin with where the environment was made
        if not script.is_symlink() and script.read_bytes().startswith(b"#!"):
            first, _, rest = script.read_bytes().partition(b"\n")
            if b"/bin/python" in first:
                script.write_bytes(f"#!{VENV}/bin/python\n".encode() + rest)
    return sorted(_run([*pip, "freeze", "--all"]).split())


def join_package(folder: Path, name: str, version: str, roots: Sequence[str]) -> None:
    """Lets the environment import the package from the workspace, and find its version where it asks for it.

    Raises:
        VenvError: the environment holds a copy of the package: what solves a task would be readable there.
    """
    packages = site_packages(folder)
    for info in packages.glob("*.dist-info"):
        if plain_name(info.name.split("-")[0]) == plain_name(name):
            raise VenvError(f"{name} is needed by the tests' own tools ({info.name}), so no faults can be hidden in it")
    paths = [str(Path(WORKDIR, root)) for root in roots]
    (packages / "testbed.pth").write_text("".join(path + "\n" for path in paths), "utf-8")
    info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    (info / "INSTALLER").write_text("testbed\n", "utf-8")


def site_packages(folder: Path) -> Path:
    return next((folder / "lib").glob("python3*/site-packages"))


def find_python(version: str) -> str:
    """An interpreter of "3.11", or of ours where "": one in /usr if there is one, for a sandbox sees no other.

    Raises:
        VenvError: there is none.
    """
    version = version or f"{sys.version_info.major}.{sys.version_info.minor}"
    found = Path(f"/usr/bin/python{version}")
    if found.exists():
        return str(found)
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    elsewhere = shutil.which(f"python{version}")
    if elsewhere is None:
        raise VenvError(f"these rows were made with Python {version}, which is not installed")
    return elsewhere


def find_venv(instance: SweInstance, venvs: Path | None) -> Path | None:
    """The environment that a user has made for a repository's rows, for this version or for all; None without a folder.

    Raises:
        SourceError: the folder has none for it.
    """
    if venvs is None:
        return None
    repo = instance.repo.replace("/", "__")
    names = [f"{repo}__{instance.version}", repo]
    for name in names:
        if (venvs / name / "bin" / "python").exists():
            return venvs / name
    raise SourceError(
        f"{venvs} has no environment for {instance.id}: python -m venv {venvs / names[0]}, then install in it"
    )


def read_metadata(archive: Path) -> dict[str, list[str]]:
    """Fields of the PKG-INFO at the archive's top, lower-case, each with its values."""
    try:
        with tarfile.open(archive) as tar:
            names = [name for name in tar.getnames() if re.fullmatch(r"[^/]+/PKG-INFO", name)]
            member = tar.extractfile(names[0]) if names else None
            text = member.read().decode("utf-8", "replace") if member else ""
    except ARCHIVE_ERRORS as err:
        raise damaged(archive, err) from err
    fields: dict[str, list[str]] = {}
    for line in text.split("\n\n")[0].splitlines():
        match = re.match(r"([A-Za-z-]+): (.*)", line)
        if match:
            fields.setdefault(match[1].lower(), []).append(match[2].strip())
    return fields


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-800:]
        raise VenvError(f"{' '.join(command[:4])} … ended with exit code {done.returncode}: {said}")
    return done.stdout.decode("utf-8", "replace")
