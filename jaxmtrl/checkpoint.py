"""What survives a crash: arrays by Orbax and the loop's position beside them, together or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from jaxmtrl.errors import CheckpointError


def _absolute(folder: Any) -> Any:
    """A bucket has no other address than its own."""
    return folder if "://" in str(folder) else folder.absolute()


class Checkpoints:
    """A folder of checkpoints, one a step; a write that was cut short is never taken for one."""

    def __init__(self, folder: Path, keep: int | None, *, read_only: bool = False):
        """
        Args:
            folder: made if missing.
            keep: newest checkpoints to keep; None keeps all.
            read_only: touch nothing, as another process may be writing; without it, writes that were cut short are
                cleared away.

        Raises:
            CheckpointError: the folder cannot be used.
        """
        self._folder = folder
        options = ocp.CheckpointManagerOptions(
            max_to_keep=None if read_only else keep,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=not read_only,
            create=not read_only,
            read_only=read_only,
        )
        with self._explained(f"{folder} cannot be used for checkpoints", "mend or remove it"):
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError("it is a file")
            self._manager = ocp.CheckpointManager(_absolute(folder), options=options)

    def save(self, step: int, arrays: Any, position: dict) -> None:
        """Writes a tree of arrays and a JSON-serialisable position; returns when both are on disk.

        Raises:
            CheckpointError: it could not be written; the ones before stand.
        """
        with self._explained(
            f"checkpoint {step} could not be written to {self._folder}",
            "make room or mend the rights, then the same command goes on from the one before",
        ):
            self._manager.save(
                step,
                args=ocp.args.Composite(arrays=ocp.args.StandardSave(arrays), position=ocp.args.JsonSave(position)),
                force=True,
            )
            self._manager.wait_until_finished()

    def latest(self) -> int | None:
        """The newest complete checkpoint's step."""
        return self._manager.latest_step()

    def steps(self) -> list[int]:
        """All complete checkpoints, oldest first."""
        return sorted(self._manager.all_steps())

    def position(self, step: int) -> dict:
        """The position saved with `step`. Raises CheckpointError if it cannot be read."""
        with self._reading(step):
            return self._manager.restore(step, args=ocp.args.Composite(position=ocp.args.JsonRestore()))["position"]

    def arrays(self, step: int, abstract: Any) -> Any:
        """The arrays saved with `step`, each born on the devices that `abstract` says.

        Args:
            abstract: the saved tree with `jax.ShapeDtypeStruct`s that carry shardings.

        Raises:
            CheckpointError: they cannot be read, or are not the arrays of such a tree.
        """
        with self._reading(step):
            restored = self._manager.restore(step, args=ocp.args.Composite(arrays=ocp.args.StandardRestore(abstract)))
            return restored["arrays"]

    def delete_after(self, step: int) -> None:
        """Drops checkpoints newer than `step`."""
        for later in [s for s in self._manager.all_steps() if s > step]:
            self._manager.delete(later)

    def close(self) -> None:
        """Frees Orbax's threads."""
        self._manager.close()

    def _reading(self, step: int) -> contextlib.AbstractContextManager[None]:
        older = [other for other in self.steps() if other < step]
        then = f"the run then goes on from {older[-1]}" if older else "the run then begins anew"
        return self._explained(
            f"checkpoint {step} in {self._folder} cannot be read", f"remove {self._folder / str(step)}; {then}"
        )

    @contextlib.contextmanager
    def _explained(self, what: str, next_move: str) -> Iterator[None]:
        """Whatever Orbax raises, of which there are many kinds, as one error for people."""
        try:
            yield
        except Exception as err:
            reason = next((line for line in str(err).splitlines() if line.strip()), "")[:200]
            if isinstance(err, ImportError):
                next_move = 'a bucket wants pip install -e ".[tpu]" -c constraints.txt'
            raise CheckpointError(f"{what} ({type(err).__name__}: {reason}); {next_move}.") from err


def abstract_of(tree: Any) -> Any:
    """Shapes, dtypes and shardings of a tree of device arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), tree)
