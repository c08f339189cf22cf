"""Tests whose outcome is known beforehand, some of which must fail: a run that lies about them lies about others."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

_COUNT = 6
_OUTCOMES = {True: "passed", False: "failed"}


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A file of such tests."""

    path: str  # within the workspace, beside a file of real ones
    content: bytes
    outcomes: Mapping[str, str]  # by test id


def make_canary(beside: str, draw: random.Random | None = None) -> Canary:
    """A fresh one. Names are drawn anew each time, so that no code knows them beforehand.

    Args:
        beside: path of a file of real tests.
        draw: where the names come from; None takes what nobody can foresee.
    """
    draw = draw or random.SystemRandom()
    folder = PurePosixPath(beside).parent
    path = str(folder / f"test_{draw.getrandbits(40):010x}.py")
    failing = set(draw.sample(range(_COUNT), draw.randint(1, _COUNT - 1)))
    functions, outcomes = [], {}
    for number in range(_COUNT):
        name = f"test_{draw.getrandbits(40):010x}"
        left, right = draw.randrange(1000), draw.randrange(1000)
        total = left + right + (draw.randint(1, 9) if number in failing else 0)
        functions.append(f"def {name}():\n    assert {left} + {right} == {total}\n")
        outcomes[f"{path}::{name}"] = _OUTCOMES[number not in failing]
    return Canary(path=path, content="\n\n".join(functions).encode(), outcomes=outcomes)
