"""What tests of software tasks share: an environment with pytest, a workspace, and sandboxes that leave nothing."""

from __future__ import annotations

import pytest
import shop
from plain_sandbox import PlainBackend


@pytest.fixture(scope="session")
def venv(tmp_path_factory):
    return shop.make_venv(tmp_path_factory.mktemp("venv") / "venv")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, venv):
    """The shop as a policy meets it: its tests are hidden."""
    return shop.prepared(tmp_path_factory.mktemp("shop") / "tree", venv)


@pytest.fixture
def backend():
    made = PlainBackend()
    yield made
    assert all(sandbox.closed for sandbox in made.opened)
