"""What the policy is told of a fault, made from what the tests said of it; no model writes it.

Level a names the tests that fail; b shows what pytest says of two of them; c tells the behaviour alone, without where.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxmtrl.envs.swe.syntax import parsed

LEVELS = ("a", "b", "c")
_TRACE = 1000  # characters of what pytest says
_MOST_NAMED = 10
_PLACE = re.compile(r"^(?P<path>\S+\.py):(?P<line>\d+): ", re.MULTILINE)  # "tests/test_a.py:3: in test_x"
_MOST_LINES = 12  # of a test's statement
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_SCRATCH = re.compile(r"/tmp/[^\s'\"]*")
_EQUAL = re.compile(r"assert (?P<got>.+) == (?P<wanted>.+)")
_WHERE = re.compile(r"\s*\+\s+where (?P<got>.+) = (?P<call>[\w.]+\(.*\))")


def statements(name: str, tree: Path, texts: Mapping[str, str], messages: Mapping[str, str]) -> dict[str, str]:
    """By level.

    Args:
        tree: with the tests in it.
        texts, messages: what pytest says of each test, in the tests' order; two of them speak for all.
    """
    tests = list(texts)
    speakers = tests[:2] if len(tests) < 3 else [tests[0], tests[len(tests) // 2]]
    return {
        "a": _named(name, tests),
        "b": _traced(name, {test: texts[test] for test in speakers}),
        "c": _behaviour(name, [observed(texts[test], messages.get(test, ""), tree) for test in speakers]),
    }


def _named(name: str, tests: Sequence[str]) -> str:
    listed = "".join(f"\n- {test}" for test in tests[:_MOST_NAMED])
    more = f"\n- and {len(tests) - _MOST_NAMED} more" if len(tests) > _MOST_NAMED else ""
    return f"Tests of {name} fail that passed before:\n{listed}{more}\n\nFind the fault in the code and mend it.\n"


def _traced(name: str, texts: Mapping[str, str]) -> str:
    parts = [f"{name} does not do what its tests ask for. pytest says:\n"]
    for test, text in texts.items():
        parts.append(f"{test}\n\n{_indented(shorten(steady(text), _TRACE // len(texts)))}\n")
    return "\n".join(parts) + "\nFind the fault in the code and mend it.\n"


def _behaviour(name: str, seen: Sequence[str]) -> str:
    return f"{name} behaves otherwise than it should.\n\n" + "\n\n".join(dict.fromkeys(seen)) + "\n\nMend it.\n"


def observed(text: str, message: str, tests: Path) -> str:
    """One failure as somebody who uses the package would tell it: what was called, what came, what was to come."""
    message = steady(message).strip()
    lines = [line.strip() for line in message.split("\n")]
    assertion = next((match for line in lines if (match := re.match(r"(?:AssertionError: )?(assert .+)", line))), None)
    if assertion is not None:
        equal = _EQUAL.fullmatch(assertion[1])
        call = next((match for line in lines if (match := _WHERE.fullmatch(line))), None)
        if equal and call and equal["got"] == call["got"]:
            return f"`{call['call']}` gives `{equal['got']}`, but should give `{equal['wanted']}`."
        rest = [line for line in lines if line and not line.startswith("AssertionError")]
        return "This does not hold:\n\n" + _indented(_source(text, tests) + "\n" + shorten("\n".join(rest), 400))
    source = _source(text, tests)
    told = f"This ends with an error:\n\n{_indented(source)}\n\n" if source else ""
    return told + f"What it says: {shorten(message, 400)}"


def _source(text: str, tests: Path) -> str:
    """The test's own statement, whole, at the first place of a short traceback; "" where it is not to be found."""
    place = _PLACE.search(text)
    if place is None:
        return ""
    path, line = place["path"], int(place["line"])
    try:
        source = (tests / path).read_text("utf-8")
        tree = parsed(source)
    except (OSError, ValueError, SyntaxError):
        return ""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0) and not hasattr(node, "body")
    ]
    if not around:
        return ""
    node = min(around, key=lambda node: (node.end_lineno or 0) - node.lineno)
    lines = source.split("\n")[node.lineno - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], "    ..."]))


def steady(text: str) -> str:
    """The same words each time: no addresses, no names of scratch folders."""
    return _SCRATCH.sub("/tmp/...", _ADDRESS.sub("0x...", text))


def shorten(text: str, most: int) -> str:
    """At most about `most` characters, the end kept longer than the beginning: there stands what went wrong."""
    text = text.strip("\n")
    if len(text) <= most:
        return text
    head, tail = text[: most // 4], text[-(most * 3 // 4) :]
    return head.rpartition("\n")[0] + "\n...\n" + tail.partition("\n")[2]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.strip("\n").split("\n"))
