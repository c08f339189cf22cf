"""What bubblewrap must be able to do on this machine, each tried for real in a sandbox over a made-up tree.

A probe runs commands as a policy would and looks at what came of them; what it finds names the cure.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread

from jaxmtrl.envs.swe.sandbox.advice import cannot_open, kernel
from jaxmtrl.envs.swe.sandbox.api import Backend, Base, Limits, Probe, Sandbox
from jaxmtrl.errors import SandboxFailure

_MIB = 1 << 20
_SMALL = Limits(
    command_s=5.0, processes=40, resident=200 * _MIB, workspace=16 * _MIB, temporary=8 * _MIB, file_size=64 * _MIB
)
_SLOW_S = 1.0  # of a command that does nothing, above which episodes wait for their sandbox
_BUG = "this is a fault of jaxmtrl's sandbox or of the kernel: do not train here, and report it with this line"


def probe(backend: Backend) -> Sequence[Probe]:
    """Every probe, in a few seconds; only the first where no sandbox can be opened at all."""
    with tempfile.TemporaryDirectory(prefix="jaxmtrl-probe-") as folder:
        tree = Path(folder) / "tree"
        (tree / "folder").mkdir(parents=True)
        (tree / "folder" / "file").write_text("base\n")
        base = Base(tree=tree)
        began = time.monotonic()
        try:
            sandbox = backend.open(base, _SMALL)
        except SandboxFailure as err:
            return [Probe(name="a sandbox can be opened", passed=False, found=str(err), cure=cannot_open(str(err)))]
        try:
            opened_s = time.monotonic() - began
            first = _opens(sandbox, opened_s)
            if not first.passed:
                return [first]
            made = [first, *(_guarded(name, lambda test=test: test(sandbox)) for name, test in _TESTS.items())]
            made.append(_guarded("the base stays as it was", lambda: _base_untouched(tree)))
            made.append(_guarded("process limits are an episode's own", lambda: _side_by_side(backend, base, sandbox)))
        finally:
            sandbox.close()
        return [*made, _guarded("nothing is left of an episode", lambda: _nothing_left(backend, base))]


def refusal(sandbox: Sandbox) -> str:
    """Which of the walls between a policy and the machine does not hold, with the cure; "" where all do."""
    for name in _WALLS:
        found = _guarded(name, lambda test=_TESTS[name]: test(sandbox))
        if not found.passed:
            return f"not so: {name} ({found.found}). {found.cure}."
    return ""


def _guarded(name: str, test: Callable[[], tuple[bool, str, str]]) -> Probe:
    """Args: test: returns whether it holds, what was seen, and what to do where it does not."""
    try:
        passed, found, cure = test()
    except (SandboxFailure, OSError, ValueError) as err:
        passed, found, cure = False, str(err), _BUG
    return Probe(name=name, passed=passed, found=found, cure="" if passed else cure)


def _opens(sandbox: Sandbox, opened_s: float) -> Probe:
    name = "a command runs in a sandbox"
    try:
        result = sandbox.run("echo fine")
    except SandboxFailure as err:
        return Probe(name=name, passed=False, found=str(err), cure=cannot_open(str(err)))
    found = f"{kernel()}, opened in {opened_s * 1000:.0f} ms"
    return Probe(name=name, passed=result.output == b"fine\n", found=found, cure="" if result.output else _BUG)


def _says(sandbox: Sandbox, command: str) -> str:
    return sandbox.run(command).output.decode(errors="replace").strip()


def _network(sandbox: Sandbox) -> tuple[bool, str, str]:
    said = _says(
        sandbox,
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '; "
        "(exec 3<>/dev/tcp/8.8.8.8/53) 2>/dev/null && echo connected",
    )
    return "connected" not in said and "eth" not in said, f"interfaces: {said}", _BUG


def _read_only(sandbox: Sandbox) -> tuple[bool, str, str]:
    said = _says(sandbox, "for f in /usr/x /etc/x /x /dev/x /run/x; do (echo > $f) 2>/dev/null && echo $f; done")
    return said == "", f"could write {said}" if said else "/usr, /etc, /, /dev and /run refuse writes", _BUG


def _overlay(sandbox: Sandbox) -> tuple[bool, str, str]:
    said = _says(
        sandbox,
        "rm -r folder && mkdir folder && echo new > folder/new && mv folder renamed && rmdir renamed || ls renamed",
    )
    changed = {(file.path, file.content) for file in sandbox.changes().files}
    wanted = {("folder/file", None), ("renamed/new", b"new\n")}
    holds = changed == wanted and said.endswith("new")
    cure = "a kernel of 6.6 or newer (before it, overlays in memory need a trainer that runs as root)"
    return holds, "folders can be removed, made again, renamed" if holds else said or f"changes: {changed}", cure


def _quota(sandbox: Sandbox) -> tuple[bool, str, str]:
    sizes = []
    for folder in ("/testbed", "/tmp", "/dev/shm"):
        write = f"head -c 40000000 /dev/zero > {folder}/fill 2>/dev/null; stat -c %s {folder}/fill; rm {folder}/fill"
        sizes.append(int(_says(sandbox, write) or 0))
    bounds = (_SMALL.workspace, _SMALL.temporary, _SMALL.temporary)
    holds = all(size <= bound for size, bound in zip(sizes, bounds))
    return holds, "workspace, /tmp, /dev/shm took " + ", ".join(f"{size / _MIB:.0f} MiB" for size in sizes), _BUG


def _tree_dies(sandbox: Sandbox) -> tuple[bool, str, str]:
    mark = f"jaxmtrl-{uuid.uuid4().hex}"
    began = time.monotonic()
    sandbox.run(f"(exec -a {mark} setsid sleep 60) & (trap '' TERM; exec -a {mark} sleep 60) & sleep 0.1")
    took = time.monotonic() - began
    left = sum(mark in line for line in _all_command_lines())
    return left == 0 and took < 3, f"{left} of 2 processes outlived their command; it took {took:.1f} s", _BUG


def _time_out(sandbox: Sandbox) -> tuple[bool, str, str]:
    result = sandbox.run("trap '' TERM INT HUP; while :; do :; done", wall_s=0.5)
    return result.why == "timeout" and result.wall_s < 3, f"killed after {result.wall_s:.2f} s", _BUG


def _no_environment(sandbox: Sandbox) -> tuple[bool, str, str]:
    said = _says(sandbox, "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    ours = {value for name, value in os.environ.items() if len(value) >= 8 and value not in _SYSTEM_VALUES}
    found = sorted(value for value in ours if f"={value}" in said.splitlines() or value in said.splitlines())
    return not found, f"{len(found)} of the trainer's variables can be read inside", _BUG


_SYSTEM_VALUES = ("/bin/bash", "C.UTF-8", "xterm-256color")


def _system_calls(sandbox: Sandbox) -> tuple[bool, str, str]:
    mode = _says(sandbox, "grep -s ^Seccomp: /proc/self/status | tr -dc 0-9")
    new = _says(sandbox, "unshare --user true 2>/dev/null && echo made; unshare --mount true 2>/dev/null && echo made")
    return mode == "2" and new == "", f"filter mode {mode or '?'}, new namespaces {new or 'refused'}", _BUG


def _rights(sandbox: Sandbox) -> tuple[bool, str, str]:
    said = _says(sandbox, "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -s '\\t\\n' ' '")
    holds = said.split() == ["1000", "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    return holds, " ".join(said.split()), _BUG


def _fork_limit(sandbox: Sandbox) -> tuple[bool, str, str]:
    result = sandbox.run("for i in $(seq 100); do sleep 20 & done 2>/dev/null; jobs -p | wc -l", wall_s=2)
    said = result.output.decode(errors="replace")
    refused = b"Resource temporarily unavailable" in result.output or result.why == "timeout"
    return refused, "stopped at 40 processes" if refused else f"started {said.strip()[-60:]} of 100", _BUG


def _memory(sandbox: Sandbox) -> tuple[bool, str, str]:
    one = "head -c 70000000 /dev/zero | tail -c 70000000 | sleep 8"
    result = sandbox.run(f"for i in 1 2 3 4 5; do {one} & done; wait", wall_s=8)
    holds = result.why == "oom"
    cure = "a kernel with CONFIG_PROC_CHILDREN, which says what a command has started"
    return holds, f"{result.why or 'not killed'} at {result.peak_resident / _MIB:.0f} MiB of 200", cure


def _quick(sandbox: Sandbox) -> tuple[bool, str, str]:
    took = []
    for _ in range(5):
        began = time.monotonic()
        sandbox.run("true")
        took.append(time.monotonic() - began)
    median = statistics.median(took)
    return median < _SLOW_S, f"{median * 1000:.0f} ms a command", "fewer sandboxes at once, or more cores"


def _zombies(sandbox: Sandbox) -> tuple[bool, str, str]:
    sandbox.run("true")
    left = _dead_bwraps()  # ours, and perhaps of episodes beside us
    deadline = time.monotonic() + 8
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left &= _dead_bwraps()
    cure = "a process 1 that takes in orphans: docker run --init, or shareProcessNamespace in a pod"
    return not left, f"{len(left)} dead processes that nobody takes in", cure


_TESTS: dict[str, Callable[[Sandbox], tuple[bool, str, str]]] = {
    "the network is off": _network,
    "the system is read-only": _read_only,
    "the workspace is an overlay that tells its changes": _overlay,
    "what can be written is bounded": _quota,
    "everything dies with its command": _tree_dies,
    "a command that ignores signals is killed": _time_out,
    "the trainer's environment stays outside": _no_environment,
    "system calls are filtered": _system_calls,
    "commands have no rights": _rights,
    "processes are bounded": _fork_limit,
    "memory is watched": _memory,
    "commands start quickly": _quick,
    "dead processes are taken in": _zombies,
}
# Looked at by whoever opens sandboxes, every time: some milliseconds each, and nothing here fails on a busy machine.
_WALLS = ("the network is off", "the system is read-only", "system calls are filtered", "commands have no rights")


def _base_untouched(tree: Path) -> tuple[bool, str, str]:
    files = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file()}
    return files == {"folder/file": "base\n"}, f"{len(files)} file as before" if len(files) == 1 else str(files), _BUG


def _side_by_side(backend: Backend, base: Base, sandbox: Sandbox) -> tuple[bool, str, str]:
    """Two episodes of 30 processes each under a limit of 40."""
    said: list[str] = []
    other = backend.open(base, _SMALL)
    try:
        command = "for i in $(seq 30); do sleep 5 & done; jobs -p | wc -l; sleep 0.7"
        threads = [Thread(target=lambda one=one: said.append(_says(one, command))) for one in (sandbox, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        other.close()
    cure = "a kernel of 5.14 or newer, which counts processes in each sandbox for itself"
    return said == ["30", "30"], "30 and 30 processes under a limit of 40" if said == ["30", "30"] else str(said), cure


def _nothing_left(backend: Backend, base: Base) -> tuple[bool, str, str]:
    mark = f"jaxmtrl-{uuid.uuid4().hex}"
    sandbox = backend.open(base, _SMALL)
    sandbox.run(f"(exec -a {mark} sleep 60) & head -c 8000000 /dev/urandom > file")
    began = time.monotonic()
    sandbox.close()
    took = time.monotonic() - began
    left = sum(mark in line for line in _all_command_lines())
    return left == 0 and took < 1, f"{left} processes; closed in {took * 1000:.0f} ms", _BUG


def _all_command_lines() -> list[str]:
    """Of every process that we can see."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:  # it has ended meanwhile
            continue
    return found


def _dead_bwraps() -> set[str]:
    """Zombies of bubblewrap that belong to process 1: their folders in /proc."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name == "bwrap" and state == "Z" and parent == "1":
            found.add(str(path))
    return found
