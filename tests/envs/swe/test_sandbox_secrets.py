"""What a policy must never read: the trainer's environment, the host's paths, another version of the code, the net."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxes import episode, make_tree, needs_bubblewrap

pytestmark = needs_bubblewrap()

_TRAINER = """
import sys
from pathlib import Path
from jaxmtrl.envs.swe.sandbox.api import Base, Limits
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
sandbox = Bubblewrap().open(Base(tree=Path(sys.argv[1])), Limits())
result = sandbox.run("env; cat /proc/*/environ /proc/*/cmdline | tr '\\\\0' '\\\\n'; cat /proc/1/environ")
sandbox.close()
assert "jax" not in sys.modules
sys.stdout.buffer.write(result.output)
"""


def test_the_trainers_environment_cannot_be_read_from_inside(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    secrets = {"HF_TOKEN": "hf_secret_one", "WANDB_API_KEY": "secret_two", "AWS_SECRET_ACCESS_KEY": "secret_three"}
    done = subprocess.run(
        [sys.executable, "-c", _TRAINER, str(tree)],
        env=secrets | {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "HOME=/tmp" in done.stdout and "bwrap" in done.stdout  # it did look
    for name, value in secrets.items():
        assert name not in done.stdout and value not in done.stdout
    assert str(tmp_path) not in done.stdout


def test_command_lines_tell_nothing(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        said = played.says("tr '\\0' ' ' < /proc/1/cmdline", environment={"OTHER": "a-value"})
        assert said.startswith("bwrap") or "/bwrap --args" in said
        assert "a-value" not in said and str(tmp_path) not in said and "--bind" not in said


def test_the_network_is_off_and_the_loopback_on(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        code = """
import socket, threading
for address in (("8.8.8.8", 53), ("169.254.169.254", 80), ("10.0.0.1", 22)):
    try: socket.create_connection(address, 2); print("connected", address)
    except OSError as e: print(e.errno)
try: socket.getaddrinfo("example.org", 443); print("resolved")
except OSError: print("no name")
server = socket.create_server(("127.0.0.1", 8000))
client = socket.create_connection(("127.0.0.1", 8000)); print("loopback")
"""
        assert played.python(code).output.split(b"\n") == [b"101"] * 3 + [b"no name", b"loopback", b""]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python3 -m pip download parse", "No matching distribution"),
        ("apt-get install -y hello", "E: "),
        ("apt-get update", "E: "),
        ("curl -sS http://example.org", "Could not resolve host"),
    ],
)
def test_installing_fails_at_once(tmp_path: Path, command: str, said: str) -> None:
    """Without our variables pip asks again and again, and sleeps 7.5 s between; the second time all is in memory."""
    if shutil.which(command.split()[0]) is None:
        pytest.skip("not installed here")
    with episode(tmp_path) as played:
        for _ in range(2):
            result = played.run(command, wall_s=60)
            told = result.output.decode(errors="replace")
            assert result.exit_code not in (0, None) and said in told and "Retrying" not in told
            if result.wall_s < 6:
                break
        assert result.wall_s < 6


def test_packages_of_the_host_are_not_shown(tmp_path: Path) -> None:
    with episode(tmp_path, tree=make_tree(tmp_path / "tree")) as played:
        places = "/usr/lib/python3*/*-packages /usr/local/lib/python3*/*-packages"
        there = [folder for place in places.split() for folder in glob.glob(place)]
        assert int(played.says(f"ls -d {places} 2>/dev/null | wc -l")) == len(there)
        assert played.says(f"for place in {places}; do ls -A $place 2>/dev/null; done") == ""
        assert played.says("ls /home /root /mnt /srv /var /opt /sys 2>/dev/null") == ""


def test_a_venv_is_shown_with_its_interpreter(tmp_path: Path) -> None:
    made = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    package = next(made.glob("lib/python3*/site-packages")) / "own_package.py"
    package.write_text("where = __file__\n")
    with episode(tmp_path, tree=make_tree(tmp_path / "tree"), venv=made) as played:
        said = played.says("which python; python -c 'import own_package, sys; print(own_package.where, sys.prefix)'")
        inside = package.relative_to(made)
        assert said.split() == ["/opt/venv/bin/python", f"/opt/venv/{inside}", "/opt/venv"]
        assert played.run(f"echo x >> /opt/venv/{inside} || rm -f /opt/venv/{inside}").exit_code == 1


def test_no_bytecode_is_written_and_nothing_asks(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        assert played.says("python3 -c 'import a; print(a.x)'; ls -A") == "1\na.py\nfolder\nrun.sh"
        assert played.says("echo $PAGER $GIT_EDITOR $PIP_NO_INDEX $HOME; touch ~/kept") == "cat true 1 /tmp"
        assert played.says("ls ~") == "kept"  # /tmp stays from command to command


def test_only_three_descriptors_are_inherited(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        assert (
            played.python("import os; print(sorted(os.listdir('/proc/self/fd')))").output == b"['0', '1', '2', '3']\n"
        )
        assert played.says("readlink /proc/self/fd/0") == "/dev/null"
