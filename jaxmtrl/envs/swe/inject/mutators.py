"""Faults that a line of Python can have: where one can be set, and the text that sets it.

A fault is a replacement of bytes at the offsets of a syntax tree's node, so that all else keeps its form. Only code
within functions is touched: what runs while a module is imported belongs to no test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jaxmtrl.envs.swe.syntax import parsed


@dataclass(frozen=True, kw_only=True, order=True)
class Site:
    """One fault that can be set."""

    path: str  # within the repository
    start: int  # bytes of the file that are replaced
    end: int
    kind: str
    replacement: bytes
    first_line: int  # lines that run it
    last_line: int
    function: str  # "Class.method" that it is in


_COMPARISONS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is not": "is",
    "is": "is not",
    "not in": "in",
    "in": "not in",
}
_ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_STUB_LINES = (3, 40)  # a function's length where its whole body may be taken away
Edits = Iterator[tuple[int, int, str]]  # bytes from, to, and what comes there


def find_sites(path: str, source: bytes) -> list[Site]:
    """Every fault that can be set in a file, in order; none where it is not plain UTF-8 Python."""
    try:
        tree = parsed(source.decode("utf-8"))
    except (SyntaxError, ValueError):
        return []
    if b"\r" in source or source.startswith(b"\xef\xbb\xbf") or b"\x0c" in source:
        return []  # offsets of lines would not be ours
    finder = _Finder(path, source)
    finder.enter(tree, "", inside=False)
    return sorted(finder.sites)


def mutate(source: bytes, sites: Sequence[Site]) -> bytes:
    """The file with faults of its own, which do not overlap, in it."""
    for site in sorted(sites, reverse=True):
        source = source[: site.start] + site.replacement + source[site.end :]
    return source


def is_fault(source: bytes, sites: Sequence[Site]) -> bool:
    """Whether the result is Python, and another program; takes as long as parsing twice."""
    try:
        changed = parsed(mutate(source, sites))
    except (SyntaxError, ValueError):
        return False
    return ast.dump(changed) != ast.dump(parsed(source))


class _Finder:
    def __init__(self, path: str, source: bytes):
        self.path = path
        self.text = _Text(source)
        self.sites: list[Site] = []

    def enter(self, node: ast.AST, function: str, *, inside: bool) -> None:
        """Looks at what is below `node`; not at annotations, decorators and defaults, which run with the import."""
        if isinstance(node, _FUNCTIONS):
            name = f"{function}.{node.name}".lstrip(".")
            if inside is False and not _is_overload(node):
                self.add("stub", node, name, _stub(self.text, node), lines=(node.body[0].lineno, node.end_lineno or 0))
            for statement in node.body:
                self.visit(statement, name)
            return
        if isinstance(node, ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        for child in ast.iter_child_nodes(node):
            self.enter(child, function, inside=inside)

    def visit(self, node: ast.AST, function: str) -> None:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            self.enter(node, function, inside=True)
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        for kind, edits in _KINDS.items():
            self.add(kind, node, function, edits(self.text, node))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child, function)

    def add(self, kind: str, node: ast.AST, function: str, edits: Edits, lines: tuple[int, int] | None = None) -> None:
        for start, end, replacement in edits:
            first, last = lines or (getattr(node, "lineno", 0), getattr(node, "end_lineno", 0))
            if lines is None and isinstance(node, ast.If):
                last = node.test.end_lineno or first  # its head alone is enough to run it
            self.sites.append(
                Site(
                    path=self.path,
                    start=start,
                    end=end,
                    kind=kind,
                    replacement=replacement.encode("utf-8"),
                    first_line=first,
                    last_line=last,
                    function=function,
                )
            )


class _Text:
    """Bytes of a file by lines and columns of its syntax tree."""

    def __init__(self, source: bytes):
        self.source = source
        self.lines = [0]
        for line in source.split(b"\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)

    def start(self, node: ast.AST) -> int:
        return self.lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        return self.lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def of(self, node: ast.AST) -> str:
        return self.source[self.start(node) : self.end(node)].decode("utf-8")

    def swap(self, start: int, end: int, old: str, new: str) -> Edits:
        """`new` in place of the word or operator `old` that stands between two nodes, brackets and comments aside."""
        gap = self.source[start:end].decode("utf-8", "replace")
        if "#" in gap:
            return
        words = [re.escape(word) for word in old.split()]
        match = re.search((r"\b" if old[0].isalpha() else "") + r"\s+".join(words), gap)
        if match:
            yield start + len(gap[: match.start()].encode()), start + len(gap[: match.end()].encode()), new


def _compare(text: _Text, node: ast.AST) -> Edits:
    if not isinstance(node, ast.Compare):
        return
    left: ast.expr = node.left
    names = {
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.Gt: ">",
        ast.GtE: ">=",
        ast.Eq: "==",
        ast.NotEq: "!=",
        ast.Is: "is",
        ast.IsNot: "is not",
        ast.In: "in",
        ast.NotIn: "not in",
    }
    for operator, right in zip(node.ops, node.comparators):
        name = names[type(operator)]
        yield from text.swap(text.end(left), text.start(right), name, _COMPARISONS[name])
        left = right


def _bool(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:]):
            yield from text.swap(text.end(left), text.start(right), old, new)


def _arith(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node.left, node.right):
        yield from text.swap(text.end(node.left), text.start(node.right), *_ARITHMETIC[type(node.op)])
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC and not _is_text(node.value):
        old, new = _ARITHMETIC[type(node.op)]
        yield from text.swap(text.end(node.target), text.start(node.value), old + "=", new + "=")


def _is_text(*nodes: ast.AST) -> bool:
    """Whether an operand is text for sure: then another operator would fail at once, wherever it runs."""
    kinds = (ast.JoinedStr, ast.List, ast.Dict, ast.ListComp, ast.Tuple)
    return any(
        isinstance(node, kinds) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for node in nodes
    )


def _off_by_one(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= 1000:
        yield text.start(node), text.end(node), str(node.value + 1)
        if node.value > 1:
            yield text.start(node), text.end(node), str(node.value - 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        yield text.start(node), text.end(node), f"({text.of(node)} - 1)"


def _negate(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.If | ast.IfExp) and not (
        isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
    ):
        yield text.start(node.test), text.end(node.test), f"not ({text.of(node.test)})"


def _drop_not(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield text.start(node), text.start(node.operand), ""


def _swap_arguments(text: _Text, node: ast.AST) -> Edits:
    if not isinstance(node, ast.Call) or any(isinstance(argument, ast.Starred) for argument in node.args):
        return
    if isinstance(node.func, ast.Name) and node.func.id in (
        "isinstance",
        "issubclass",
        "hasattr",
        "getattr",
        "max",
        "min",
    ):
        return  # the order does not matter, or they fail at once
    for left, right in zip(node.args, node.args[1:]):
        between = text.source[text.end(left) : text.start(right)].decode("utf-8", "replace")
        if text.of(left) != text.of(right) and "#" not in between:
            yield text.start(left), text.end(right), text.of(right) + between + text.of(left)


def _return_none(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.Return) and node.value is not None and text.of(node.value) != "None":
        yield text.start(node.value), text.end(node.value), "None"


def _drop_assignment(text: _Text, node: ast.AST) -> Edits:
    """A step that is forgotten; names that are only set here stay, or the function would fail at once."""
    if isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Assign)
        and all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    ):
        yield text.start(node), text.end(node), "pass"
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
    ):
        yield text.start(node), text.end(node), "pass"  # x = f(x)


def _drop_guard(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.If) and not node.orelse and len(node.body) == 1:
        head = text.source[text.lines[node.lineno - 1] : text.start(node)]
        if isinstance(node.body[0], ast.Return | ast.Raise | ast.Continue | ast.Break) and not head.strip():
            if not text.source[text.start(node) :].startswith(b"elif"):
                yield text.start(node), text.end(node), "pass"


def _drop_call(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield text.start(node), text.end(node), "pass"


def _flip(text: _Text, node: ast.AST) -> Edits:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield text.start(node), text.end(node), str(not node.value)


def _stub(text: _Text, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Edits:
    """The whole body is to be written again, from its docstring and its tests."""
    body = node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1:
        body = body[1:]
    lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
    if _STUB_LINES[0] <= lines <= _STUB_LINES[1] and node.name != "__init__" and body[0].lineno > node.lineno:
        if not any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node)):
            yield text.start(body[0]), text.end(body[-1]), "return None"


def _is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("overload" in ast.unparse(decorator) for decorator in node.decorator_list)


_KINDS: dict[str, Callable[[_Text, ast.AST], Edits]] = {
    "arith": _arith,
    "bool": _bool,
    "cmp": _compare,
    "flip": _flip,
    "negif": _negate,
    "not": _drop_not,
    "offbyone": _off_by_one,
    "retnone": _return_none,
    "rmassign": _drop_assignment,
    "rmcall": _drop_call,
    "rmguard": _drop_guard,
    "swapargs": _swap_arguments,
}
SINGLE_KINDS = tuple(_KINDS)
KINDS = (*SINGLE_KINDS, "multi", "stub")
