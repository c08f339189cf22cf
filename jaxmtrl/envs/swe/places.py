"""Where a repair is made: what `env.options.hint` tells, and what one who knows it looks at."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from jaxmtrl.envs.swe.sandbox.api import Base, FileChange
from jaxmtrl.envs.swe.screen import base_file
from jaxmtrl.envs.swe.syntax import parsed

_AROUND = 8  # lines before and after, where it is in no function
_PIECE = 30  # lines of a function that are named together
_OVERLAP = 2  # lines of the next piece, so that what is beside the fault is seen with it


@dataclass(frozen=True, kw_only=True)
class Place:
    """Lines of a file in which something is to be replaced; counted from 1, both ends included."""

    first: int
    last: int
    function: ast.FunctionDef | ast.AsyncFunctionDef | None  # the innermost around it
    changed: int  # the last line that is replaced


def places(path: str, before: str, after: str) -> list[Place]:
    """Every place where a file differs from what it is to become: in a function a piece of it, else lines around.

    Pieces are counted from the function's first line, so that their ends do not tell where in them the fault is.
    """
    lines = before.split("\n")
    functions = _functions(before) if path.endswith(".py") else []
    found = []
    for kind, start, end, _, _ in difflib.SequenceMatcher(a=lines, b=after.split("\n"), autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        changed = max(end, start + 1)
        around = [function for function in functions if function.lineno <= start + 1 <= (function.end_lineno or 0)]
        if around:
            inner = around[-1]
            before_it = (start + 1 - inner.lineno) // _PIECE * _PIECE
            after_it = -(-(changed - inner.lineno + 1) // _PIECE) * _PIECE
            first = inner.lineno + before_it - (_OVERLAP if before_it else 0)
            last = min(inner.lineno + after_it - 1 + _OVERLAP, max(changed, inner.end_lineno or 0))
        else:
            inner = None
            first, last = max(1, start + 1 - _AROUND), min(len(lines), end + _AROUND)
        found.append(Place(first=first, last=last, function=inner, changed=changed))
    return found


def hint(base: Base, gold: Sequence[FileChange]) -> str:
    """Says which lines the known repair replaces something in; "" where it replaces none of text.

    Args:
        base: as the policy meets it.
        gold: what the repair makes of which files.
    """
    found: dict[str, None] = {}
    for change in gold:
        try:
            before, after = (base_file(base, change.path) or b"").decode(), (change.content or b"").decode()
        except UnicodeDecodeError:
            continue
        if before and change.content is not None:
            for place in places(change.path, before, after):
                found[f"Look at lines {place.first} to {place.last} of {change.path}."] = None
    return "\n".join(found)


def _functions(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function in order of its first line, so that of those around a place the innermost is the last."""
    try:
        nodes = list(ast.walk(parsed(text)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sorted(functions, key=lambda node: node.lineno)
