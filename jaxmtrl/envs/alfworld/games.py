"""The published games on disk: which there are, by split, and each of them by its id.

Reads what `alfworld-download` makes under $ALFWORLD_DATA, and the packed form of one `<split>.jsonl.xz` a split. Knows
nothing of how a game is played.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmtrl.envs.alfworld.naming import MODERN, Wording, read_grammar
from jaxmtrl.envs.alfworld.packed import PackedSplit
from jaxmtrl.envs.alfworld.rows import one_line, read_row, walkthrough_of
from jaxmtrl.errors import EnvironmentFailure

KINDS = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
SPLIT_SIZES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}  # solvable games of the published set
_GAME_FILE = "game.tw-pddl"
_VERSION = 1  # of the index file; another one is made anew


@dataclass(frozen=True, kw_only=True)
class GameEntry:
    """A line of a split's list."""

    id: str  # "<task folder>/<trial folder>"
    kind: str  # one of KINDS


@dataclass(frozen=True, kw_only=True)
class GameRecord:
    """All that is needed to play a game."""

    id: str
    kind: str
    task: str  # sentence without its full stop: "put a mug in desk"
    problem: str  # PDDL
    walkthrough: tuple[str, ...] | None  # commands that win, where the data have them
    wording: Wording


class AlfworldData:
    """The games under one folder; what it finds out about them it keeps in a file under `cache_dir`."""

    def __init__(self, root: str | Path | None = None, cache_dir: str | Path = ".cache/alfworld"):
        """
        Args:
            root: the folder of the data; None: what the environment variable ALFWORLD_DATA names.
            cache_dir: folder of the index, made when needed; where it cannot be written the data are read anew.

        Raises:
            EnvironmentFailure: there are no data there; says how to get them.
        """
        named = root if root is not None else os.environ.get("ALFWORLD_DATA")
        if not named:
            raise EnvironmentFailure(f"ALFWORLD_DATA is not set, so there are no published games. {_HOW_TO_GET}")
        self._root, self._cache = Path(named).absolute(), Path(cache_dir).absolute()
        self._trees = sorted(
            (path for path in self._root.glob("json_*") if path.is_dir()), key=lambda path: _newness(path.name)
        )
        self._packed = {name: path for name in SPLIT_SIZES if (path := self._root / f"{name}.jsonl.xz").is_file()}
        if not self.split_names():
            raise EnvironmentFailure(
                f"{self._root} holds no ALFWorld games (no json_2.1.1/train and the like). {_HOW_TO_GET}"
            )

    def split_names(self) -> tuple[str, ...]:
        """Those of train, valid_seen and valid_unseen that are there."""
        return tuple(
            name for name in SPLIT_SIZES if name in self._packed or any((tree / name).is_dir() for tree in self._trees)
        )

    def games(self, split: str) -> tuple[GameEntry, ...]:
        """The solvable games of a split, ordered by id; those with movable receptacles and with slices are left out.

        Warns if they are not as many as were published.

        Raises:
            EnvironmentFailure: the split is not there, or has no game.
        """
        self._check(split)
        if split in self._packed:
            found = {game: kind for game, kind in self._open(split).kinds.items() if kind in KINDS}
        else:
            found = _solvable(self._files(split), self._cache / f"index-{split}.json")
        if not found:
            raise EnvironmentFailure(f"{self._root} has no solvable game in {split}. {_HOW_TO_GET}")
        if len(found) != SPLIT_SIZES[split]:
            warnings.warn(
                f"ALFWorld's {split} has {len(found)} games under {self._root}, the published set has "
                f"{SPLIT_SIZES[split]}; results on it do not compare.",
                stacklevel=2,
            )
        return tuple(GameEntry(id=game, kind=found[game]) for game in sorted(found))

    def load(self, split: str, game: str) -> GameRecord:
        """One game by its id; reads no other.

        Raises:
            EnvironmentFailure: it is not there, or its file is damaged.
        """
        self._check(split)
        if split in self._packed:
            place: Path = self._packed[split]
            row = self._open(split).read(game)
            kind, task, wording = row["type"], row["task"], MODERN
        else:
            path = next((path for tree in self._trees if (path := tree / split / game / _GAME_FILE).is_file()), None)
            if path is None:
                raise EnvironmentFailure(
                    f"There is no {_GAME_FILE} of {split}/{game} under {self._root}. {_HOW_TO_GET}"
                )
            place, row, kind = path, _read_game(path), _kind(game)
            try:
                task, wording = read_grammar(row["grammar"])
            except EnvironmentFailure as err:
                raise EnvironmentFailure(f"{path}: {err}") from err
        try:
            task, walkthrough = one_line(task), walkthrough_of(row)
        except ValueError as err:
            raise EnvironmentFailure(f"{place} is damaged ({game}: {err}); {_ANEW}.") from err
        return GameRecord(
            id=game,
            kind=kind,
            task=task,
            problem=row["pddl_problem"],
            walkthrough=walkthrough,
            wording=wording,
        )

    def _check(self, split: str) -> None:
        if split not in self.split_names():
            raise EnvironmentFailure(
                f"{self._root} has no ALFWorld split {split!r}; it has: {', '.join(self.split_names())}. {_HOW_TO_GET}"
            )

    def _open(self, split: str) -> PackedSplit:
        return PackedSplit(self._packed[split], self._cache)

    def _files(self, split: str) -> dict[str, os.DirEntry[str]]:
        """Id -> game file, of the newest version of the data that has it."""
        found: dict[str, os.DirEntry[str]] = {}
        for tree in self._trees:
            for folder in _folders(tree / split):
                if "movable" in folder.name or "Sliced" in folder.name or _kind(folder.name) not in KINDS:
                    continue
                for trial in _folders(folder):
                    game = f"{folder.name}/{trial.name}"
                    if game not in found:
                        files = [entry for entry in os.scandir(trial) if entry.name == _GAME_FILE]
                        if files:
                            found[game] = files[0]
        return found


def _solvable(files: Mapping[str, os.DirEntry[str]], index: Path) -> dict[str, str]:
    """Id -> kind of the files that say "solvable": true; only those are read that changed since `index` was written."""
    known = _read_index(index)
    found: dict[str, list[Any]] = {}
    for game, entry in files.items():
        try:
            stat = entry.stat()
        except OSError as err:
            raise EnvironmentFailure(f"{entry.path} cannot be read ({err.strerror}); {_ANEW}.") from err
        stamp = [entry.path, stat.st_size, stat.st_mtime_ns]
        line = known.get(game, [])
        found[game] = line if line[:3] == stamp else [*stamp, _read_game(Path(entry.path)).get("solvable") is True]
    if found != known:
        _write(index, json.dumps({"version": _VERSION, "games": found}, separators=(",", ":")))
    return {game: _kind(game) for game, (*_, solvable) in found.items() if solvable}


def _read_index(index: Path) -> dict[str, list[Any]]:
    try:
        content = json.loads(index.read_text())
        return content["games"] if content["version"] == _VERSION else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}  # not written yet, or by another version: all is read anew


def _write(path: Path, text: str) -> None:
    """Whole or not at all; a folder that cannot be written costs only time."""
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text)
        os.replace(aside, path)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink()


def _read_game(path: Path) -> dict[str, Any]:
    try:
        return read_row(path.read_bytes(), ("grammar", "pddl_problem"))
    except OSError as err:
        raise EnvironmentFailure(f"{path} cannot be read ({err.strerror}); {_ANEW}.") from err
    except ValueError as err:
        raise EnvironmentFailure(f"{path} is damaged ({err}); {_ANEW}.") from err


def _folders(path: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    return [entry for entry in os.scandir(path) if entry.is_dir()] if os.path.isdir(path) else []


def _kind(game: str) -> str:
    """The task type, with which every folder's name begins."""
    return game.partition("-")[0]


def _newness(name: str) -> list[int]:
    """Sorts the newest version first."""
    return [-int(number) for number in re.findall(r"\d+", name)]


_ANEW = "run alfworld-download -f again"
_HOW_TO_GET = (
    "To get them: pip install alfworld && alfworld-download, and set ALFWORLD_DATA to the folder it fills (by default "
    "~/.cache/alfworld). Generated games need no data."
)
