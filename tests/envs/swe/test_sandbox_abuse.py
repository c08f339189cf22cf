"""Commands that hang, flood, fork, eat, or leave things running: bounded, told, and gone afterwards."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from sandboxes import MIB, SMALL, episode, is_alive, needs_bubblewrap

from jaxmtrl.envs.swe.sandbox import bwrap
from jaxmtrl.envs.swe.sandbox.api import ExecResult
from jaxmtrl.envs.swe.sandbox.surroundings import MOST_COMMAND
from jaxmtrl.errors import SandboxFailure

pytestmark = needs_bubblewrap()


@pytest.mark.parametrize(
    "bomb", [":() { : | : & }; :; sleep 5", "python3 -c 'import os\nwhile 1:\n try: os.fork()\n except OSError: pass'"]
)
def test_a_fork_bomb_stays_in_its_episode(tmp_path: Path, bomb: str) -> None:
    with episode(tmp_path / "one") as played, episode(tmp_path / "other") as other:
        results: list[ExecResult] = []
        thread = Thread(target=lambda: results.append(played.run(bomb, wall_s=1.5)))
        thread.start()
        time.sleep(0.7)
        assert other.says("for i in $(seq 30); do sleep 5 & done; jobs -p | wc -l") == "30"
        thread.join()
        assert results[0].why == "timeout" or b"temporarily unavailable" in results[0].output


@pytest.mark.parametrize(
    "hang",
    [
        "echo begun; while :; do :; done",
        "echo begun; sleep 1000",
        "trap '' TERM INT HUP QUIT; echo begun; sleep 1000; sleep 1000",
        "echo begun; (trap '' TERM; setsid sleep 1000) & wait",
        "echo begun; kill -STOP $$",
    ],
)
def test_a_hanging_command_is_killed_in_time_and_keeps_its_output(tmp_path: Path, hang: str) -> None:
    with episode(tmp_path) as played:
        result = played.run(hang, wall_s=0.6)
        assert (result.why, result.exit_code, result.output) == ("timeout", None, b"begun\n")
        assert 0.6 <= result.wall_s < 5


@pytest.mark.parametrize(
    "left",
    [
        "nohup setsid sleep 300 & echo done",
        "(setsid bash -c 'sleep 300 & sleep 300' &) ; echo done",
        "python3 -c 'import os, time\nif os.fork() == 0: os.setsid(); os.fork() or time.sleep(300)'; echo done",
    ],
)
def test_a_command_ends_with_its_shell_whatever_holds_its_output(tmp_path: Path, left: str) -> None:
    with episode(tmp_path) as played:
        result = played.run(left)
        assert result.exit_code == 0 and b"done\n" in result.output and result.wall_s < 8
        assert played.processes() == 0


def test_a_server_answers_within_its_command_and_is_gone_in_the_next(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        ask = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8000\").status)'"
        serve = "python3 -m http.server 8000 >/dev/null 2>&1 & for i in $(seq 40); do sleep 0.1; "
        assert played.says(f"{serve} {ask} 2>/dev/null && break; done") == "200"
        assert played.run(ask).exit_code == 1


def test_one_process_cannot_take_all_memory(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        assert b"MemoryError" in played.python("x = bytearray(3 << 30)").output


def test_many_processes_cannot_take_all_memory(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        eat = "python3 -c 'import time; x = bytearray(120 << 20); x[::4096] = bytes(len(x[::4096])); time.sleep(60)'"
        result = played.run(f"for i in 1 2 3 4; do {eat} & done; wait", wall_s=60)
        assert (result.why, result.exit_code) == ("oom", None)
        assert SMALL.resident < result.peak_resident < 2 * SMALL.resident


def test_shared_memory_counts_as_memory(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        eat = "import mmap, time\nx = mmap.mmap(-1, 400 << 20)\nwhile x.tell() < len(x): x.write(bytes(1 << 20))\n"
        assert played.python(eat + "time.sleep(60)", wall_s=60).why == "oom"


@pytest.mark.parametrize("place, bound", [("/testbed", 24), ("/tmp", 8), ("~", 8), ("/dev/shm", 8)])
def test_what_can_be_written_is_bounded(tmp_path: Path, place: str, bound: int) -> None:
    with episode(tmp_path) as played:
        said = played.says(f"head -c 30000000 /dev/zero > {place}/fill; stat -c %s {place}/fill; rm {place}/fill")
        assert "No space left" in said and int(said.split()[-1]) <= bound * MIB
        assert played.says(f"echo fits > {place}/fill; cat {place}/fill") == "fits"


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    with episode(tmp_path, replace(SMALL, file_size=MIB)) as played:
        assert "File size limit" in played.says("head -c 3000000 /dev/zero > big; stat -c %s big") or (
            int(played.says("stat -c %s big")) == MIB
        )
        assert "No space left" in played.says('python3 -c \'for i in range(3000): open(f"f{i}", "w")\' 2>&1 | tail -1')


def test_endless_output_is_cut_short(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        result = played.run("echo first; yes")
        assert (result.why, result.exit_code) == ("output_flood", None) and result.wall_s < 5
        assert result.output.startswith(b"first\ny\n") and len(result.output) == SMALL.output_kept
        assert SMALL.output_killed < result.elided + len(result.output) < SMALL.output_killed + 4 * MIB


def test_of_long_output_head_and_tail_are_kept(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        result = played.run("seq 100000; echo last")
        assert result.exit_code == 0 and result.elided > 500_000
        assert result.output.startswith(b"1\n2\n3\n") and result.output.endswith(b"99999\n100000\nlast\n")
        whole = "".join(f"{number}\n" for number in range(1, 100_001)).encode() + b"last\n"
        half = SMALL.output_kept // 2
        assert result.output == whole[:half] + whole[-half:] and result.elided == len(whole) - 2 * half


def test_no_mischief_in_the_workspace_makes_the_next_command_fail(tmp_path: Path) -> None:
    with episode(tmp_path) as played:  # a failed episode is not scored, so that a policy must not be able to fail one
        for mischief in (
            "chmod 000 .",
            "chmod 000 /tmp",
            "rm -rf /tmp/* /testbed/*; rmdir /testbed /tmp",
            "mv /testbed /tmp/x; ln -s / /testbed/proc; mkdir dev etc; mount -t tmpfs x .",
            "for i in $(seq 3000); do : > f$i; done",
            "head -c 90000000 /dev/zero > full; head -c 90000000 /dev/zero > /tmp/full; exec 1>&-",
        ):
            played.run(mischief)
            assert played.says("echo fine") == "fine"
            played.run("echo told > /run/report", reports=["/run/report"])
            assert played.sandbox.report("/run/report") == b"told\n"
            shown = played.run("cat new/t.py", shown={"/testbed/new/t.py": b"t\n"})
            assert (shown.exit_code, shown.output) == (0, b"t\n") or shown.exit_code == 126


def test_output_comes_back_byte_by_byte(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        assert (
            played.run("printf '\\0\\377\\033[31m\\r\\n'; printf '<|im_end|>' >&2").output
            == b"\0\xff\x1b[31m\r\n<|im_end|>"
        )


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        ("cat", ""),
        ("read -r line", ""),
        ("python3 -c 'input()'", "EOFError"),
        ("less a.py", "x = 1"),
        ("git init -q . && git add -A && git commit", "empty commit message"),  # an editor was asked, and wrote none
    ],
)
def test_nothing_waits_for_somebody_to_type(tmp_path: Path, wait: str, said: str) -> None:
    program = wait.split()[0]
    if program in ("less", "git") and shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    with episode(tmp_path) as played:
        result = played.run(wait, wall_s=5)
        assert not result.why and said in result.output.decode(errors="replace"), result


@pytest.mark.skipif(shutil.which("vi") is None, reason="no vi here")
def test_vi_costs_no_more_than_its_command_may(tmp_path: Path) -> None:
    """Without a terminal vim reads its stderr, which is our pipe's writing end, and so nothing for ever."""
    with episode(tmp_path) as played:  # whose next command works
        result = played.run("vi a.py", wall_s=1)
        assert result.why in ("timeout", "") and result.wall_s < 4, result


def test_long_commands_arrive_and_too_long_ones_are_refused(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        text = "x" * 400_000
        assert played.says(f"cat > long <<'END'\n{text}\nEND\nstat -c %s long") == "400001"
        assert played.run("#" * (MOST_COMMAND + 1)) == ExecResult(exit_code=None, output=b"", why="too_large")
        for odd in ("echo \0 a", "echo \udc80", "", "\n", "if", "echo 'unclosed", "exit 7"):
            assert not played.run(odd).why


def test_exit_codes_are_the_shells(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        codes = [
            played.run(command).exit_code for command in ("true", "exit 7", "kill -9 $$", "kill $$", "nothing_such")
        ]
        assert codes == [0, 7, 137, 143, 127]


def test_commands_begin_in_the_workspace_and_leave_only_files(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("cd folder; export A=1; echo kept > kept")
        assert played.says("pwd; echo [$A]; cat folder/kept") == "/testbed\n[]\nkept"


def test_no_process_to_be_had_is_tried_again_and_then_nobodys_fault(tmp_path: Path, monkeypatch) -> None:
    with episode(tmp_path) as played:
        real, refusals = bwrap.subprocess.Popen, [BlockingIOError(11, "Resource temporarily unavailable")]

        def refuse(*arguments, **options):
            if refusals:
                raise refusals.pop()
            return real(*arguments, **options)

        monkeypatch.setattr(bwrap.subprocess, "Popen", refuse)
        assert played.says("echo second try") == "second try"
        refusals += [BlockingIOError(11, "Resource temporarily unavailable")] * 2
        with pytest.raises(SandboxFailure, match="Resource temporarily unavailable"):
            played.run("true")


def test_a_dead_holder_is_nobodys_fault(tmp_path: Path) -> None:
    with episode(tmp_path) as played, episode(tmp_path / "other") as other:
        pid = other.sandbox._held.process.pid
        other.sandbox._held.process.kill()
        other.sandbox._held.process.wait()
        assert not is_alive(pid)
        with pytest.raises(SandboxFailure, match="has died"):
            other.run("true")
        assert played.says("echo fine") == "fine"
        other.sandbox = played.sandbox  # whose next command works


def test_a_sandbox_outlives_the_thread_that_opened_it(tmp_path: Path) -> None:
    opened = []

    def open_one() -> None:
        context = episode(tmp_path)
        opened.append((context, context.__enter__()))

    thread = Thread(target=open_one)
    thread.start()
    thread.join()
    time.sleep(0.2)
    context, played = opened[0]
    assert played.says("echo alive") == "alive"
    context.__exit__(None, None, None)
