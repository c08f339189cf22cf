"""Playing by hand with whatever comes down the pipe: it is played or refused, and never ends in a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAY = [sys.executable, "scripts/play_env.py", "--factory", "jaxmtrl.envs.toy:make"]


def played(typed: bytes, *more: str, **others) -> subprocess.CompletedProcess[bytes]:
    found = subprocess.run([*PLAY, *more], input=typed, cwd=ROOT, stderr=subprocess.PIPE, timeout=60, **others)
    assert b"Traceback" not in found.stderr
    return found


@pytest.mark.slow
def test_bytes_that_are_no_text_are_played_as_they_come():
    found = played(b"look\n\xff\xfe\0\n" + b"x" * 100_000, stdout=subprocess.PIPE, env={"LC_ALL": "C"})
    assert found.returncode == 0 and b"3> xxx" in found.stdout and b"not solved" in found.stdout


@pytest.mark.slow
def test_blocks_and_calls_of_several_lines_are_one_answer():
    calls = b"<function=submit></function>", b"<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>"
    answers = [b"```bash\nls\n```", b"````bash\n```\n````", *calls, b"look", b"```bash\nls"]
    found = played(b"\n".join(answers), stdout=subprocess.PIPE)
    assert found.returncode == 0
    for turn, answer in enumerate(answers, 1):
        assert b"%d> %s\n" % (turn, answer) in found.stdout


@pytest.mark.slow
def test_a_disk_that_is_full_is_one_line():
    with open("/dev/full", "wb") as full:
        found = played(b"look\n", stdout=full)
    assert found.returncode == 2 and b"error: the output: No space left on device" in found.stderr


@pytest.mark.slow
def test_overrides_without_a_config_are_refused():
    found = played(b"", "env.options.train_tasks=1", stdout=subprocess.PIPE)
    assert found.returncode == 2 and b"env.options.train_tasks=1 wants --config" in found.stderr


@pytest.mark.slow
def test_no_keyboard_at_all_is_a_game_without_actions():
    found = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&-', "sh", *PLAY], cwd=ROOT, capture_output=True, timeout=60)
    assert found.returncode == 0 and b"Traceback" not in found.stderr and b"not solved" in found.stdout


@pytest.mark.slow
def test_ctrl_c_ends_in_one_line():
    child = subprocess.Popen(
        PLAY, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()  # the game has begun
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130 and said.strip() == "interrupted"
