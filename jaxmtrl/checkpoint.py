"""What survives a crash: arrays by Orbax and the loop's position beside them, together or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp


class Checkpoints:
    """A folder of checkpoints, one a step; a write that was cut short is never taken for one."""

    def __init__(self, folder: Path, keep: int | None):
        """
        Args:
            folder: made if missing.
            keep: newest checkpoints to keep; None keeps all.
        """
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, step: int, arrays: Any, position: dict) -> None:
        """Writes a tree of arrays and a JSON-serialisable position; returns when both are on disk."""
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
        """The position saved with `step`."""
        return self._manager.restore(step, args=ocp.args.Composite(position=ocp.args.JsonRestore()))["position"]

    def arrays(self, step: int, abstract: Any) -> Any:
        """The arrays saved with `step`, each born on the devices that `abstract` says.

        Args:
            abstract: the saved tree with `jax.ShapeDtypeStruct`s that carry shardings.
        """
        return self._manager.restore(step, args=ocp.args.Composite(arrays=ocp.args.StandardRestore(abstract)))["arrays"]

    def delete_after(self, step: int) -> None:
        """Drops checkpoints newer than `step`."""
        for later in [s for s in self._manager.all_steps() if s > step]:
            self._manager.delete(later)

    def close(self) -> None:
        """Frees Orbax's threads."""
        self._manager.close()


def abstract_of(tree: Any) -> Any:
    """Shapes, dtypes and shardings of a tree of device arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), tree)
