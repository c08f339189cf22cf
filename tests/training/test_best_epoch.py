"""Which of SFT's epochs is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxmtrl.stages import Position
from jaxmtrl.training import Trainer


def after_epochs(*losses: float, validation: int = 1) -> Any:
    """A trainer that has validated after epochs 1, 2, …, whose parameters are those numbers."""
    left = iter(losses)
    learner = SimpleNamespace(sft_loss=lambda params, batch: next(left))
    parts = SimpleNamespace(put=lambda episodes, capacity: (None, 1.0), learner=learner)
    trainer: Any = SimpleNamespace(parts=parts, position=Position(), _best=None)
    for epoch in range(1, len(losses) + 1):
        trainer.state = SimpleNamespace(params={"weight": np.array([epoch])})
        Trainer._validate(trainer, [None] * validation, epoch)  # pyright: ignore[reportArgumentType]
    return trainer


@pytest.mark.parametrize(("losses", "best"), [((0.5, 0.3, 0.4), 2), ((0.3, 0.3), 1), ((0.3, 0.2, 0.1), 3)])
def test_the_epoch_of_the_least_validation_loss_is_kept(losses, best):
    trainer = after_epochs(*losses)
    assert trainer._best["weight"] == best
    assert (trainer.position.best_epoch, trainer.position.best_loss) == (best, min(losses))


def test_without_validation_the_last_epoch_is_kept():
    trainer = after_epochs(0.1, 0.2, 0.3, validation=0)
    assert trainer._best["weight"] == 3 and trainer.position.best_loss is None
