"""What tests of software tasks share: an environment with pytest, a workspace, and sandboxes that must be closed."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import shop
from sandboxes import digest, processes_of

from jaxmtrl.envs.swe.sandbox.api import Base, Limits, Sandbox
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap


class Watched:
    """Bubblewrap that remembers what it opened and on what; all that its commands start carries a mark."""

    def __init__(self):
        self._inner = Bubblewrap()
        self._mark = f"mark-{uuid.uuid4().hex}"
        self._before: dict[Path, str] = {}  # digests of the folders that workspaces were laid over
        self.opened: list[Sandbox] = []

    def open(self, base: Base, limits: Limits) -> Sandbox:
        for folder in (*([base.tree] if base.tree is not None else []), *base.layers):
            if folder not in self._before:
                self._before[folder] = digest(folder)
        sandbox = self._inner.open(base, limits)
        run = sandbox.run

        def marked(command, *, environment=None, **options):
            return run(command, environment={"MARK": self._mark, **(environment or {})}, **options)

        sandbox.run = marked
        self.opened.append(sandbox)
        return sandbox

    def left_open(self) -> list[Sandbox]:
        return [sandbox for sandbox in self.opened if sandbox._held.process.poll() is None]

    def processes(self) -> int:
        return processes_of(self._mark)

    def must_have_left_nothing(self) -> None:
        assert not self.left_open(), "sandboxes were not closed"
        assert self.processes() == 0, "processes outlived their sandbox"
        assert {folder: digest(folder) for folder in self._before} == self._before, "a base was written to"


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
    made.must_have_left_nothing()
