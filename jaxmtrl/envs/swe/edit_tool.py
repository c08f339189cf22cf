"""The command `edit` of a sandbox: replaces whole lines of a file by others, exactly or not at all.

    edit FILE <<'E'
    <<<<
    lines as they stand in the file
    ====
    lines that take their place
    >>>>
    E

It is shown to the policy's commands and run by their Python (3.6 or newer), so it imports nothing but the standard
library. Several replacements may follow one another; all are done or none. Nothing before ==== makes a new file. Marks
may be longer, all three alike, where the text itself has such lines.
"""

import os
import re
import sys
import warnings

USAGE = "usage: edit FILE <<'E'\n<<<<\nold lines\n====\nnew lines\n>>>>\nE"
_OPEN = re.compile("<{4,}")
_SHOWN = 8  # lines of the result that are printed


class Refused(Exception):
    """Nothing was written; the message says why."""


def read_replacements(text):
    """Pairs of (old lines, new lines) in the order in which they stand."""
    found, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        mark = lines[at].strip()
        if not _OPEN.fullmatch(mark):
            raise Refused(f"expected a line of <<<<, got: {lines[at][:80]}\n{USAGE}")
        old, at = _until(lines, at + 1, "=" * len(mark))
        new, at = _until(lines, at, ">" * len(mark))
        for sign in "<=":
            if sign * len(mark) in map(str.rstrip, [*old, *new]):
                told = f"a line of {sign * len(mark)} stands where lines of the file should: if it is one of them"
                raise Refused(f"{told}, make all three marks longer\n{USAGE}")
        found.append((old, new))
    if not found:
        raise Refused(f"nothing to do: no replacement was given\n{USAGE}")
    return found


def _until(lines, start, mark):
    """Lines before the mark, and where to go on after it."""
    for at in range(start, len(lines)):
        if lines[at].rstrip() == mark:
            return lines[start:at], at + 1
    raise Refused(f"a line of {mark} is missing\n{USAGE}")


def replaced(lines, old, new, name):
    """The lines with `old` replaced, and the place (from 0) where `new` begins."""
    if not old:
        if any(map(str.strip, lines)):
            raise Refused(f"{name} exists and is not empty: write the lines that shall be replaced before ====")
        return new, 0
    places = _places(lines, old)
    if len(places) > 1:
        where = ", ".join(str(place + 1) for place in places[:10])
        raise Refused(f"these lines stand {len(places)} times in {name} (at lines {where}): add lines around them")
    if not places:
        raise Refused(f"these lines are not in {name} as they were written. {_hint(lines, old)}")
    place = places[0]
    return lines[:place] + new + lines[place + len(old) :], place


def _places(lines, old):
    count = len(old)
    return [at for at in range(len(lines) - count + 1) if lines[at] == old[0] and lines[at : at + count] == old]


def _hint(lines, old):
    """What comes nearest to lines that are not there."""
    bare = [line.strip() for line in old]
    for place in _places([line.strip() for line in lines], bare):
        near = lines[place : place + len(old)]
        return "\n".join([f"Only the white space differs; the file has, at line {place + 1}:", *near[:_SHOWN]])
    wanted = next((line for line in bare if line), "")
    for place, line in enumerate(lines):
        if wanted and wanted in line:
            near = _numbered(lines, place, place + min(len(old), _SHOWN))
            return f"The file has, near its first line:\n{near}"
    return "Look at the file first, for example with: cat -n FILE"


def _numbered(lines, first, end):
    return "\n".join(f"{at + 1:6d}  {lines[at]}" for at in range(max(0, first), min(end, len(lines))))


def edit(name, text):
    """Does all replacements of `text` in the file and returns what to tell."""
    replacements = read_replacements(text)
    exists = os.path.lexists(name)
    if os.path.isdir(name):
        raise Refused(f"{name} is a folder")
    if exists and os.path.exists(name) and not os.path.isfile(name):
        raise Refused(f"{name} is no ordinary file")
    if not exists and (len(replacements) > 1 or replacements[0][0]):
        raise Refused(f"{name} does not exist; to make it, write nothing before ====")
    content = _read(name) if exists else ""
    lines, ends = _split(content)
    place, last = 0, []
    for old, new in replacements:
        before = len(lines)
        lines, place = replaced(lines, old, new, name)
        ends = _ends(ends, place, len(old) or before, len(new))
        last = new
    if lines and not replacements[0][0]:
        lines, ends = [*lines, ""], [*ends[:-1], ends[0] or "\n", ""]  # so that the last line has an end
    result = "".join(line + end for line, end in zip(lines, ends))
    if exists and result == content:
        raise Refused("the new lines are the old ones again: write after ==== what shall stand there instead")
    _write(name, result)
    shown = _numbered(lines, place - 2, place + min(len(last), _SHOWN) + 2)
    return f"{'edited' if exists else 'made'} {name}\n{shown}{_complaint(name, result)}"


def _split(content):
    """Lines, the last of which is empty where the file ends in a line end, and what each of them ends in."""
    parts = content.split("\n")
    ends = ["\r\n" if part.endswith("\r") else "\n" for part in parts[:-1]]
    return [part[:-1] if end == "\r\n" else part for part, end in zip(parts, ends)] + parts[-1:], [*ends, ""]


def _ends(ends, place, count, wanted):
    """Line ends where `wanted` lines have taken the place of `count`: new lines end as the one before them did."""
    old = ends[place : place + count]
    usual = next((end for end in [*old, *reversed(ends[:place]), *ends[place + count :]] if end), "\n")
    new = [*old, *[usual] * wanted][:wanted]
    if place + count == len(ends):  # the last line has none, nor has the one that takes its place
        new = [end or usual for end in new[:-1]] + [""] * bool(new)
    return ends[:place] + new + ends[place + count :]


def _complaint(name, content):
    """A word on Python that Python cannot read; the edit stands all the same."""
    if not name.endswith(".py"):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the rest of the file is not asked
            compile(content.encode("utf-8", "surrogateescape"), name, "exec", dont_inherit=True)
    except SyntaxError as err:
        return f"\nWARNING: {name} is no valid Python now: line {err.lineno}: {err.msg}"
    except (ValueError, RecursionError, MemoryError):
        return ""
    return ""


def _read(name):
    with open(name, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _write(name, content):
    """Writes the whole file, in place, for its folder may take no new ones; without room what was there comes back."""
    before = _bytes(name) if os.path.exists(name) else None
    folder = os.path.dirname(name)
    if folder:
        os.makedirs(folder, exist_ok=True)
    try:
        _put(name, content.encode("utf-8", "surrogateescape"))
    except OSError:
        if before is not None:
            _put(name, before)
        elif os.path.exists(name):
            os.unlink(name)
        raise


def _bytes(name):
    with open(name, "rb") as file:
        return file.read()


def _put(name, content):
    with open(name, "wb") as file:
        file.write(content)


def main(arguments):
    if len(arguments) != 1 or sys.stdin.isatty():
        print(USAGE)
        return 2
    try:
        told = edit(arguments[0], sys.stdin.buffer.read().decode("utf-8", "surrogateescape"))
    except (Refused, OSError) as err:
        _say(f"edit: {err}\nNothing was changed.")
        return 1
    _say(told)
    return 0


def _say(words):
    """Bytes that are no text come out as they are, whatever the language of the machine."""
    sys.stdout.buffer.write((words + "\n").encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
