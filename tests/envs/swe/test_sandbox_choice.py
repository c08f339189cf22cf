"""Which backend is taken, what is said where none is; nothing runs unprotected unless somebody asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandboxes import make_tree

from jaxmtrl.diagnosis.environment import check_needs
from jaxmtrl.envs.probe import Probe
from jaxmtrl.envs.swe.sandbox import advice, bwrap, choice, seccomp
from jaxmtrl.envs.swe.sandbox.api import Base, Limits
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
from jaxmtrl.envs.swe.sandbox.choice import choose
from jaxmtrl.envs.swe.sandbox.local import Local
from jaxmtrl.envs.swe.sandbox.oci import Containers
from jaxmtrl.errors import ConfigError, SandboxFailure


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    bwrap.find_tools.cache_clear()
    yield
    bwrap.find_tools.cache_clear()


def test_without_any_backend_all_of_them_say_what_they_lack(nothing_installed):
    with pytest.raises(ConfigError) as caught:
        choose("auto")
    text = str(caught.value)
    assert "bwrap: bubblewrap is not installed; install it: apt-get install bubblewrap" in text
    assert "never run unprotected" in text
    with pytest.raises(ConfigError) as caught:
        choose("auto", images=True)
    assert "podman: podman is not installed" in str(caught.value) and "docker: docker is not" in str(caught.value)


@pytest.mark.parametrize("name", ["bwrap", "podman", "docker"])
def test_a_backend_that_was_named_is_not_replaced(nothing_installed, name: str):
    with pytest.raises(ConfigError, match=f"{name}.* is not installed"):
        choose(name, unsafe=True)


def test_unprotected_is_only_what_was_asked_for_twice(nothing_installed):
    with pytest.raises(ConfigError, match="unsafe: true"):
        choose("local")
    assert isinstance(choose("local", unsafe=True), Local)


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="auto, bwrap, podman, docker, local, got 'gvisor'"):
        choose("gvisor")


def test_the_first_that_works_is_taken(monkeypatch):
    monkeypatch.setattr(choice, "_lack", lambda name: None if name in ("bwrap", "docker") else "not there.")
    assert isinstance(choose("auto"), Bubblewrap)
    found = choose("auto", images=True)
    assert isinstance(found, Containers) and found.name == "docker"


@pytest.mark.parametrize(
    ("help_text", "why"),
    [("--args", "no --perms"), ("--perms --json-status-fd", ""), ("--perms --json-status-fd --disable-userns", "")],
)
def test_old_versions_of_bubblewrap_are_known(monkeypatch, tmp_path: Path, help_text: str, why: str):
    for name in ("bwrap", "nsenter", "prlimit", "setpriv"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{help_text}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if why:
        with pytest.raises(SandboxFailure, match=why):
            bwrap.find_tools.__wrapped__()
    else:
        assert bwrap.find_tools.__wrapped__().disable_userns == ("--disable-userns" in help_text)


@pytest.mark.parametrize(
    ("setting", "value", "cure"),
    [
        ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces="),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "apparmor_restrict_unprivileged_userns=0"),
    ],
)
def test_the_cure_fits_the_kernels_settings(monkeypatch, setting: str, value: str, cure: str):
    monkeypatch.setattr(advice, "_setting", lambda name: value if name == setting else "")
    monkeypatch.setattr(advice.os, "geteuid", lambda: 1000)
    assert cure in advice.cannot_open("bwrap: setting up uid map: Permission denied")


def test_in_a_container_the_cure_is_the_containers(monkeypatch):
    monkeypatch.setattr(advice, "_setting", lambda name: "")
    monkeypatch.setattr(advice, "in_container", lambda: True)
    assert "--privileged" in advice.cannot_open("unshare a user and a mount namespace: Operation not permitted")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_program_of_jumps_that_end(monkeypatch, machine: str):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: machine)
    code = seccomp.program()
    lines = [seccomp.struct.unpack("=HBBI", code[place : place + 8]) for place in range(0, len(code), 8)]
    assert len(code) % 8 == 0 and len(lines) < 256
    for place, (operation, if_so, if_not, _) in enumerate(lines):
        if operation & 7 == 5:  # a jump
            assert place + 1 + max(if_so, if_not) < len(lines)
    assert lines[-1] == (6, 0, 0, 0x7FFF0000)  # what nothing forbids is allowed


def test_the_doctor_tells_what_an_environment_needs():
    class Needs:
        def probes(self):
            return [Probe(name="the net is off", passed=False, found="eth0", cure="pull the plug")]

    (finding,) = check_needs(Needs())  # pyright: ignore
    assert (finding.name, finding.passed, finding.said, finding.cure) == (
        "the net is off",
        False,
        "eth0",
        "pull the plug",
    )
    assert check_needs(object()) == []  # pyright: ignore


def test_without_a_sandbox_the_same_is_played_in_a_copy(tmp_path: Path):
    tree = make_tree(tmp_path / "tree")
    sandbox = Local().open(Base(tree=tree), Limits(output_kept=200))
    try:
        result = sandbox.run("pwd; echo $HF_TOKEN; echo new > /testbed/new; rm a.py; exit 3", reports=["/run/r"])
        assert (result.exit_code, result.output.endswith(b"/testbed\n\n")) == (3, True)
        assert sandbox.run("sleep 100 & sleep 100", wall_s=0.3).why == "timeout"
        assert sandbox.run("cat tests/t.py", shown={"/testbed/tests/t.py": b"shown\n"}).output == b"shown\n"
        changed = {file.path: file.content for file in sandbox.changes().files}
        assert changed == {"a.py": None, "new": b"new\n"}
    finally:
        sandbox.close()
    assert (tree / "a.py").exists() and not [probe for probe in Local().probe() if probe.passed]
