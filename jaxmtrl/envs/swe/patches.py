"""Unified diffs as git writes them: made, turned round, applied. Knows no instance."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jaxmtrl.errors import EnvironmentFailure, JaxmtrlError

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)", re.DOTALL | re.ASCII)
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPES = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\'))
_NO_NEWLINE = "\\ No newline at end of file\n"


class PatchError(JaxmtrlError):
    """A patch that is none, or does not fit the files."""


class GitError(EnvironmentFailure):
    """What git said of what it did not do."""


def make_patch(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The diff from one set of files to another; a path that is missing on one side is made or removed."""
    return "".join(
        _file_patch(path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def _file_patch(path: str, old: str | None, new: str | None) -> str:
    header = f"diff --git a/{path} b/{path}\n"
    header += "new file mode 100644\n" if old is None else "deleted file mode 100644\n" if new is None else ""
    names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
    lines = difflib.unified_diff(_lines(old or ""), _lines(new or ""), *names, n=3)
    # a line without its end is the last of its file; git marks it
    return header + "".join(line if line.endswith("\n") else line + "\n" + _NO_NEWLINE for line in lines)


def _lines(text: str) -> list[str]:
    """Lines as git counts them: ended by line feeds alone, whatever Python's `splitlines` thinks of form feeds."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def reverse_patch(patch: str) -> str:
    """The diff that undoes `patch`.

    Raises:
        PatchError: it is no unified diff, copies a file, or has binary files.
    """
    out: list[str] = []
    for kind, lines in _sections(patch):
        out += _reverse_hunk(lines) if kind == "hunk" else _reverse_header(lines)
    return "".join(out)


def patched_paths(patch: str) -> tuple[str, ...]:
    """Paths that a patch makes, changes or removes, sorted.

    Raises:
        PatchError: as for `reverse_patch`.
    """
    paths: set[str] = set()
    header = ""  # of a file that no line of its own names yet, as of empty ones
    for kind, lines in _sections(patch):
        for line in lines if kind == "header" else ():
            line = line.rstrip("\r\n")
            if line.startswith("diff --git "):
                header = line
            elif line.startswith(("--- ", "+++ ")):
                name = unquoted(line[4:].split("\t")[0])
                paths.update({name[2:]} if name.startswith(("a/", "b/")) else ())
            elif match := re.match("(?:rename from|rename to|copy to) ", line):
                paths.add(unquoted(line[match.end() :]))
            elif header and line.startswith(("new file mode ", "deleted file mode ", "new mode ")):
                paths.update(_same_path(header))
    return tuple(sorted(paths))


def _same_path(header: str) -> set[str]:
    """The path that both names of `diff --git a/PATH b/PATH` have; none where they differ."""
    names = header.removeprefix("diff --git ")
    old, new = (unquoted(name.strip()) for name in (names[: len(names) // 2], names[len(names) // 2 :]))
    return {old[2:]} if old[:2] == "a/" and new[:2] == "b/" and old[2:] == new[2:] else set()


def unquoted(name: str) -> str:
    """A path as git writes it: in quotes, with escapes, where it has letters beyond ASCII."""
    if len(name) < 2 or name[0] != '"' or name[-1] != '"':
        return name

    def letter(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 0xFF if len(code) == 3 else _ESCAPES[code[0]]])

    return _ESCAPE.sub(letter, name[1:-1].encode("utf-8", "replace")).decode("utf-8", "replace")


def _sections(patch: str) -> Iterator[tuple[str, list[str]]]:
    """("header" or "hunk", its lines) in order; a hunk ends where its counts say, whatever its lines look like."""
    lines = _lines(patch if patch.endswith("\n") or not patch else patch + "\n")
    at = 0
    header: list[str] = []
    while at < len(lines):
        match = _HUNK.fullmatch(lines[at])
        if match is None:
            if lines[at].startswith(("GIT binary patch", "Binary files ")):
                raise PatchError(f"line {at + 1} of a patch is of a binary file; only text can be patched")
            if lines[at].startswith("@@ -"):
                raise PatchError(f"line {at + 1} of a patch begins no hunk as it should: {lines[at][:60]!r}")
            header.append(lines[at])
            at += 1
            continue
        yield "header", header
        header = []
        end = _hunk_end(lines, at, int(match[2] or 1), int(match[4] or 1))
        yield "hunk", lines[at:end]
        at = end
    yield "header", header


def _hunk_end(lines: list[str], start: int, old: int, new: int) -> int:
    at = start + 1
    while (old > 0 or new > 0) and at < len(lines):
        mark = lines[at][0]
        if mark not in " +-\\\n":
            break
        old -= mark in " -\n"  # editors strip the blank of an empty line of context
        new -= mark in " +\n"
        at += 1
    if old or new:
        raise PatchError(f"the hunk in line {start + 1} of a patch has not as many lines as it says")
    while at < len(lines) and lines[at].startswith("\\"):
        at += 1
    return at


def _reverse_hunk(lines: list[str]) -> list[str]:
    match = _HUNK.fullmatch(lines[0])
    assert match is not None
    old, new = match[1] + (f",{match[2]}" if match[2] else ""), match[3] + (f",{match[4]}" if match[4] else "")
    out = [f"@@ -{new} +{old} @@{match[5]}"]
    removed: list[str] = []  # of one run of changes: what goes stands before what comes
    added: list[str] = []
    last = out
    for line in lines[1:]:
        if line[0] == "\\":
            last.append(line)
        elif line[0] in "+-":
            last = removed if line[0] == "+" else added
            last.append(("-" if line[0] == "+" else "+") + line[1:])
        else:
            out += removed + added
            removed, added, last = [], [], out
            out.append(line)
    return out + removed + added


def _reverse_header(lines: list[str]) -> list[str]:
    """Files whose contents stay have no hunk, so that the lines of several may stand together."""
    bounds = [0, *(at for at, line in enumerate(lines) if line.startswith("diff --git ")), len(lines)]
    return [line for start, end in zip(bounds, bounds[1:]) for line in _reverse_file(lines[start:end])]


def _reverse_file(lines: list[str]) -> list[str]:
    swaps = {
        "new file mode ": "deleted file mode ",
        "deleted file mode ": "new file mode ",
        "old mode ": "new mode ",
        "new mode ": "old mode ",
        "rename from ": "rename to ",
        "rename to ": "rename from ",
    }
    out: list[str] = []
    if any(line.startswith("copy to ") for line in lines):
        raise PatchError("a patch that copies a file cannot be turned round; write the copy as a new file")
    renames = [match for line in lines if (match := re.match("rename (from|to) ([^\r\n]+)", line))]
    renamed = {match[1]: match[2] for match in renames}
    for line in lines:
        if renamed and line.startswith("diff --git "):
            out.append(f"diff --git a/{renamed.get('to')} b/{renamed.get('from')}\n")
            continue
        start = next((start for start in swaps if line.startswith(start)), None)
        if start is not None:
            out.append(swaps[start] + line[len(start) :])
        elif line.startswith(("--- ", "+++ ")):
            name = line[4:]
            side = {"a/": "b/", "b/": "a/"}.get(name[:2])
            out.append(("+++ " if line[0] == "-" else "--- ") + (side + name[2:] if side else name))
            if len(out) >= 2 and out[-1].startswith("--- ") and out[-2].startswith("+++ "):
                out[-2:] = [out[-1], out[-2]]
        elif not line.startswith("index "):  # names of contents, the wrong way round
            out.append(line)
    return out


def apply_patch(folder: Path, patch: str) -> None:
    """Changes the files of `folder`, all or none. Use it on trees that no policy has written to: it calls git.

    Raises:
        PatchError: it does not fit; with git's words.
    """
    if not patch.strip():
        return
    data = patch if patch.endswith("\n") else patch + "\n"
    try:
        run_git(["apply", "--whitespace=nowarn", "-"], folder, git_environment(folder), data.encode("utf-8"))
    except GitError as err:
        raise PatchError(f"a patch does not fit: {err}") from err


def run_git(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], given: bytes = b"") -> None:
    """Runs git in a folder.

    Raises:
        GitError: it did not do what was asked; with its words.
        EnvironmentFailure: there is no git.
    """
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, input=given, capture_output=True)
    except FileNotFoundError as err:
        raise EnvironmentFailure("git is not installed; install it: apt-get install git") from err
    if done.returncode != 0:
        verb = next(word for word in arguments if "=" not in word and word != "-c")
        raise GitError(
            done.stderr.decode("utf-8", "replace").strip()[-800:] or f"git {verb} ended with {done.returncode}"
        )


def git_environment(folder: Path) -> dict[str, str]:
    """Variables under which git knows no user, no settings of this machine and no repository above `folder`."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent),
        "GIT_TERMINAL_PROMPT": "0",
    }
