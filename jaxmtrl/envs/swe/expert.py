"""How one plays who knows the repair: looks at the place, edits it, submits."""

from __future__ import annotations

import ast
import difflib
import shlex
from collections.abc import Sequence
from typing import Literal

from jaxmtrl.envs.swe.actions import Form, write_command, write_submit
from jaxmtrl.envs.swe.edits import edit_command
from jaxmtrl.envs.swe.sandbox.api import Base, FileChange
from jaxmtrl.envs.swe.screen import base_file
from jaxmtrl.envs.swe.syntax import parsed

_AROUND = 8  # lines shown before and after what will be edited, where it is in no function
_ROUND = 20  # lines shown of a function, and multiples of it: a number that can be guessed


def gold_actions(
    base: Base, gold: Sequence[FileChange], *, form: Form, way: Literal["direct", "looking"]
) -> list[str] | None:
    """Answers that do the known repair.

    Args:
        base: as the policy meets it.
        gold: what the repair makes of which files.
        way: looking: shows the lines first, so that what is edited has been read.

    Returns:
        None where the repair is not of text, or there is none.
    """
    commands: list[str] = []
    for change in gold:
        try:
            before = (base_file(base, change.path) or b"").decode()
            after = (change.content or b"").decode()
        except UnicodeDecodeError:
            return None
        if change.content is None:
            commands.append(f"rm {shlex.quote(change.path)}")
        elif before != after:
            commands += [_look(change.path, before, after)] if way == "looking" and before else []
            commands.append(edit_command(change.path, before or None, after))
    return [*(write_command(command, form) for command in commands), write_submit(form)] if commands else None


def _look(path: str, before: str, after: str) -> str:
    """A command that shows the places of a file that differ: functions by their names, else lines by their numbers."""
    lines = before.split("\n")
    opcodes = difflib.SequenceMatcher(a=lines, b=after.split("\n"), autojunk=False).get_opcodes()
    functions = _functions(before) if path.endswith(".py") else []
    found: dict[str, None] = {}
    for kind, start, end, _, _ in opcodes:
        if kind == "equal":
            continue
        around = [function for function in functions if function.lineno <= start + 1 <= (function.end_lineno or 0)]
        if around:
            inner = around[-1]
            after_it = -(-(max(end, start + 1) - inner.lineno + 1) // _ROUND) * _ROUND
            found[f"grep -n -A {after_it} 'def {inner.name}(' {shlex.quote(path)}"] = None
        else:
            first, last = max(1, start + 1 - _AROUND), min(len(lines), end + _AROUND)
            found[f"cat -n {shlex.quote(path)} | sed -n '{first},{last}p'"] = None
    return "\n".join(found)


def _functions(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function in order of its first line, so that of those around a place the innermost is the last."""
    try:
        nodes = list(ast.walk(parsed(text)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sorted(functions, key=lambda node: node.lineno)
