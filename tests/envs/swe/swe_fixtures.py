"""What tests of software tasks share: an environment with pytest, a workspace, and sandboxes that must be closed."""

from __future__ import annotations

import pytest
import shop

from jaxmtrl.envs.swe.sandbox.api import Base, Limits, Sandbox
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap


class Watched:
    """Bubblewrap that remembers what it opened."""

    def __init__(self):
        self._inner = Bubblewrap()
        self.opened: list[Sandbox] = []

    def open(self, base: Base, limits: Limits) -> Sandbox:
        self.opened.append(self._inner.open(base, limits))
        return self.opened[-1]

    def left_open(self) -> list[Sandbox]:
        return [sandbox for sandbox in self.opened if sandbox._held.process.poll() is None]


@pytest.fixture(scope="session")
def venv(tmp_path_factory):
    return shop.make_venv(tmp_path_factory.mktemp("venv") / "venv")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, venv):
    """The shop as a policy meets it: its tests are hidden."""
    return shop.prepared(tmp_path_factory.mktemp("shop") / "tree", venv)


@pytest.fixture
def backend():
    made = Watched()
    yield made
    assert not made.left_open()
