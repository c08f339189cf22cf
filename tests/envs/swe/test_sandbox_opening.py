"""Whoever opens sandboxes looks at their walls first, and tries again where the machine is short of something."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sandboxes import SMALL, make_tree, needs_bubblewrap

from jaxmtrl.envs.swe import grade
from jaxmtrl.envs.swe.edits import ENVIRONMENT, SHOWN
from jaxmtrl.envs.swe.grade import TRIES, persist
from jaxmtrl.envs.swe.sandbox import bwrap, held, probes
from jaxmtrl.envs.swe.sandbox.api import Base
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
from jaxmtrl.envs.swe.sandbox.choice import choose
from jaxmtrl.errors import ConfigError, SandboxFailure

pytestmark = needs_bubblewrap()


def without(names: dict[str, int]):
    """bwrap's options but for some, each with so many values."""
    plain = bwrap.options

    def fewer(*arguments, **settings):
        given = plain(*arguments, **settings)
        for name, values in names.items():
            at = given.index(name)
            given = [*given[:at], *given[at + 1 + values :]]
        return given

    return fewer


@pytest.mark.parametrize(
    ("names", "told"),
    [({"--seccomp": 1}, "system calls are filtered (filter mode 0"), ({"--uid": 1}, "commands have no rights (")],
)
def test_a_sandbox_with_a_wall_missing_is_not_used(monkeypatch, names, told):
    monkeypatch.setattr(bwrap, "options", without(names))
    with pytest.raises(ConfigError) as caught:
        choose("auto")
    assert f"not so: {told}" in str(caught.value) and "do not train here" in str(caught.value)


def test_a_sandbox_whose_walls_hold_is_used():
    assert isinstance(choose("auto"), Bubblewrap)
    assert set(probes._WALLS) < set(probes._TESTS)


@pytest.mark.parametrize(("refused", "opens"), [(TRIES - 1, True), (TRIES, False)])
def test_no_process_to_be_had_for_opening_is_waited_for(monkeypatch, tmp_path: Path, refused: int, opens: bool):
    base, real = Base(tree=make_tree(tmp_path / "tree")), held.subprocess.Popen
    refusals, pauses = [BlockingIOError(11, "Resource temporarily unavailable")] * refused, []

    def refuse(*arguments, **options):
        if refusals:
            raise refusals.pop()
        return real(*arguments, **options)

    monkeypatch.setattr(held.subprocess, "Popen", refuse)
    monkeypatch.setattr(grade.time, "sleep", pauses.append)
    if opens:
        sandbox = persist(lambda _: Bubblewrap().open(base, SMALL))
        assert sandbox.run("echo fine").output == b"fine\n"
        sandbox.close()
    else:
        with pytest.raises(SandboxFailure, match="could not be made: .*temporarily unavailable"):
            persist(lambda _: Bubblewrap().open(base, SMALL))
    assert pauses == [0.2, 0.4]


def test_a_shown_program_runs_and_a_shown_file_does_not(tmp_path: Path):
    sandbox = Bubblewrap().open(Base(tree=make_tree(tmp_path / "tree")), SMALL)
    shown = {**SHOWN, "/run/plain": b"echo ran", "/testbed/tool": b"#!/bin/sh\necho ran\n"}
    try:
        said = sandbox.run(
            "printf '<<<<\nx = 1\n====\nx = 2\n>>>>\n' | timeout 9 edit a.py && cat a.py; which edit; ./tool; "
            "/run/plain; echo >> /run/swe/bin/edit; rm /run/swe/bin/edit",
            environment=ENVIRONMENT,
            shown=shown,
        ).output.decode()
        assert "\nx = 2\n/run/swe/bin/edit\nran\n" in said and said.count("ran") == 1
        assert said.count("Permission denied") + said.count("Read-only file system") + said.count("busy") == 3, said
        assert not os.access("/run/swe/bin/edit", os.F_OK)
    finally:
        sandbox.close()
