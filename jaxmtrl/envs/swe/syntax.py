"""Python source as a tree, from any thread."""

from __future__ import annotations

import ast
import threading

# CPython 3.11 counts the depth of a tree under construction in one place for all threads, and raises SystemError
# ("AST constructor recursion depth mismatch") where two build at once: github.com/python/cpython/issues/106905.
_ONE_AT_A_TIME = threading.Lock()


def parsed(source: str | bytes) -> ast.Module:
    """The tree of a module.

    Raises:
        SyntaxError: it is no Python. ValueError: it holds NUL.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)
