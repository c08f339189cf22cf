"""Where the files of a task's repository come from: a package's source archive, a local git mirror, an exported image.

All leave out what could hold a built copy of the code, but for an image's extensions, and every link that leads out of
the tree.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from jaxmtrl.envs.swe.cache import make_folder
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import git_environment
from jaxmtrl.envs.swe.sandbox.api import WORKDIR
from jaxmtrl.errors import EnvironmentFailure

_BUILT_FOLDERS = frozenset({"__pycache__", ".eggs", ".tox", ".nox", ".pytest_cache", ".hypothesis", ".mypy_cache"})
_BUILT_FILES = re.compile(r".*\.(pyc|pyo|orig|rej|whl|egg)|\.coverage(\..*)?|coverage\.xml")
_DATE = 946684800  # every file's time: the first of January 2000


# Of an archive that was cut short or changed; OSError: gzip, lzma
ARCHIVE_ERRORS = (tarfile.TarError, EOFError, OSError, zlib.error, ValueError)


class SourceError(EnvironmentFailure):
    """The files of a repository cannot be had; says what to put where."""


def extract_source(
    instance: SweInstance, folder: Path, *, archives: Path, mirrors: Path | None, rootfs: Path | None = None
) -> None:
    """Writes the files of the instance's base into `folder`, before any patch of it, without built ones.

    Args:
        archives: where source archives are kept, by <name>-<version>; those that are missing are fetched by pip.
        mirrors: where <owner>__<repo>.git lies for repositories that are no packages.
        rootfs: root file system of the instance's image, which is asked instead of the mirrors.

    Raises:
        SourceError: no mirror, no such commit, or an archive that is not the one of the row.
    """
    if instance.source in ("injected", "release"):
        name = instance.repo.removeprefix("pypi/")
        archive = fetch_archive(name, instance.version, archives)
        found = file_hash(archive)
        if instance.base and found != instance.base:
            raise SourceError(
                f"{archive} has the sha256 {found}, but the row {instance.id} was made of {instance.base}; if it is "
                "damaged, remove it, and it is fetched again"
            )
        unpack_archive(archive, folder)
    elif rootfs is not None:
        _copy_of_an_image(instance, folder, rootfs)
    else:
        _export_mirror(instance, folder, mirrors)


def fetch_archive(name: str, version: str, archives: Path) -> Path:
    """The package's source archive; `version` "" is the newest one. pip prepares its metadata, which runs its set-up.

    Raises:
        SourceError: pip has none; with its words.
    """
    if version:
        found = [
            path for path in sorted(archives.glob(f"*-{version}.tar.gz")) if archive_name(path)[0] == plain_name(name)
        ]
        if found:
            return found[0]
    make_folder(archives)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=archives) as partial:
        wanted = f"{name}=={version}" if version else name
        options = ["--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", "--quiet", "--dest", partial]
        command = [sys.executable, "-m", "pip", "download", *options, wanted]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
        files = sorted(Path(partial).glob("*.tar.gz"))
        if done.returncode != 0 or not files:
            said = done.stderr.decode("utf-8", "replace").strip()[-600:]
            raise SourceError(f"pip found no source archive (.tar.gz) of {wanted}: {said}")
        target = archives / files[0].name
        files[0].replace(target)
    return target


def archive_name(archive: Path) -> tuple[str, str]:
    """Normalised name and version of a source archive's file name."""
    name, _, version = archive.name.removesuffix(".tar.gz").rpartition("-")
    return plain_name(name), version


def plain_name(name: str) -> str:
    """A package's name as the registry compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack_archive(archive: Path, folder: Path) -> None:
    """Writes the files below the archive's one top folder into `folder`, without built ones."""
    try:
        with tarfile.open(archive) as tar:
            _unpack(tar, folder)
    except ARCHIVE_ERRORS as err:
        raise damaged(archive, err) from err
    tops = [path for path in folder.iterdir() if path.is_dir()]
    if len(tops) == 1 and not any(path.is_file() for path in folder.iterdir()):
        top = tops[0].rename(folder / ".top-of-the-archive")
        for path in top.iterdir():
            path.rename(folder / path.name)
        top.rmdir()
    for path in [*folder.rglob("*.egg-info"), folder / "build", folder / "dist"]:
        if path.is_dir() and not path.is_symlink() and not (path / "__init__.py").exists():
            shutil.rmtree(path)
    clean_tree(folder)


def damaged(archive: Path, err: Exception) -> SourceError:
    """What to say of an archive that cannot be read."""
    words = str(err).strip().partition("\n")[0] or type(err).__name__
    of_the_machine = isinstance(err, OSError) and err.errno is not None  # such as a full disk
    cure = "mend that" if of_the_machine else "remove it, and it is fetched again"
    return SourceError(f"{archive} cannot be unpacked: {words}; {cure}")


def clean_tree(folder: Path) -> None:
    """Removes what was built, links that lead out and special files; gives every file one date and plain rights."""
    root = folder.resolve()
    for top, folders, files in os.walk(folder, topdown=False):
        for name in [*files, *folders]:
            path = Path(top, name)
            if path.is_symlink():
                target = path.resolve()
                if os.path.isabs(os.readlink(path)) or not target.is_relative_to(root) or not target.exists():
                    path.unlink()
            elif path.is_dir():
                if name in _BUILT_FOLDERS or name == ".git":
                    shutil.rmtree(path)
                else:
                    path.chmod(0o755)
            elif not path.is_file() or _BUILT_FILES.fullmatch(name) or name == ".git":
                path.unlink()
            else:
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
                os.utime(path, (_DATE, _DATE))


def _export_mirror(instance: SweInstance, folder: Path, mirrors: Path | None) -> None:
    mirror = _find_mirror(instance.repo, mirrors)
    if not re.fullmatch(r"[0-9a-fA-F]{4,64}", instance.base):
        raise SourceError(f"{instance.id} has no commit in base_commit, got {instance.base!r}")
    command = ["git", "--git-dir", str(mirror), "archive", "--format=tar", f"{instance.base}^{{commit}}"]
    environment = {**git_environment(folder), "GIT_CONFIG_COUNT": "1"}
    environment |= {"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    with tempfile.TemporaryFile() as words:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, env=environment) as git:
            try:
                with tarfile.open(fileobj=git.stdout, mode="r|") as tar:
                    _unpack(tar, folder)
            except tarfile.TarError:
                git.kill()
            except OSError:
                git.kill()
                raise
        if git.returncode != 0:
            words.seek(0)
            said = words.read().decode("utf-8", "replace").strip()[-400:]
            raise SourceError(f"{mirror} does not give the commit {instance.base} of {instance.id}: {said}")
    clean_tree(folder)


def _copy_of_an_image(instance: SweInstance, folder: Path, rootfs: Path) -> None:
    """What lies in the image's workspace, built extensions included: the image's Python may import those."""
    workspace = rootfs / WORKDIR.strip("/")
    if workspace.is_symlink() or not workspace.is_dir():
        raise SourceError(f"{rootfs} has no folder {WORKDIR}, where the repository of {instance.id} should stand")

    def unwanted(top: str, names: list[str]) -> list[str]:
        return [name for name in names if name == ".git" or not _is_plain(os.lstat(os.path.join(top, name)).st_mode)]

    try:
        shutil.copytree(workspace, folder, symlinks=True, ignore=unwanted, dirs_exist_ok=True)
    except (OSError, shutil.Error) as err:
        told = str(err)[:300]
        raise SourceError(f"{workspace} cannot be copied: {told}; let this user read what was exported") from err
    clean_tree(folder)


def _is_plain(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _find_mirror(repo: str, mirrors: Path | None) -> Path:
    name = repo.replace("/", "__")
    if mirrors is None:
        raise SourceError(f"the repository {repo} needs a folder of mirrors that holds {name}.git (git clone --mirror)")
    found = [path for path in _folders(mirrors) if path.name.lower() in (f"{name}.git", name)]
    if not found:
        raise SourceError(
            f"{mirrors} has no {name}.git: git clone --mirror https://github.com/{repo} {mirrors}/{name}.git"
        )
    git_folder = found[0] / ".git"
    return git_folder if git_folder.is_dir() else found[0]


def _folders(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.iterdir()) if path.is_dir()) if folder.is_dir() else ()


def _unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Files, folders and links of `tar`; what would leave `folder` is left out, as is what is neither."""
    for member in tar:
        try:
            tar.extract(member, folder, filter="data")
        except tarfile.FilterError:
            continue
