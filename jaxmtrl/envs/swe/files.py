"""Files that are there whole or not at all, and folders that take them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from jaxmtrl.errors import ConfigError


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is there whole or not at all, whoever else writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        os.fchmod(descriptor, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except BaseException as err:
        os.unlink(partial)
        if isinstance(err, OSError):
            err.filename = str(path)  # a full disk is told without a name
        raise


def must_take_files(folder: Path, option: str) -> None:
    """Makes a folder and tries to write to it, before hours of work that would end there.

    Raises:
        ConfigError: it cannot be done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as err:  # ValueError: a path that no system has
        words = f"{option} {folder}: {getattr(err, 'strerror', None) or err}; name a folder that can be written to"
        raise ConfigError(option, [words]) from err
