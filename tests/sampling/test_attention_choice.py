"""A kernel is used where it gives XLA's numbers in less time, and nowhere else."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tiny

from jaxmtrl.sampling.attention_choice import choose, choose_attention

NUMBERS = np.linspace(-1.0, 1.0, 5)


def taking(seconds: float, numbers: np.ndarray = NUMBERS):
    """A call that lasts so long."""

    def run() -> np.ndarray:
        time.sleep(seconds)
        return numbers

    return run


def refusing() -> np.ndarray:
    raise RuntimeError("Mosaic: unsupported shape\nmore lines")


USUAL = ("xla", taking(0.02))


def test_the_faster_of_equals_is_kept():
    chosen = choose(USUAL, {"quick": taking(0.002), "slow": taking(0.04)})
    assert chosen.name == "quick"
    assert chosen.why.startswith("quick (quick ") and "slow 0." in chosen.why


@pytest.mark.parametrize("offset", [0.1, np.nan])
def test_other_numbers_are_never_kept_however_fast(offset):
    chosen = choose(USUAL, {"wrong": taking(0.0, NUMBERS + offset)})
    assert chosen.name == "xla" and "wrong differs by" in chosen.why


def test_what_does_not_run_is_passed_over_and_named():
    chosen = choose(USUAL, {"broken": refusing, "slow": taking(0.03)})
    assert chosen.name == "xla"
    assert "broken does not run: Mosaic: unsupported shape;" in chosen.why


def test_a_cpu_has_nothing_to_choose():
    network = tiny.network()
    assert choose_attention(network.config, tiny.SAMPLING, tiny.one_device()) == (None, "")
