"""The run folder: whose it is, and where everything of a run lies.

runs/<name>/config.yaml       the resolved config; another config is refused
            tokenizer/        the tokenizer of the run
            metrics.jsonl, tensorboard/, episodes.jsonl
            checkpoints/      position to resume from; the newest few
            stages/           the policy at the end of each stage, for evaluation and as KL reference
            result.json       success of every policy on every split
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any, TextIO

from etils import epath

from jaxmtrl.config.loading import config_to_dict, differing_fields, save_config
from jaxmtrl.config.sections import Config
from jaxmtrl.config.yaml_format import YamlError, read_yaml
from jaxmtrl.errors import ResumeError

CONFIG_FILE = "config.yaml"
RESULT_FILE = "result.json"
LOCK_FILE = ".lock"
# Fields that change what a person sees or how fast it goes, never what is learnt; a resumed run may change them.
_FREE_FIELDS = (
    "run.dir",
    "run.compilation_cache",
    "run.timeline",
    "log.",
    "rollout.workers",
    "rollout.backend",
    "rollout.ray_address",
    "rollout.ray_cpus",
    "checkpoint.keep",
    "checkpoint.folder",
    "judge.cache",
    "judge.deadline_s",
    "judge.retries",
    "judge.api_key_env",
)


_KEPT = ("checkpoints", "stages")  # what lies in checkpoint.folder


class RunFolder:
    """Paths of one run, and the check that a config may go on with it."""

    def __init__(self, path: Path, lock: TextIO | None = None, kept: Path | None = None):
        """
        Args:
            kept: where checkpoints and the stages' ends lie; None for `path`.
        """
        self.path = path
        self._lock = lock  # held as long as this object; the kernel lets go when the process ends, however it ends
        self.tokenizer = path / "tokenizer"
        self.checkpoints = (kept or path) / "checkpoints"
        self.stages = (kept or path) / "stages"

    @classmethod
    def open(cls, config: Config, host: int = 0) -> RunFolder:
        """The folder of `config.run`, made if it is new; this process's alone until it is closed.

        Processes of one run have a folder each for what they write by themselves, those after the first below the
        first one's (hosts/1, …), and share its checkpoints.

        A folder in which nothing has been learnt yet may be taken over by another config: a first try often fails on
        something that another value mends.

        Raises:
            ResumeError: the folder belongs to another config (all fields that differ are named), to a process that is
                running, or is no run folder.
        """
        first = Path(config.run.dir) / config.run.name
        path = first / "hosts" / str(host) if host else first
        stored = path / CONFIG_FILE
        if not stored.exists() and path.exists() and any(not child.name.startswith(".") for child in path.iterdir()):
            raise ResumeError(f"{path} is not empty and holds no {CONFIG_FILE}; choose another run.name or remove it.")
        new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
        try:
            differences = _differences(stored, config) if stored.exists() else []
            if differences and _holds_work(path):
                raise ResumeError(
                    f"{path} was begun with another config; it differs in:\n"
                    + "\n".join(f"  - {difference}" for difference in differences)
                    + "\nResume with the old values, choose another run.name, or remove the folder."
                )
            kept = kept_at(config, first)
            if not host:
                _check_kept(config, path, kept, stored)
            if not host and kept != path:
                _make_kept(kept)
            if differences:
                _empty(path)
            if differences and kept == path:
                _empty_kept(kept)
            save_config(config, stored)
            if not host and kept != path:
                (kept / CONFIG_FILE).write_text(stored.read_text(encoding="utf-8"))
        except BaseException:
            lock.close()
            if new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path, lock, kept)

    @property
    def holds_work(self) -> bool:
        """Whether anything has been learnt in it."""
        return _holds_work(self.path)

    def close(self) -> None:
        """Lets other processes have the folder."""
        if self._lock is not None:
            self._lock.close()

    def write_result(self, result: dict[str, Any]) -> Path:
        """Writes result.json; the file is either the old one or the whole new one."""
        return write_json(self.path / RESULT_FILE, result)


def kept_at(config: Config, path: Path) -> Any:
    """Where a run in `path` keeps its checkpoints; a path of epath's where that may be a bucket."""
    return epath.Path(config.checkpoint.folder) if config.checkpoint.folder else path


def _make_kept(kept: Path) -> None:
    """The folder for checkpoints, if it can be made. Raises ResumeError."""
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise ResumeError(
            f"checkpoint.folder {kept} cannot be made: {err.strerror or err}; choose another, or mend the rights."
        ) from err


def _lock(path: Path) -> TextIO:
    """Holds the folder for this process. A second trainer would write over the first one's records."""
    lock = open(path / LOCK_FILE, "a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read().strip() or "another process"
        lock.close()
        raise ResumeError(f"{path} is being trained by {owner}; wait for it, or choose another run.name.") from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()}\n")
    lock.flush()
    return lock


def _differences(stored: Any, config: Config) -> list[str]:
    """Fields that matter and are not as the run was begun with."""
    try:
        before, _ = read_yaml(stored.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YamlError) as err:
        raise ResumeError(f"{stored} cannot be read ({err}); put it back, or remove the folder.") from err
    if not isinstance(before, dict):
        raise ResumeError(f"{stored} holds no config any more; put it back, or remove the folder.")
    # Through JSON, so that a tuple in memory and a list in the file are the same thing.
    given = json.loads(json.dumps(config_to_dict(config)))
    defaults = json.loads(json.dumps(config_to_dict(Config(run=config.run, env=config.env))))
    return [d for d in differing_fields(_filled(before, defaults), given) if not d.startswith(_FREE_FIELDS)]


def _filled(stored: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """A config as it was stored, with the defaults of fields that there were not yet when it was."""
    filled = dict(stored)
    for name, default in defaults.items():
        if name not in filled:
            filled[name] = default
        elif isinstance(default, dict) and isinstance(filled[name], dict):
            filled[name] = _filled(filled[name], default)
    return filled


def _holds_work(path: Any) -> bool:
    """Whether a step was taken, by any trace of it: records may have been removed from a run that was trained."""
    metrics = path / "metrics.jsonl"
    if (path / RESULT_FILE).exists() or (metrics.exists() and (not metrics.is_file() or metrics.stat().st_size > 0)):
        return True
    try:
        positions = [json.loads(file.read_text("utf-8")) for file in path.glob("checkpoints/*/position/metadata")]
        return any(position["step"] != 0 for position in positions)
    except (OSError, ValueError, KeyError, TypeError):  # what cannot be read may be work
        return True


def _empty(path: Path) -> None:
    """Removes what a run that has learnt nothing left: a tokenizer, empty records."""
    for name in ("tokenizer", "tensorboard", "hosts"):
        shutil.rmtree(path / name, ignore_errors=True)
    for name in ("metrics.jsonl", "episodes.jsonl", RESULT_FILE):
        (path / name).unlink(missing_ok=True)


def _empty_kept(kept: Any) -> None:
    """Removes what such a run kept: an untrained policy."""
    for name in _KEPT:
        if (epath.Path(kept) / name).exists():
            (epath.Path(kept) / name).rmtree()


def _check_kept(config: Config, path: Path, kept: Any, stored: Path) -> None:
    """Raises ResumeError if checkpoints elsewhere are another run's, or if this run's are not where it looks now.

    A host that was made anew has an empty disk and an old bucket, so the bucket says whose it is as well.
    """
    field = f"checkpoint.folder ({kept})"
    begun = any((epath.Path(kept) / "checkpoints").glob("*/position/metadata"))
    if kept != path:
        owner = kept / CONFIG_FILE
        differences = _differences(owner, config) if owner.exists() else []
        if not owner.exists() and any((kept / name).exists() for name in _KEPT):
            raise ResumeError(f"{field} holds checkpoints and does not say whose ({CONFIG_FILE}); name another folder.")
        if differences and _holds_work(epath.Path(kept)):
            raise ResumeError(
                f"{field} holds the checkpoints of another run; its config differs in:\n"
                + "\n".join(f"  - {difference}" for difference in differences)
                + "\nName another folder, or go on with that run."
            )
        if differences:
            _empty_kept(kept)
    moved = stored.exists() and _folder_of(stored) != config.checkpoint.folder
    if _holds_work(path) and not begun and (moved or kept != path):
        raise ResumeError(
            f"{path} has records of a run, and {field} no checkpoint to go on from; set checkpoint.folder back"
            f"{f' to {_folder_of(stored)!r}' if stored.exists() else ''}, or move checkpoints and stages there."
        )


def _folder_of(stored: Path) -> str:
    """`checkpoint.folder` of a stored config."""
    content, _ = read_yaml(stored.read_text(encoding="utf-8"))
    return content.get("checkpoint", {}).get("folder", "") if isinstance(content, dict) else ""


def write_json(path: Path, content: Any) -> Path:
    """Writes indented JSON at once or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return path
