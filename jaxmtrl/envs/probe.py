"""What an environment needs of the machine that it runs on, tried there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One thing that must hold, and whether it does."""

    name: str  # what holds if it passed, for example "the network is off"
    passed: bool
    found: str  # what was seen, in a few words
    cure: str = ""  # what to do where it failed
