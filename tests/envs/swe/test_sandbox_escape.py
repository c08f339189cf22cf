"""Commands that want to destroy the host, or to get out to it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import pytest
from sandboxes import MIB, episode, make_rootfs, needs_bubblewrap

from jaxmtrl.envs.swe.sandbox import bwrap, seccomp
from jaxmtrl.envs.swe.sandbox.bwrap import find_tools
from jaxmtrl.envs.swe.sandbox.owner import USER

pytestmark = needs_bubblewrap()


def test_removing_everything_empties_the_workspace_only(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("rm -rf --no-preserve-root /testbed /home /etc /tmp / 2>/dev/null", wall_s=1.5)
        assert played.says("ls -A /testbed") == ""
        assert played.says("ls /usr/bin | head -1") != ""
        assert {file.path for file in played.sandbox.changes().files if file.content is None} == {
            "a.py",
            "folder/b.py",
            "folder/deep/c.txt",
            "run.sh",
        }


def test_removing_a_whole_image_leaves_no_shell_and_no_harm(tmp_path: Path) -> None:
    rootfs = make_rootfs(tmp_path / "image")
    with episode(tmp_path, rootfs=rootfs, shell_left=False) as played:
        assert played.says("id -u; cat a.py; ls /") != ""
        played.run("rm -rf --no-preserve-root / 2>/dev/null")
        gone = played.run("echo anyone")
        assert gone.exit_code == 127 and not gone.why  # the policy's fault, no failure of the machine


@pytest.mark.parametrize("place", ["/usr/x", "/opt/venv/x", "/bin/x", "/etc/x", "/x", "/run/x", "/dev/x", "/opt/x"])
def test_writing_outside_the_workspace_is_refused(tmp_path: Path, place: str) -> None:
    with episode(tmp_path) as played:
        assert "Read-only file system" in played.says(f"echo > {place}")
        assert "Read-only file system" in played.says(f"mkdir {place}.folder")


def test_shared_memory_is_bounded(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        said = played.says("head -c 20000000 /dev/zero > /dev/shm/fill; stat -c %s /dev/shm/fill")
        assert "No space left" in said and int(said.splitlines()[-1]) <= 8 * MIB


def test_commands_are_no_root_of_anything(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        said = played.says("id -u; grep -E '^Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status")
        none = "0" * 16
        wanted = f"1000 CapPrm: {none} CapEff: {none} CapBnd: {none} CapAmb: {none} NoNewPrivs: 1"
        assert said.split() == wanted.split()
        for command in ("mount -o remount,bind,rw /usr", "mknod disk b 254 0", "hostname x"):
            result = played.run(command)
            assert result.exit_code not in (0, None), command
        own_failure = 125  # of chroot; 127 where it can, and finds no /bin/true in there
        assert played.run("chroot . /bin/true").exit_code == own_failure


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")
def test_a_root_trainers_commands_are_another_user_on_the_host(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        # Looked at from outside, since inside every uid but one is unmapped.
        thread = Thread(target=lambda: played.run("sleep 1"))
        thread.start()
        deadline, users = monotonic() + 1, set()
        while not users and monotonic() < deadline:
            sleep(0.05)
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    if played.mark.encode() in (folder / "environ").read_bytes():
                        users.add(folder.stat().st_uid)
                except OSError:
                    continue
        thread.join()
        assert users == {USER}


def test_no_namespace_can_be_made(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        for command in ("unshare -Urm true", "unshare -U true", "unshare -n true", "nsenter -t 1 -m true"):
            assert played.run(command).exit_code not in (0, None), command
        clone = "import ctypes, errno\nl = ctypes.CDLL(None, use_errno=True)\n"
        number, new_user = {"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x10000000 | 17
        clone += f"print(l.syscall({number}, {new_user}, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])"
        assert played.python(clone).output == b"-1 EPERM\n"


def test_old_versions_of_bubblewrap_make_no_namespaces_either(tmp_path: Path, monkeypatch) -> None:
    old = replace(find_tools(), disable_userns=False)
    monkeypatch.setattr(bwrap, "find_tools", lambda: old)
    with episode(tmp_path) as played:
        assert played.run("unshare -Urm true").exit_code not in (0, None)
        assert played.run("unshare -m true; mount -t tmpfs x /tmp").exit_code not in (0, None)


def test_setuid_gives_nothing(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        assert played.says("cp /bin/bash b; chmod 6755 b; ./b -p -c 'id -u; id -ru'").split() == ["1000", "1000"]
        assert played.run("su -c id </dev/null").exit_code not in (0, None)
        code = """
mounts = [line.split() for line in open("/proc/self/mountinfo")]
print({"/", "/usr", "/testbed", "/tmp", "/dev/shm"} - {mount[4] for mount in mounts})
print([mount[4] for mount in mounts if "nosuid" not in mount[5].split(",")])
"""
        assert played.python(code).output == b"set()\n[]\n"


def test_only_its_own_processes_can_be_seen_and_killed(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        assert int(played.says("ls -d /proc/[0-9]* | wc -l")) < 8
        assert played.says("kill -9 1; kill -9 -1; echo survived").endswith("survived")
        ptrace = (
            "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nprint(l.ptrace(16, 1, 0, 0), ctypes.get_errno())"
        )
        assert played.python(ptrace).output == b"-1 1\n"


def test_links_lead_nowhere(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        said = played.says("ln -s / root; cat root/etc/shadow; ln -s /etc/passwd secrets; ls root/home")
        assert "root:x" not in said and "root:*" not in said and "No such file" in said
        played.run("rm -r folder; ln -s /etc folder; ln -sf /etc/passwd a.py; mkfifo pipe")
        changed = played.sandbox.changes()
        assert {"root", "secrets", "folder", "a.py", "pipe"} == set(changed.dropped)
        assert all(file.content is None for file in changed.files)
        assert {file.path for file in changed.files} == {"a.py", "folder/b.py", "folder/deep/c.txt"}


def test_a_planted_link_does_not_lead_what_we_show_out_of_the_workspace(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    tmp_path.chmod(0o755)
    with episode(tmp_path) as played:
        played.run(f"rm -r folder; ln -s /oldroot{outside} folder; ln -s {outside} other")
        result = played.run(
            "cat folder/t.py other/t.py", shown={"/testbed/folder/t.py": b"one\n", "/testbed/other/t.py": b"two\n"}
        )
        assert result.output == b"one\ntwo\n"
        assert os.listdir(outside) == []


def test_what_is_shown_is_seen_by_one_command_only_and_cannot_be_written(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        shown = {"/testbed/tests/new/t.py": b"shown\n", "/testbed/a.py": b"other\n", "/run/plugin.py": b"p\n"}
        result = played.run(
            "cat tests/new/t.py a.py /run/plugin.py; echo x > a.py; rm -f tests/new/t.py; mv a.py b.py; chmod 777 a.py",
            shown=shown,
        )
        assert result.output.startswith(b"shown\nother\np\n")
        assert result.output.count(b"Read-only file system") == 2 and result.output.count(b"busy") == 2
        assert played.says("cat a.py; ls") == "x = 1\na.py\nfolder\nrun.sh"
        assert played.sandbox.changes().files == ()


def test_some_hundred_files_can_be_shown(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        shown = {f"/testbed/tests/part{number % 7}/test_{number}.py": b"t" * 1000 for number in range(300)}
        assert played.says("cat tests/*/*.py | wc -c; ls tests", shown=shown).split()[0] == "300000"
        assert played.says("ls") == "a.py\nfolder\nrun.sh"


def test_files_of_the_system_cannot_be_linked_into_the_workspace(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        assert "Invalid cross-device link" in played.says("ln /usr/bin/env here")


def test_there_is_no_terminal_to_type_into(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        code = "import fcntl\nfor fd in (0, 1, 2):\n  try: fcntl.ioctl(fd, 0x5412, b'x')\n"
        code += "  except OSError as e: print(e.errno)"
        refused = played.python(code).output.split()
        assert len(refused) == 3 and set(refused) <= {b"25", b"1"}  # ENOTTY, EPERM
        assert "No such device" in played.says("echo x > /dev/tty")


def test_sockets_of_the_machine_are_refused(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        code = "import socket\n" + "\n".join(
            f"try: socket.socket({family}, {kind}); print('open {family}')\nexcept OSError as e: print(e.errno)"
            for family, kind in ((40, 1), (17, 3), (38, 5), (31, 1), (29, 3))  # vsock, packet, alg, bluetooth, can
        )
        assert played.python(code).output == b"97\n" * 5
        assert played.python("import socket\nsocket.socketpair(); socket.socket(); print('fine')").output == b"fine\n"


@pytest.mark.parametrize(
    "name", ["bpf", "keyctl", "perf_event_open", "userfaultfd", "io_uring_setup", "process_vm_readv"]
)
def test_doors_of_the_kernel_are_closed(tmp_path: Path, name: str) -> None:
    column = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
    number = seccomp._FORBIDDEN[name][column]
    with episode(tmp_path) as played:
        code = "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\n"
        code += f"print(l.syscall({number}, 0, 0, 0, 0, 0), ctypes.get_errno())"
        assert played.python(code).output == b"-1 1\n"


def test_memory_that_nobody_counts_cannot_be_had(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        code = "import os\ntry: os.memfd_create('x'); print('made')\nexcept OSError as e: print(e.errno)"
        assert played.python(code).output == b"38\n"


def test_the_kernels_log_is_closed(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        assert played.run("dmesg").exit_code not in (0, None)
        assert played.run("cat /proc/kmsg", wall_s=2).exit_code not in (0, None)
        assert played.run("echo 1 > /proc/sys/kernel/panic").exit_code not in (0, None)
        assert played.run("echo b > /proc/sysrq-trigger").exit_code not in (0, None)
