"""Containers: the command lines that podman and docker are given, and, where an engine works, the same facts."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandboxes import make_rootfs, make_tree

from jaxmtrl.envs.swe.sandbox import archive, engine, oci
from jaxmtrl.envs.swe.sandbox.api import Base, Limits
from jaxmtrl.envs.swe.sandbox.oci import Containers
from jaxmtrl.errors import SandboxFailure

# Stands in for the engine's program, where our knowledge of it ends: keeps every call, and answers from files.
_RECORDER = """#!{python}
import json, os, sys
folder = {folder!r}
given = sys.stdin.buffer.read() if "-" in sys.argv[2:3] else b""
with open(folder + "/calls", "a") as file:
    file.write(json.dumps([sys.argv[1:], len(given), sorted(os.environ)]) + "\\n")
for name in ("-".join(sys.argv[1:]).replace("/", "_"), sys.argv[1]):
    if os.path.exists(folder + "/" + name):
        sys.stdout.buffer.write(open(folder + "/" + name, "rb").read())
        break
code = folder + "/" + sys.argv[1] + ".code"
sys.exit(int(open(code).read()) if os.path.exists(code) else 0)
"""


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch) -> Path:
    folder = tmp_path / "answers"
    folder.mkdir()
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(_RECORDER.format(python=sys.executable, folder=str(folder)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setattr(oci, "_new_name", lambda: "episode")
    (folder / "inspect").write_text("true\n")
    return folder


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line)[0] for line in (folder / "calls").read_text().splitlines()]


def packed(files: dict[str, str], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"testbed/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(f"testbed/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def test_a_container_is_started_without_network_rights_or_our_environment(recorder: Path):
    Containers("podman").open(Base(tree=None, image="an/image:1", venv=Path("/my/venv")), Limits(processes=7)).close()
    assert [call[0] for call in calls(recorder)] == ["ps", "run", "exec", "kill", "rm"]
    run = calls(recorder)[1]
    for option in (
        "--detach",
        "--network=none",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--pids-limit=7",
        f"--memory={3 << 30}",
        f"--ulimit=fsize={256 << 20}:{256 << 20}",
        "--volume=/my/venv:/opt/venv:ro",
        f"--label=jaxmtrl.owner={engine.owner()}",
    ):
        assert option in run
    assert run[run.index("an/image:1") - 1] == "--entrypoint=sh" and "--privileged" not in run
    for line in (recorder / "calls").read_text().splitlines():
        assert "HF_TOKEN" not in json.loads(line)[2]


def test_a_command_goes_in_as_a_file_and_has_its_time_inside(recorder: Path):
    sandbox = Containers("podman").open(Base(tree=None, image="i"), Limits())
    (recorder / "exec").write_text("said\n")
    (recorder / "exec.code").write_text("3")
    result = sandbox.run("x" * 300_000, wall_s=7, environment={"A": "b"}, reports=["/run/r"])
    assert (result.exit_code, result.output, result.why) == (3, b"said\n", "")
    copy, run = calls(recorder)[3:5]
    assert copy == ["cp", "-", "episode:/"]
    assert run[0] == "exec" and "--env=A=b" in run and run[-2:] == ["/run/jaxmtrl-command", "7.000"]
    assert 'timeout -s KILL "$1" bash "$0"' in run[-3] and "kill -KILL -1" in run[-3]
    assert max(map(len, run)) < 1000
    (recorder / "inspect").write_text("false\n")
    with pytest.raises(SandboxFailure, match="has ended"):
        sandbox.run("true")


def test_an_images_history_is_replaced_by_one_commit(recorder: Path, tmp_path: Path):
    """The script that the container is given, run for real on a repository whose next commit is the repair."""
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)

    def git(*arguments: str) -> str:
        options = ["-c", "user.name=x", "-c", "user.email=x", "-c", "init.defaultBranch=main"]
        return subprocess.run(["git", *options, *arguments], cwd=work, capture_output=True, text=True).stdout

    git("init", "-q")
    (work / "folder/a").write_text("fault")
    git("add", "-A"), git("commit", "-qm", "fault")
    (work / "folder/a").write_text("repair")
    git("commit", "-qam", "repair"), git("checkout", "-q", "HEAD^")
    assert git("show", "main:folder/a") == "repair"
    Containers("podman").open(Base(tree=None, image="i"), Limits()).close()
    (script,) = [call[-1] for call in calls(recorder) if call[0] == "exec"]
    subprocess.run(["sh", "-c", script.replace("/testbed", str(work))], check=True)
    assert git("log", "--all", "--format=%s") == "base\n" and git("status", "--porcelain") == ""
    assert git("show", "HEAD:folder/a") == "fault" and git("fsck", "--lost-found") == ""
    programs = tmp_path / "programs"  # without git
    programs.mkdir()
    (programs / "rm").symlink_to(str(shutil.which("rm")))
    command = [str(shutil.which("sh")), "-c", script.replace("/testbed", str(work))]
    subprocess.run(command, env={"PATH": str(programs)}, check=True)
    assert not (work / ".git").exists()


def test_only_containers_of_dead_trainers_are_removed(recorder: Path):
    host, boot, pid, began = engine.owner().split("|")
    owners = {
        "living": engine.owner(),
        "dead": f"{host}|{boot}|{pid}|1",  # the number was given again
        "rebooted": f"{host}|other|{pid}|{began}",
        "elsewhere": f"other|{boot}|{pid}|1",
        "strange": "?",
    }
    (recorder / "ps").write_text("\n".join(owners) + "\n")
    template = '--format={{index .Config.Labels "jaxmtrl.owner"}}'
    for name, owner in owners.items():
        (recorder / f"inspect-{template}-{name}").write_text(owner + "\n")
    assert engine.reap(engine.Engine("podman")) == 2
    assert [call[-1] for call in calls(recorder) if call[0] == "rm"] == ["dead", "rebooted"]


def test_changes_are_what_two_archives_differ_in(recorder: Path):
    (recorder / "cp").write_bytes(packed({"a": "1", "same": "s", "gone": "g"}, {"link": "a"}))
    sandbox = Containers("podman").open(Base(tree=None, image="i"), Limits())
    assert sandbox.changes().files == () and sandbox.changes().dropped == ()
    now = packed({"a": "2", "same": "s", "new": "n", ".git/x": "", "../out": "x"}, {"link": "a", "evil": "/etc"})
    (recorder / "cp").write_bytes(now)
    changed = sandbox.changes()
    assert {file.path: file.content for file in changed.files} == {"a": b"2", "gone": None, "new": b"n"}
    assert changed.dropped == ("evil",)
    assert sandbox.changes(max_files=2).too_large and sandbox.changes(max_bytes=1).too_large
    (recorder / "cp").write_bytes(now[:700])
    with pytest.raises(SandboxFailure, match="could not be copied"):
        sandbox.changes()


def test_a_report_that_became_a_link_is_empty():
    assert archive.only_file(io.BytesIO(packed({}, {"r": "/etc/shadow"})), 100) == b""
    assert archive.only_file(io.BytesIO(packed({"r": "told"})), 2) == b"to"


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker client here to ask")
def test_docker_knows_all_of_our_options():
    lines = [
        oci.start_options("n", Base(tree=None, image="no/such:image", venv=Path("/v")), Limits()),
        ["exec", "--workdir=/testbed", "--env=A=b", "n", "true"],
        ["restart", "--time=0", "n"],
        ["rm", "--force", "--volumes", "n"],
        ["ps", "--all", "--quiet", f"--filter=label={engine.LABEL}"],
        ["info", "--format={{.Driver}}"],
    ]
    for line in lines:
        nowhere = {"PATH": os.environ["PATH"], "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
        done = subprocess.run(["docker", *line], env=nowhere, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert "unknown" not in said and "nonexistent" in said, (line, said)


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Iterator[str]:
    """An image of a handful of programs, in podman's store."""
    podman = engine.Engine("podman")
    name = "localhost/jaxmtrl-test:1"
    try:
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                tar.add(make_rootfs(tmp_path_factory.mktemp("image")), arcname=".")
            podman.do("import", "-", name, given=buffer.getvalue())
        podman.do("run", "--rm", "--network=none", "--ulimit=nofile=1024:1024", name, "bash", "-c", "exit 0")
        yield name
    except SandboxFailure as err:
        pytest.skip(f"NO CONTAINER WAS TESTED: {err}")
    finally:
        if shutil.which("podman"):
            podman.do("rmi", "--force", name, check=False)  # with what was made of it


@pytest.mark.sandbox
def test_a_real_container_keeps_the_same_promises(image: str):
    backend = Containers("podman")
    sandbox = backend.open(Base(tree=None, image=image), Limits(output_kept=600, output_killed=1 << 20))
    try:
        assert sandbox.run("pwd; cat a.py; rm a.py; echo new > new.py").output == b"/testbed\nx = 1\n"
        assert sandbox.run("echo begun; sleep 100", wall_s=1).why == "timeout"
        left = sandbox.run("(sleep 300 &) ; exit 3")
        assert left.exit_code == 3 and left.wall_s < 5
        assert b"sleep\x00300" not in sandbox.run("cat /proc/[0-9]*/cmdline").output
        assert sandbox.run("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done").why == "output_flood"
        shown = sandbox.run("cat t/t; echo told > /run/r", shown={"/testbed/t/t": b"shown\n"}, reports=["/run/r"])
        assert shown.output == b"shown\n" and sandbox.report("/run/r") == b"told\n"
        changed = {file.path: file.content for file in sandbox.changes().files}
        assert changed == {"a.py": None, "new.py": b"new\n"}
    finally:
        sandbox.close()
    assert engine.reap(backend.engine) == 0


@pytest.mark.sandbox
def test_a_tree_is_copied_into_a_real_container(image: str, tmp_path: Path):
    tree = make_tree(tmp_path / "tree", {"other.py": "o = 1\n"})
    sandbox = Containers("podman").open(Base(tree=tree, image=image), Limits())
    try:
        sandbox.run("echo x > other.py")
        assert {file.path for file in sandbox.changes().files} >= {"other.py"}
    finally:
        sandbox.close()
