"""Episodes among others: many at once, of trainers that are killed, of users that are not root, of none that remain."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandboxes import MIB, SMALL, Episode, digest, is_alive, make_tree, needs_bubblewrap, processes_of

import jaxmtrl
from jaxmtrl.envs.swe.sandbox import doctor
from jaxmtrl.envs.swe.sandbox.api import Base, Limits
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
from jaxmtrl.errors import SandboxFailure

pytestmark = needs_bubblewrap()


def shared_memory() -> int:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Shmem:"))
    return int(line.split()[1]) << 10


def until(holds, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


_TRAINER = """
import sys, threading, time
from pathlib import Path
from jaxmtrl.envs.swe.sandbox.api import Base, Limits
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
sandbox = Bubblewrap().open(Base(tree=Path(sys.argv[1])), Limits())
sandbox.run("head -c 240000000 /dev/zero > fill")
print(sandbox._held.process.pid, flush=True)
sandbox.run("(setsid sleep 301 &); trap '' TERM HUP INT; sleep 300", environment={"MARK": sys.argv[2]})
"""


def test_a_killed_trainer_leaves_no_process_and_no_byte(tmp_path: Path) -> None:
    tree, mark = make_tree(tmp_path / "tree"), f"mark-{tmp_path}"
    before = digest(tree)
    trainer = subprocess.Popen(
        [sys.executable, "-c", _TRAINER, str(tree), mark],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert trainer.stdout is not None
    with trainer, trainer.stdout:
        holder = int(trainer.stdout.readline())
        assert until(lambda: processes_of(mark) >= 3)
        full = shared_memory()
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
    assert until(lambda: processes_of(mark) == 0 and not is_alive(holder))
    assert until(lambda: shared_memory() < full - 150 * MIB)  # other tests write some megabytes meanwhile
    assert digest(tree) == before and sorted(os.listdir(tmp_path)) == ["tree"]


def test_sixty_four_episodes_at_once(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    backend, descriptors = Bubblewrap(), len(os.listdir("/proc/self/fd"))
    before = shared_memory()
    with ThreadPoolExecutor(4) as pool:
        open_ = list(pool.map(lambda _: Episode(backend.open(Base(tree=tree), SMALL)), range(64)))
        try:
            fill = "for place in . ~ /dev/shm; do head -c 5000000 /dev/zero > $place/fill; done"
            command = f"test ! -e own && echo {{}} > own; cat own a.py; {fill}; sleep 60 & true"
            said = list(pool.map(lambda number: open_[number].says(command.format(number)), range(64)))
            changed = [played.sandbox.changes(max_bytes=6 * MIB).files[1].content for played in open_]
            full = shared_memory()
        finally:
            for played in open_:
                played.sandbox.close()
                played.sandbox.close()  # twice does no harm
    assert said == [f"{number}\nx = 1" for number in range(64)]
    assert changed == [f"{number}\n".encode() for number in range(64)]
    assert sum(played.processes() for played in open_) == 0
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert full > before + 850 * MIB  # 14.3 MiB of each
    # of none a mount is left, which has 4.8; a test beside this one may write some for a while
    assert until(lambda: shared_memory() < before + 4 * MIB, 60)


_POD = """
import itertools, os, sys, time
from pathlib import Path
from types import SimpleNamespace
from jaxmtrl.envs.swe.sandbox import probes
from jaxmtrl.envs.swe.sandbox.api import Base, Limits
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
assert os.getpid() == 1
sandbox = Bubblewrap().open(Base(tree=Path(sys.argv[1])), Limits())
print([sandbox.run(command, wall_s=1).why for command in ("true", "sleep 60", "sleep 60 & true")])
print(len(probes._dead_bwraps()), sandbox.run("cat a.py").output)
probes.time = SimpleNamespace(monotonic=itertools.count().__next__, sleep=time.sleep)  # eight looks, not seconds
passed, found, cure = probes._zombies(sandbox)
print(passed, found, "--init" in cure)
sandbox.close()
print([path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if path.read_bytes()])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a process namespace alone")
def test_under_a_first_process_that_takes_in_no_orphans_commands_end_and_the_doctor_tells(tmp_path: Path) -> None:
    """C19: Python as process 1 of a pod; of every command a dead bwrap stays, and nothing that lives."""
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _POD, str(make_tree(tmp_path / "tree"))],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [
        "['', 'timeout', '']",
        "3 b'x = 1\\n'",
        "False 5 dead processes that nobody takes in True",
        "['1']",  # itself: the dead have no command line
    ], done.stderr


def test_opening_running_and_closing_are_quick(tmp_path: Path) -> None:
    tree, backend = make_tree(tmp_path / "tree"), Bubblewrap()
    took: list[list[float]] = [[], [], []]
    for _ in range(7):
        marks = [time.monotonic()]
        sandbox = backend.open(Base(tree=tree), Limits())
        marks.append(time.monotonic())
        sandbox.run("true")
        marks.append(time.monotonic())
        sandbox.close()
        marks.append(time.monotonic())
        for kind in range(3):
            took[kind].append(marks[kind + 1] - marks[kind])
    opening, running, closing = (statistics.median(times) for times in took)
    # 25, 30 and 1 ms on two free cores; the bounds are for busy ones.
    assert opening < 0.6 and running < 0.6 and closing < 0.3, (opening, running, closing)


def test_after_closing_nothing_works_and_says_so(tmp_path: Path) -> None:
    sandbox = Bubblewrap().open(Base(tree=make_tree(tmp_path / "tree")), SMALL)
    sandbox.close()
    for use in (lambda: sandbox.run("true"), sandbox.changes):
        with pytest.raises(SandboxFailure, match="closed"):
            use()


def test_a_base_that_cannot_be_is_refused(tmp_path: Path) -> None:
    tree, backend = make_tree(tmp_path / "tree"), Bubblewrap()
    for base, why in (
        (Base(tree=None), "a tree or a rootfs"),
        (Base(tree=tmp_path / "missing"), "no folder"),
        (Base(tree=tree, image="python:3.12"), "podman"),
        (Base(tree=tree, venv=tree, rootfs=tree), "not both"),
    ):
        with pytest.raises(SandboxFailure, match=why):
            backend.open(base, SMALL)


@pytest.mark.skipif(os.geteuid() == 0, reason="the next test asks the doctor, as a user that is not root")
def test_the_doctor_finds_nothing_wrong(capsys) -> None:
    assert doctor.main([]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert said.count("ok  ") >= 16 and "FAIL" not in said


_OTHER_USER = """
import sys, tempfile
from pathlib import Path
from jaxmtrl.envs.swe.sandbox.api import Base, Limits
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
from jaxmtrl.envs.swe.sandbox.doctor import main
tree = Path(tempfile.mkdtemp(dir=sys.argv[1]))
(tree / "folder").mkdir(); (tree / "folder" / "a.py").write_text("a"); (tree / "b.py").write_text("b")
sandbox = Bubblewrap().open(Base(tree=tree), Limits())
sandbox.run("rm -r folder; mkdir folder; echo new > folder/new; echo b > b.py; chmod 000 b.py folder")
print([(file.path, file.content) for file in sandbox.changes().files])
sandbox.run("ln -s /tmp link; rm -f b.py; ln -s /tmp/x b.py")
result = sandbox.run("cat folder/shown link/shown b.py; echo told > link/report", reports=["/testbed/link/report"],
                     shown={"/testbed/folder/shown": b"1", "/testbed/link/shown": b"2", "/testbed/b.py": b"3"})
print(result.output, sandbox.report("/testbed/link/report"))
sandbox.close()
sys.exit(main([]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="all the other tests ran as a user that is not root")
def test_users_that_are_not_root_have_sandboxes_too() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        source = Path(jaxmtrl.__path__[0])
        for part in ("envs", "errors.py", "types.py", "__init__.py"):
            target = folder / "code" / "jaxmtrl" / part
            if (source / part).is_dir():
                shutil.copytree(source / part, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / part, target)
        # By a shell of its own: setpriv still has root's rights as it starts what it is given.
        as_user = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "sh", "-c", 'exec "$0" "$@"']
        ask = "import sys; sys.exit(sys.version_info < (3, 11))"
        pythons = [
            python
            for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
            if subprocess.run([*as_user, python, "-c", ask], capture_output=True).returncode == 0
        ]
        if not pythons:
            pytest.skip("no Python 3.11 here that another user may run")
        done = subprocess.run(
            [*as_user, pythons[0], "-c", _OTHER_USER, str(folder)],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder / "code"), "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            cwd=folder,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        first, second, *_ = done.stdout.splitlines()
        assert first == str([("b.py", b"b\n"), ("folder/a.py", None), ("folder/new", b"new\n")])
        assert second == "b'123' b'told\\n'"
        assert "probes passed" in done.stdout
