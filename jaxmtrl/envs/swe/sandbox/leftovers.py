"""What the death of a trainer can leave of a command: bwrap's child, if it comes before that has begun.

The child waits for a word of its parent until its mappings are set, and asks to die with it only afterwards. Some
milliseconds of each command; then it waits for ever, and keeps what its episode has written.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from jaxmtrl.envs.swe.sandbox.arguments import COMMAND


def reap() -> int:
    """Kills children of bwrap, of commands of ours, whose parent is gone. Returns how many."""
    killed = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            process = os.pidfd_open(int(folder.name))  # of no other one, should its number be used again
        except OSError:
            continue
        try:
            if _is_left(folder):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                killed += 1
        except (OSError, KeyError, UnicodeDecodeError):  # it has ended meanwhile, or is another user's
            continue
        finally:
            os.close(process)
    return killed


def _is_left(folder: Path) -> bool:
    """Whether it is process 1 of a namespace, has not begun its command, and has lost the bwrap that started it."""
    if (folder / "comm").read_text() != "bwrap\n":
        return False
    words = (folder / "cmdline").read_bytes().split(b"\0")
    fields = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
    first = fields["NSpid"].split()[1:] == ["1"]
    ours = words[1:2] == [b"--args"] and words[3:6] == [b"--", b"bash", COMMAND.encode()]
    return ours and first and Path("/proc", fields["PPid"], "comm").read_text() != "bwrap\n"
