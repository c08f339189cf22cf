"""The folders that a task's sandbox is laid over: the repository as the policy meets it, without its history.

What solves a task is in none of them: the clean files of an injected fault lie below the faulty ones, under the same
names, and git knows one commit, of what is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jaxmtrl.envs.swe.cache import FolderCache, default_folder
from jaxmtrl.envs.swe.images import how_to_export, rootfs_name
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import PatchError, apply_patch, git_environment, patched_paths, run_git
from jaxmtrl.envs.swe.row_rules import OURS
from jaxmtrl.envs.swe.rows import row_hash
from jaxmtrl.envs.swe.sandbox.api import Base, ChangeSet, FileChange
from jaxmtrl.envs.swe.sandbox.owner import hand_over
from jaxmtrl.envs.swe.sources import SourceError, clean_tree, extract_source
from jaxmtrl.envs.swe.venvs import find_venv, make_venv, venv_key

_FORMAT = "1"  # of what is in the cache; another one makes everything anew


class TreeCache:
    """Makes what an instance's sandbox needs, once, in a folder that processes share."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        mirrors: Path | None = None,
        venvs: Path | None = None,
        rootfs: Path | None = None,
        max_bytes: int = 20 << 30,
    ):
        """
        Args:
            folder: of the cache; its own place in the user's home where None.
            mirrors: where <owner>__<repo>.git lies, for rows of repositories.
            venvs: where <owner>__<repo>__<version> or <owner>__<repo> lies, for rows without `requirements`.
            rootfs: where the root file systems of images lie, each by `images.rootfs_name`; it goes before `mirrors`.
            max_bytes: what is not in use is removed beyond it, that first which was not used for longest.
        """
        self.folder = folder or default_folder()
        self.mirrors = mirrors
        self.venvs = venvs
        self.rootfs = rootfs
        self._cache = FolderCache(self.folder, max_bytes)
        self._held: dict[str, list[list[tuple[str, str]]]] = {}  # by row: what each `base` holds for it

    @property
    def archives(self) -> Path:
        return self.folder / "archives"

    def sources(self, instance: SweInstance) -> tuple[Path, Path]:
        """The clean files of an injected row's package, with its tests, and its environment: for benches only."""

        def make(into: Path) -> None:
            self._extract(instance, into)
            self._hand_over(into)

        with self._holding(instance) as held:
            tree = self._get(held, "full", _short(instance.repo, instance.version, instance.base), make)
            venv = self._venv(instance, held)
        assert venv is not None
        return tree, venv

    def base(self, instance: SweInstance, *, venv: bool = True) -> Base:
        """What the policy meets. Made where it is not there; kept until `release`.

        Raises:
            SourceError, PatchError: the files cannot be had, or a patch of the row does not fit them.
        """
        if self.needs_containers([instance]):
            if instance.bug_patch.strip():
                cure = how_to_export(instance.image, "ROOTFS")
                raise SourceError(
                    f"the fault of {instance.id} is a patch, and a container is played as its image is; export it "
                    f"({cure}) and name ROOTFS by env.options.rootfs, or --rootfs"
                )
            return Base(tree=None, image=instance.image)
        rootfs = self._rootfs(instance)
        key = row_hash(instance)
        with self._holding(instance) as held:
            if instance.source in OURS:
                tree = self._get(
                    held, "clean", self._clean_key(instance), lambda into: self._make_clean(instance, into)
                )
                layers = (self._get(held, "layer", key, lambda into: self._make_layer(instance, into)),)
            else:
                key = _short(key, rootfs.name) if rootfs is not None else key
                tree = self._get(held, "tree", key, lambda into: self._make_tree(instance, into))
                layers = ()
            own = venv and rootfs is None  # an image brings its own Python
            return Base(tree=tree, layers=layers, venv=self._venv(instance, held) if own else None, rootfs=rootfs)

    def needs_containers(self, instances: Iterable[SweInstance]) -> bool:
        """Whether one of them can be had in a container of its image only."""
        elsewhere = self.mirrors is not None or self.rootfs is not None
        return not elsewhere and any(one.image and one.source not in OURS for one in instances)

    def release(self, instance: SweInstance) -> None:
        """Lets go of what `base` gave, once for each time."""
        given = self._held.get(row_hash(instance))
        for kind, key in given.pop() if given else ():
            self._cache.release(kind, key)

    def tests(self, instance: SweInstance) -> Mapping[str, bytes]:
        """The files of the tests that decide, by path: those of the base, with `test_patch` where there is one."""

        def make(into: Path) -> None:
            with tempfile.TemporaryDirectory() as scratch:
                full = Path(scratch)
                self._extract(instance, full)
                _patch(full, instance, "test_patch")
                copy_files(full, into, [path for path in instance.test_files if (full / path).is_file()])

        return self._read("tests", instance, make)[0]

    def gold(self, instance: SweInstance) -> ChangeSet:
        """What solves it, as an episode's changes; only ever for checks of the instance itself."""

        def make(into: Path) -> None:
            with tempfile.TemporaryDirectory() as scratch:
                full = Path(scratch)
                self._extract(instance, full)
                _patch(full, instance, "bug_patch")
                _patch(full, instance, "patch")
                copy_files(full, into, [path for path in paths if os.path.lexists(full / path)])

        paths = patched_paths(instance.patch)
        files, others = self._read("gold", instance, make)
        changes = [FileChange(path=path, content=files.get(path)) for path in paths if path not in others]
        return ChangeSet(files=tuple(changes), dropped=tuple(path for path in paths if path in others))

    @contextmanager
    def _holding(self, instance: SweInstance) -> Iterator[list[tuple[str, str]]]:
        """Notes what is taken within it, for `release`; lets go of it where something fails."""
        held: list[tuple[str, str]] = []
        try:
            yield held
        except BaseException:
            for entry in held:
                self._cache.release(*entry)
            raise
        self._held.setdefault(row_hash(instance), []).append(held)

    def _venv(self, instance: SweInstance, held: list[tuple[str, str]]) -> Path | None:
        key = venv_key(instance)
        if not key:
            return find_venv(instance, self.venvs)

        def make(into: Path) -> None:
            make_venv(instance, into)
            self._hand_over(into)

        return self._get(held, "venv", key, make)

    def _get(self, held: list[tuple[str, str]], kind: str, key: str, make) -> Path:
        key = _short(_FORMAT, key)
        place = self._cache.get(kind, key, make)
        held.append((kind, key))
        return place

    def _read(self, kind: str, instance: SweInstance, make) -> tuple[dict[str, bytes], set[str]]:
        """The plain files of an entry, and the paths of its links."""
        held: list[tuple[str, str]] = []
        folder = self._get(held, kind, row_hash(instance), make)
        places = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
        links = {path for path, place in places.items() if place.is_symlink()}
        files = {path: place.read_bytes() for path, place in places.items() if path not in links and place.is_file()}
        self._cache.release(*held[0])
        return files, links

    def _extract(self, instance: SweInstance, folder: Path) -> None:
        rootfs = self._rootfs(instance)
        extract_source(instance, folder, archives=self.archives, mirrors=self.mirrors, rootfs=rootfs)

    def _rootfs(self, instance: SweInstance) -> Path | None:
        """Of the instance's image; None where the instance has none, or no folder of them is named."""
        if self.rootfs is None or not instance.image or instance.source in OURS:
            return None
        name = rootfs_name(instance.image)
        if name in ("", ".", ".."):  # a row must not choose what else is opened, and given to the sandbox's user
            raise SourceError(f"the image of {instance.id} must end in a name, got {instance.image!r}; leave it out")
        found = self.rootfs / name
        if not found.is_dir():
            raise SourceError(f"no folder {found} for {instance.id}: {how_to_export(instance.image, self.rootfs)}")
        return found

    def _clean_key(self, instance: SweInstance) -> str:
        return _short(instance.repo, instance.version, instance.base, *sorted(_tests(instance)))

    def _make_clean(self, instance: SweInstance, into: Path) -> None:
        """What all faults of a package share: its files without its tests."""
        self._extract(instance, into)
        _take_out(into, instance, _tests(instance))
        self._hand_over(into)

    def _make_layer(self, instance: SweInstance, into: Path) -> None:
        """What one fault has of its own: the faulty files, the tests that are shown, and git's folder."""
        with tempfile.TemporaryDirectory() as scratch:
            full = Path(scratch)
            self._extract(instance, full)
            self._set_fault(instance, full)
            shown = [path for path in sorted(_tests(instance)) if (full / path).is_file()]
            copy_files(full, into, [*shown, *patched_paths(instance.bug_patch)])
            commit_anew(full, into / ".git")
        self._hand_over(into)

    def _make_tree(self, instance: SweInstance, into: Path) -> None:
        self._extract(instance, into)
        self._set_fault(instance, into)
        commit_anew(into, into / ".git")
        self._hand_over(into)

    def _set_fault(self, instance: SweInstance, folder: Path) -> None:
        _patch(folder, instance, "bug_patch")
        _take_out(folder, instance, instance.hidden_files)
        clean_tree(folder)

    @staticmethod
    def _hand_over(folder: Path) -> None:
        """Lets the sandbox's user read all of it, and own it."""
        for top, _, files in os.walk(folder):
            os.chmod(top, 0o755)
            for path in (os.path.join(top, name) for name in files):
                if not os.path.islink(path):
                    os.chmod(path, os.stat(path).st_mode | 0o444)
        hand_over(folder)


def commit_anew(folder: Path, git_folder: Path) -> None:
    """Makes a repository of the files of `folder`: one commit; no hooks, logs or remotes, nothing else to find."""
    environment = {
        **git_environment(folder),
        "GIT_DIR": str(git_folder),
        "GIT_WORK_TREE": str(folder),
        **{f"GIT_{who}_{what}": word for who in ("AUTHOR", "COMMITTER") for what, word in _SIGNATURE.items()},
    }
    commands = [
        ["init", "-q", "--template=", "-b", "main"],
        ["add", "-A", "-f", "."],
        ["commit", "-q", "--allow-empty", "--no-verify", "-m", "base"],
        ["repack", "-a", "-d", "-q"],
    ]
    # no git maintenance may begin behind our back; the index is trusted by date and size, so that a copy of it is too
    settings = ["core.logAllRefUpdates=false", "gc.auto=0", "core.autocrlf=false", "commit.gpgsign=false"]
    options = [word for setting in settings for word in ("-c", setting)]
    for command in commands:
        run_git([*options, *command], folder, environment)
    (git_folder / "COMMIT_EDITMSG").unlink(missing_ok=True)
    config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tcheckStat = minimal\n"
    (git_folder / "config").write_text(
        config + "\ttrustctime = false\n[user]\n\tname = agent\n\temail = agent@localhost\n"
    )


_SIGNATURE = {"NAME": "base", "EMAIL": "base@localhost", "DATE": "2000-01-01T00:00:00+0000"}


def _patch(folder: Path, instance: SweInstance, field: str) -> None:
    try:
        apply_patch(folder, getattr(instance, field))
    except PatchError as err:
        raise PatchError(f"{field} of {instance.id}: {err}") from err


def _take_out(folder: Path, instance: SweInstance, paths: Iterable[str]) -> None:
    for path in paths:
        try:
            (folder / path).unlink(missing_ok=True)
        except (IsADirectoryError, NotADirectoryError) as err:
            told = f"{instance.id}: {path}, of its test_files or hidden_files, is a folder or lies below a file"
            raise SourceError(f"{told}; name files") from err


def copy_files(source: Path, target: Path, paths: Sequence[str]) -> None:
    """Files and links among `paths`; folders, as of submodules, are left out."""
    for path in paths:
        if (source / path).is_symlink() or (source / path).is_file():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / path, target / path, follow_symlinks=False)


def _tests(instance: SweInstance) -> set[str]:
    return {*instance.test_files, *instance.hidden_files}


def _short(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]
