"""Real sandboxes for tests: small limits, and after every case the same questions about what it has left."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from jaxmtrl.envs.swe.sandbox.api import Base, ExecResult, Limits
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap, BubblewrapSandbox

MIB = 1 << 20
SMALL = Limits(
    command_s=10.0,
    processes=48,
    address_space=1024 * MIB,
    resident=300 * MIB,
    file_size=32 * MIB,
    workspace=24 * MIB,
    workspace_files=2000,
    temporary=8 * MIB,
    output_kept=600,
    output_killed=8 * MIB,
)
FILES = {"a.py": "x = 1\n", "folder/b.py": "y = 2\n", "folder/deep/c.txt": "c\n", "run.sh": "#!/bin/sh\necho ran\n"}


@functools.cache
def why_not() -> str:
    """Why this machine can open no sandbox; empty where it can. Asked without our own code, whose faults must show."""
    plain = ["bwrap", "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    for command in ([*plain, "true"], ["unshare", "--user", "--map-root-user", "--mount", "true"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as err:
            return str(err)
        if done.returncode != 0:
            return done.stderr.strip()
    return ""


def needs_bubblewrap() -> list[pytest.MarkDecorator]:
    """For `pytestmark`. Raises where JAXMTRL_REQUIRE_SANDBOX is set and none opens: a test farm must not skip these."""
    why = why_not()
    if why and os.environ.get("JAXMTRL_REQUIRE_SANDBOX"):
        raise RuntimeError(f"no sandbox opens here, and JAXMTRL_REQUIRE_SANDBOX is set: {why}")
    reason = f"NO SANDBOX WAS TESTED: {why} See python -m jaxmtrl.envs.swe.sandbox.doctor"
    return [pytest.mark.sandbox, pytest.mark.skipif(bool(why), reason=reason)]


def make_tree(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    for name, text in (FILES if files is None else files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    return folder


def make_rootfs(folder: Path) -> Path:
    """A root filesystem with a shell and a few tools, and a workspace; for containers too."""
    for tool in ("bash", "ls", "cat", "rm", "mkdir", "ln", "id", "sleep", "timeout"):
        path = str(shutil.which(tool))
        _copy(path, folder / "usr/bin" / tool)
        for line in subprocess.run(["ldd", path], capture_output=True, text=True).stdout.splitlines():
            library = next((word for word in line.split() if word.startswith("/")), None)
            if library is not None:
                _copy(library, folder / library.lstrip("/"))
    for link in ("bin", "lib", "lib64"):  # as it is on today's distributions
        if os.path.islink(f"/{link}"):
            if (folder / link).is_dir():
                shutil.copytree(folder / link, folder / "usr" / link, dirs_exist_ok=True)
                shutil.rmtree(folder / link)
            (folder / link).symlink_to(f"usr/{link}")
    (folder / "usr/bin/sh").symlink_to("bash")
    for name in ("etc", "tmp", "proc", "dev", "run", "root"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\n")
    make_tree(folder / "testbed")
    return folder


def _copy(source: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(os.path.realpath(source), target)
    target.chmod(0o755)


def own_venv() -> Path | None:
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


class Episode:
    """A sandbox whose commands carry a mark, by which all that they have started is found."""

    def __init__(self, sandbox: BubblewrapSandbox):
        self.sandbox = sandbox
        self.mark = f"mark-{uuid.uuid4().hex}"

    def run(self, command: str, **options) -> ExecResult:
        environment = {"MARK": self.mark, **options.pop("environment", {})}
        return self.sandbox.run(command, environment=environment, **options)

    def says(self, command: str, **options) -> str:
        return self.run(command, **options).output.decode(errors="replace").strip()

    def python(self, code: str, **options) -> ExecResult:
        return self.run(f"python3 - <<'END'\n{code}\nEND", **options)

    def processes(self) -> int:
        return processes_of(self.mark)


def processes_of(mark: str) -> int:
    """How many living processes have `mark` in their environment or their command line."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            count += any(mark.encode() in (folder / name).read_bytes() for name in ("environ", "cmdline"))
        except OSError:
            continue
    return count


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def digest(folder: Path) -> str:
    """Of all names, modes and contents below a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path.relative_to(folder)} {path.lstat().st_mode}".encode())
        if path.is_file() and not path.is_symlink():
            found.update(path.read_bytes())
    return found.hexdigest()


@contextmanager
def episode(folder: Path, limits: Limits = SMALL, *, shell_left: bool = True, **base) -> Iterator[Episode]:
    """One episode, after which the next command works, the base is as it was, and nothing is left.

    Args:
        shell_left: whether the next command is expected to find a shell.
    """
    if not base:
        base = {"tree": make_tree(folder / "tree"), "venv": own_venv()}
    sources = [path for name, path in base.items() if name in ("tree", "rootfs")]
    before = [digest(path) for path in sources]
    sandbox = Bubblewrap().open(Base(**{"tree": None, **base}), limits)
    played = Episode(sandbox)
    holder = sandbox._held.process.pid
    try:
        yield played
        assert played.processes() == 0, "processes outlived their command"
        after = played.run("echo next")
        assert after.output == b"next\n" if shell_left else after.exit_code == 127
    finally:
        sandbox.close()
    assert played.processes() == 0 and not is_alive(holder), "processes outlived their episode"
    assert [digest(path) for path in sources] == before, "the base was written to"
