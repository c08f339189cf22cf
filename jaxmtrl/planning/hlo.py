"""What a compiled program sends between chips, read off its text (HLO after partitioning and optimisation)."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_HEADER = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{$")
_COLLECTIVE = re.compile(rf"^\s*(?:ROOT )?%?[\w.\-]+ = (?P<shape>.*?) (?P<kind>{'|'.join(_KINDS)})(?:-start)?\(")
_CALL = re.compile(r"(?:calls|body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_ARRAY = re.compile(r"\b(pred|[suf]\d+|bf16|f8\w*|c\d+)\[([\d,]*)\]")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_GROUPS = re.compile(r"replica_groups=(?:\{\{([\d,]*)\}|\[(\d+),(\d+)\])")
# By names of axes, of which a part may be meant: mesh['a'=2,'b'=8] {'b'} or {'b':(2)4}.
_NAMED_GROUPS = re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}")
_AXIS_SIZE = re.compile(r"'(\w+)'=(\d+)")
_AXIS = re.compile(r"'(\w+)'(?::\(\d+\)(\d+))?")


@dataclass(frozen=True)
class Traffic:
    """Of one kind of collective in one run of a program."""

    count: int
    received: int  # bytes a chip gets from others


def collectives(text: str, *, dynamic_trips: int = 1) -> dict[str, Traffic]:
    """How often a program runs each kind of collective, and what a chip receives by it.

    Bodies of loops count as often as they run; both branches of a condition count, though one is taken. Received bytes
    are those of ring algorithms: of a result gathered from g chips (g - 1) / g, twice that of one reduced everywhere.

    Args:
        text: `compiled.as_text()`.
        dynamic_trips: how often loops run whose number of turns the compiler does not know.
    """
    lines, entry = _computations(text)
    totals: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])

    def walk(name: str, times: int) -> None:
        for line in lines.get(name, ()):
            if found := _COLLECTIVE.match(line):
                totals[found["kind"]][0] += times
                totals[found["kind"]][1] += times * _received(found["kind"], found["shape"], line)
            trips = 1
            if " while(" in line:
                known = _TRIPS.search(line)
                trips = int(known[1]) if known else dynamic_trips
            called = _CALL.findall(line)
            for branches in _BRANCHES.findall(line):
                called += [branch.strip().lstrip("%") for branch in branches.split(",")]
            for other in called:
                walk(other, times * trips)

    walk(entry, 1)
    return {kind: Traffic(*totals[kind]) for kind in _KINDS if kind in totals}


def largest_array(text: str) -> tuple[int, str]:
    """Bytes and shape of the largest array a program makes or takes."""
    found = {match[0]: _bytes(match[1], match[2]) for match in _ARRAY.finditer(text)}
    shape = max(found, key=lambda shape: found[shape], default="")
    return found.get(shape, 0), shape


def _computations(text: str) -> tuple[Mapping[str, list[str]], str]:
    """The instructions of every computation by its name, and the name of the first to run."""
    lines: dict[str, list[str]] = {}
    name, entry = "", ""
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            name = header["name"]
            lines[name] = []
            if header["entry"]:
                entry = name
        elif name:
            lines[name].append(line)
    return lines, entry


def _received(kind: str, shape: str, line: str) -> int:
    """Bytes that one run brings to a chip."""
    # An asynchronous start has operands and results in its shape: of a gather the largest is the result; reductions
    # have both alike.
    sizes = [_bytes(dtype, dims) for dtype, dims in _ARRAY.findall(shape)]
    size = max(sizes, default=0) if f"{kind}-start(" in line else sum(sizes)
    members = _members(line)
    others = (members - 1) / max(members, 1)
    factor = {
        "all-gather": others,
        "all-reduce": 2 * others,
        "reduce-scatter": members - 1.0,  # of the result, a part of what goes in
        "all-to-all": others,
        "collective-permute": 1.0,
    }[kind]
    return round(size * factor)


def _members(line: str) -> int:
    """How many chips take part together; two where the line does not say, as in a permutation."""
    if groups := _GROUPS.search(line):
        return int(groups[3]) if groups[3] else len(groups[1].split(","))
    if named := _NAMED_GROUPS.search(line):
        sizes = dict(_AXIS_SIZE.findall(named[1]))
        return math.prod(int(part or sizes[name]) for name, part in _AXIS.findall(named[2]))
    return 2


def _bytes(dtype: str, dims: str) -> int:
    bits = 8 if dtype == "pred" else int(re.sub(r"^[a-z]+|[a-z].*$", "", dtype.replace("bf16", "f16")) or 8)
    return math.prod(int(side) for side in dims.split(",") if side) * bits // 8
