"""Where faults can be set in code, and what stands there then."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path

import pytest

from jaxmtrl.envs.swe.inject.mutators import KINDS, SINGLE_KINDS, find_sites, is_fault, mutate


def faults(body: str, kind: str) -> list[str]:
    """The bodies that faults of one kind make out of a function's body of one or more lines."""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    source = f"def f(a, b, c):\n{lines}".encode()
    out = [mutate(source, [site]).decode() for site in find_sites("m.py", source) if site.kind == kind]
    return ["\n".join(line[4:] for line in text.split("\n")[1:-1]) for text in out]


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        ("cmp", "return a < b", ["return a <= b"]),
        ("cmp", "return (a) is  not (b)", ["return (a) is (b)"]),
        ("cmp", "return a in b", ["return a not in b"]),
        ("cmp", "return a <= b != c", ["return a < b != c", "return a <= b == c"]),
        ("bool", "return a and b and c", ["return a or b and c", "return a and b or c"]),
        ("bool", "return band or candor", ["return band and candor"]),
        ("arith", "return 'é' * (a + b)", ["return 'é' * (a - b)"]),
        ("arith", "a += b", ["a -= b"]),
        ("arith", "return a / b % c", ["return a / b // c", "return a * b % c"]),
        ("arith", "return 'x' + a", []),
        ("offbyone", "return a[2]", ["return a[3]", "return a[1]"]),
        ("offbyone", "return True", []),
        ("offbyone", "return len(a)", ["return (len(a) - 1)"]),
        ("negif", "return a if b == c else d", ["return a if not (b == c) else d"]),
        ("negif", "if a:\n    b()", ["if not (a):\n    b()"]),
        ("negif", "if not a:\n    b()", []),
        ("not", "return not a", ["return a"]),
        ("swapargs", "return g(a, b)", ["return g(b, a)"]),
        ("swapargs", "return g(a,  b(c))", ["return g(b(c),  a)"]),
        ("swapargs", "return g(a, a)", []),
        ("swapargs", "return g(*a, b)", []),
        ("retnone", "return a", ["return None"]),
        ("retnone", "return None", []),
        ("rmassign", "a.x = b", ["pass"]),
        ("rmassign", "a = g(a)", ["pass"]),
        ("rmassign", "new = b", []),
        ("rmcall", "a.append(b)", ["pass"]),
        ("rmguard", "if a:\n    return b\nreturn c", ["pass\nreturn c"]),
        ("rmguard", "if a:\n    return b\nelse:\n    return c", []),
        ("rmguard", "if a:\n    g()\nelif b:\n    return c", []),
        ("flip", "return g(x=True)", ["return g(x=False)"]),
        ("stub", '"""Says."""\nx = a\ny = b\nreturn x + y', ['"""Says."""\nreturn None']),
        ("stub", "return a", []),
    ],
)
def test_each_kind(kind, body, wanted):
    assert sorted(faults(body, kind)) == sorted(wanted)


def test_code_that_runs_with_the_import_is_left_alone():
    source = b"""
x = 1 + 1
def f(a=2 < 3, b: "int" = 4) -> 5 < 6:
    '''7 < 8'''
class C:
    y = not x
    @g(1, 2)
    def h(self): pass
"""
    assert find_sites("m.py", source) == []


def test_functions_are_named_with_what_holds_them():
    source = b"class C:\n    def f(self):\n        def g(a):\n            return a < 1\n        return g\n"
    assert {site.function for site in find_sites("m.py", source) if site.kind == "cmp"} == {"C.f.g"}


@pytest.mark.parametrize(
    "source", [b"def f(:", b"\xff", b"def f(a):\r\n    return a < 1\r\n", b"\xef\xbb\xbfdef f(a):\n    return a < 1\n"]
)
def test_files_that_are_not_plain_python_have_no_faults(source):
    assert find_sites("m.py", source) == []


def test_every_fault_of_a_real_module_is_python_and_another_program():
    source = Path(textwrap.__file__).read_bytes() + Path(shlex.__file__).read_bytes()
    sites = find_sites("m.py", source)
    assert {site.kind for site in sites} == {*SINGLE_KINDS, "stub"} and set(KINDS) - {"multi"} == {
        *SINGLE_KINDS,
        "stub",
    }
    assert len(sites) > 100
    assert all(is_fault(source, [site]) for site in sites[:: len(sites) // 20])
    assert not is_fault(source, [])


def test_several_faults_of_one_file_keep_their_places():
    source = b"def f(a):\n    return a < 1\n\ndef g(b):\n    return b and not b\n"
    sites = {site.kind: site for site in find_sites("m.py", source)}
    changed = mutate(source, [sites["not"], sites["cmp"], sites["bool"]])
    assert changed == b"def f(a):\n    return a <= 1\n\ndef g(b):\n    return b or b\n"
