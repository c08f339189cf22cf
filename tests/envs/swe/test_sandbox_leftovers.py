"""bwrap's child before it has begun waits for ever if its parent alone dies: it is killed too, or found later."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandboxes import needs_bubblewrap

from jaxmtrl.envs.swe.sandbox.api import Limits
from jaxmtrl.envs.swe.sandbox.leftovers import reap
from jaxmtrl.envs.swe.sandbox.watch import Watch

pytestmark = needs_bubblewrap()


@contextmanager
def held_up() -> Iterator[tuple[subprocess.Popen, int, int, int]]:
    """A bwrap whose child waits, as all do for a moment: both processes, and where its output and status come from.

    A descriptor that never tells anything keeps it there, and it has told nobody of its child yet.
    """
    silent, silence = os.pipe()
    output, output_end = os.pipe()
    status, status_end = os.pipe()
    nowhere = os.open("/dev/null", os.O_WRONLY)
    arguments = ["--unshare-user", "--unshare-pid", "--uid", "1000", "--die-with-parent", "--ro-bind", "/", "/"]
    arguments += ["--userns-block-fd", str(silent), "--info-fd", str(nowhere)]
    listed = os.memfd_create("arguments")
    os.write(listed, b"".join(argument.encode() + b"\0" for argument in arguments))
    os.lseek(listed, 0, os.SEEK_SET)
    process = subprocess.Popen(
        ["bwrap", "--args", str(listed), "--", "bash", "/run/command"],
        stdout=output_end,
        stderr=output_end,
        pass_fds=(silent, nowhere, listed),
        start_new_session=True,
    )
    os.close(status_end)
    try:
        yield process, child_of(process.pid), output, status
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        for descriptor in (silent, silence, nowhere, output, output_end, status, listed):
            os.close(descriptor)


def child_of(pid: int) -> int:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text() == "bwrap\n":
            return int(children[0])
        time.sleep(0.01)
    raise AssertionError("bwrap has started nothing")


def is_alive(pid: int) -> bool:
    """Dead ones that nobody has taken in do not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def dies(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


def test_a_command_that_is_killed_before_it_has_begun_leaves_nothing():
    with held_up() as (process, child, output, status):
        end = Watch(process, output=output, status=status, limits=Limits()).to_the_end(0.2)
        assert (end.why, end.exit_code) == ("timeout", None) and dies(child)


def test_what_a_killed_trainer_left_is_killed_by_the_next():
    with held_up() as (process, child, _, _):
        process.kill()  # as the kernel does when the trainer dies
        process.wait()
        time.sleep(0.1)
        assert is_alive(child)
        assert reap() >= 1 and dies(child)


def test_a_child_that_its_parent_looks_after_is_left_alone():
    with held_up() as (process, child, _, _):
        reap()
        time.sleep(0.1)
        assert is_alive(child) and process.poll() is None


def test_other_programs_of_that_name_are_none_of_ours(tmp_path):
    program = shutil.copy(str(shutil.which("sleep")), tmp_path / "bwrap")
    process = subprocess.Popen([program, "30"])
    try:
        while Path(f"/proc/{process.pid}/comm").read_text() != "bwrap\n":
            time.sleep(0.01)
        reap()
        time.sleep(0.1)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
