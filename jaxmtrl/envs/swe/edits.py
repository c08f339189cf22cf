"""The command `edit` from outside: how it comes into a sandbox, and commands that turn one text into another by it."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_TOOL = Path(__file__).with_name("edit_tool.py")
_START = "/run/swe/start"
_PROGRAM = '#!/bin/sh\nexec "$(command -v python3 || command -v python)" -IS "${0%/*}/../edit.py" "$@"\n'

SHOWN: Mapping[str, bytes] = {  # files by absolute path; bash reads the first at its start
    _START: b'PATH="$PATH:${BASH_ENV%/*}/bin"\n',
    "/run/swe/bin/edit": _PROGRAM.encode(),
    "/run/swe/edit.py": _TOOL.read_bytes(),
}
ENVIRONMENT: Mapping[str, str] = {"BASH_ENV": _START}


def edit_command(path: str, before: str | None, after: str) -> str:
    """A command by which `edit` turns the file `path` from one text into another.

    Args:
        before: None where there is no such file.
        after: ends in a line end, as `before` does unless it is None.
    """
    new = after.replace("\r\n", "\n").split("\n")
    if not before:
        replacements = [([], new[:-1] if new[-1] == "" else new)]
    else:
        replacements = _replacements(before.replace("\r\n", "\n").split("\n"), new)
    mark = _mark(line for pair in replacements for lines in pair for line in lines)
    body = "\n".join("\n".join(["<" * mark, *old, "=" * mark, *new, ">" * mark]) for old, new in replacements)
    end = "E"
    while any(line == end for line in body.split("\n")):
        end += "E"
    return f"edit {shlex.quote(path)} <<'{end}'\n{body}\n{end}"


def _replacements(before: Sequence[str], after: Sequence[str]) -> list[tuple[list[str], list[str]]]:
    """Pieces of the texts that differ, each with as few lines around as make its old lines the only such ones.

    Lines that are copied teach little and can go wrong; where lines only come or go, one beside them says where.
    `edit` does them one after the other, so a piece is looked for where those before it have been done.
    """
    groups = difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_grouped_opcodes(0)
    spans = [(group[0][1], group[-1][2], group[0][3], group[-1][4]) for group in groups]
    found: list[tuple[list[str], list[str]]] = []
    for start, end, new_start, new_end in spans:
        current = [*after[:new_start], *before[start:]]  # what stands when its turn comes
        more = 0 if start < end and new_start < new_end else 1
        while True:
            back, high = min(more, new_start), min(len(before), end + more)
            old = [*after[new_start - back : new_start], *before[start:high]]
            if _count(current, old) == 1 or (back == new_start and high == len(before)):
                break
            more += 1
        found.append((old, [*after[new_start - back : new_end], *before[end:high]]))
    return found


def _count(lines: Sequence[str], piece: Sequence[str]) -> int:
    size = len(piece)
    return sum(list(lines[at : at + size]) == list(piece) for at in range(len(lines) - size + 1))


def _mark(lines: Iterable[str]) -> int:
    """Length of marks that no line can be taken for."""
    length = 4
    taken = {len(line.strip()) for line in lines if line.strip() and set(line.strip()) in ({"="}, {">"}, {"<"})}
    while length in taken:
        length += 1
    return length
