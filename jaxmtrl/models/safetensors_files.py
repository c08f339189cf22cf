"""The safetensors files of a model folder, one or many, read by slices and written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (teaches numpy the name bfloat16, in which most models are published)
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxmtrl.errors import ModelFolderError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SAMPLE = 4096  # bytes of a tensor, at either end
_LARGEST_HEADER = 100_000_000  # bytes, the limit of the format


class SafetensorsFiles:
    """Names, shapes and slices of all tensors of a folder.

    Raises:
        ModelFolderError: there are no such files, one is missing or cut short, or only pickled weights lie there.
    """

    def __init__(self, folder: Path):
        self._opened: dict[str, Any] = {}  # tensor name -> open file that holds it
        for path in _files(folder):
            try:
                opened = safe_open(path, "numpy")
            except (SafetensorError, OSError) as err:
                raise ModelFolderError(
                    f"{path} cannot be read as safetensors ({err}); it was cut short or is something else. Remove it "
                    "and fetch it again."
                ) from err
            self._opened |= dict.fromkeys(opened.keys(), opened)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._opened)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return tuple(self._opened[name].get_slice(name).get_shape())

    def slice(self, name: str, cuts: tuple[slice, ...]) -> np.ndarray:
        """A part of one tensor; the rest of it is not read."""
        return self._opened[name].get_slice(name)[cuts]


def _files(folder: Path) -> list[Path]:
    index, single = folder / INDEX, folder / SINGLE
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as err:
            raise ModelFolderError(f"{index} is no index of safetensors files ({err!r}); fetch it again.") from err
        missing = [name for name in names if not (folder / name).exists()]
        if missing:
            raise ModelFolderError(f"{folder} lacks {', '.join(missing)}, which its {INDEX} names; fetch them again.")
        return [folder / name for name in names]
    if single.exists():
        return [single]
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise ModelFolderError(
            f"{folder} has its weights as pickles only ({', '.join(pickled)}), which may run any code when they are "
            "read. Use a folder with safetensors, or convert it: transformers' save_pretrained writes them."
        )
    raise ModelFolderError(f"{folder} has no weights: neither {SINGLE} nor {INDEX}.")


def fingerprint(folder: Path) -> str:
    """What tells one folder's weights from another's: a digest of names, shapes, and both ends of every tensor.

    Not of every byte, which takes minutes for a large model; two trainings of one model differ at the ends of whatever
    they have trained.

    Raises:
        ModelFolderError: as of `SafetensorsFiles`, or a file ends before its tensors do.
    """
    digest = hashlib.sha256()
    for path in _files(folder):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = file.read(min(size, _LARGEST_HEADER))
            digest.update(header)
            try:
                spans = [entry["data_offsets"] for name, entry in json.loads(header).items() if name != "__metadata__"]
            except (ValueError, KeyError, TypeError, AttributeError) as err:
                raise ModelFolderError(f"{path} has no header of safetensors ({err!r}); fetch it again.") from err
            for first, last in sorted(spans):
                for at in (first, max(first, last - _SAMPLE)):
                    file.seek(8 + size + at)
                    sample = file.read(min(_SAMPLE, last - first))
                    if len(sample) < min(_SAMPLE, last - first):
                        raise ModelFolderError(f"{path} was cut short; remove it and fetch it again.")
                    digest.update(sample)
    return digest.hexdigest()


def write_one(path: Path, tensors: Iterator[tuple[str, np.ndarray]]) -> None:
    """Writes named tensors into one file, all held at once."""
    save_file(dict(tensors), path, metadata={"format": "pt"})
    path.chmod(0o644)  # the library leaves it to its owner alone


def write(folder: Path, tensors: Iterator[tuple[str, np.ndarray]], *, shard_bytes: int) -> None:
    """Writes named tensors into one file, or several with an index where they outgrow `shard_bytes`.

    Holds no more than one file's tensors at a time. `folder` should be a fresh one: nothing is cleaned up on failure.
    """
    shards: list[list[str]] = []
    pending: dict[str, np.ndarray] = {}
    total = 0

    def flush() -> None:
        write_one(folder / f"part-{len(shards)}", iter(pending.items()))
        shards.append(list(pending))
        pending.clear()

    for name, array in tensors:
        if pending and sum(held.nbytes for held in pending.values()) + array.nbytes > shard_bytes:
            flush()
        pending[name] = array
        total += array.nbytes
    flush()
    if len(shards) == 1:
        (folder / "part-0").rename(folder / SINGLE)
        return
    weight_map = {}
    for number, names in enumerate(shards):
        final = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"part-{number}").rename(folder / final)
        weight_map |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
