"""Which instances a split has: filters, shares, mixes by repository, and the same ones every time."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.selection import mix, place, select
from jaxmtrl.errors import ConfigError


def instance(repo: str, number: int) -> SweInstance:
    kind = ("cmp", "arith", "bool")[number % 3]
    return SweInstance(
        id=f"{repo}-{number}",
        repo=f"pypi/{repo}",
        problem_statement="",
        fail_to_pass=("t.py::test",),
        pass_to_pass=(),
        patch="",
        extra={"kind": kind},
    )


ALL = [instance(repo, number) for repo in ("parse", "toolz", "boltons") for number in range(60)]


def test_filters_take_names_as_people_write_them():
    assert {i.repo for i in select(ALL, repos=["parse", "pypi/toolz"])} == {"pypi/parse", "pypi/toolz"}
    assert {i.repo for i in select(ALL, without_repos=["boltons"])} == {"pypi/parse", "pypi/toolz"}
    assert {i.extra["kind"] for i in select(ALL, kinds=["cmp"])} == {"cmp"}
    assert {i.extra["kind"] for i in select(ALL, without_kinds=["cmp"])} == {"arith", "bool"}
    with pytest.raises(ConfigError, match="'pares'"):
        select(ALL, repos=["pares"])


def test_shares_part_a_set_and_stay_when_it_grows():
    low, high = select(ALL, share=(0.0, 0.8)), select(ALL, share=(0.8, 1.0))
    assert len(low) + len(high) == len(ALL) and not {i.id for i in low} & {i.id for i in high}
    assert 0.7 < len(low) / len(ALL) < 0.9
    half = select(ALL[:90], share=(0.0, 0.8))
    assert half == [i for i in low if i in ALL[:90]]


def test_faults_of_one_function_are_in_one_share():
    def of(number: int, *functions: str) -> SweInstance:
        return dataclasses.replace(ALL[number], extra={"functions": list(functions)})

    there = [of(number, f"parse.py:f{number % 7}") for number in range(50)]
    for half in (select(there, share=(0.0, 0.5)), select(there, share=(0.5, 1.0))):
        assert half and len(half) == sum(i.extra in [j.extra for j in half] for i in there)
    low, high = sorted((f"parse.py:f{n}" for n in range(2)), key=lambda name: place(of(0, name)))
    assert place(of(0, low, high)) == place(of(1, high)) > place(of(2, low))


def test_a_mix_has_its_parts_and_spreads_them():
    weights = {"parse": 0.5, "others": 0.5}
    mixed = mix(ALL, weights=weights, count=40, seed=3, where="x")
    assert Counter(i.repo for i in mixed) == {"pypi/parse": 20, "pypi/toolz": 10, "pypi/boltons": 10}
    assert Counter(i.repo for i in mixed[:8]) == {"pypi/parse": 4, "pypi/toolz": 2, "pypi/boltons": 2}
    assert mixed == mix(ALL, weights=weights, count=40, seed=3, where="x")
    assert mixed != mix(ALL, weights=weights, count=40, seed=4, where="x")


def test_without_weights_all_come_as_they_are_drawn():
    drawn = mix(ALL, weights={}, count=None, seed=0, where="x")
    assert drawn != ALL and sorted(i.id for i in drawn) == sorted(i.id for i in ALL)
    assert mix(ALL, weights={}, count=7, seed=0, where="x") == drawn[:7]


@pytest.mark.parametrize(
    ("weights", "count", "told"),
    [
        ({}, 181, "asks for 181 tasks, and 180"),
        ({"parse": 1.0}, 61, "61 tasks of pypi/parse, which has 60"),
        ({"parse": -1.0}, 5, "at least 0, got -1"),
        ({"parse": 0.0}, 5, "all 0"),
        ({"parse": 1.0}, None, "no count"),
        ({"pares": 1.0}, 5, "'pares'"),
        ({"parse": 1.0, "pypi/parse": 1.0}, 5, "weights.pypi/parse and parse both mean pypi/parse"),
        ({"parse": 1e308, "others": 1e308}, 5, "too large to be added up"),
    ],
)
def test_what_cannot_be_had_is_told(weights, count, told):
    with pytest.raises(ConfigError, match=told):
        mix(ALL, weights=weights, count=count, seed=0, where="env.options.splits.train")


def test_a_kind_that_nobody_has_is_told_and_one_that_no_row_has_is_not():
    with pytest.raises(ConfigError, match="'cpm': no such kind of fault; the rows have "):
        select(ALL, without_kinds=["cpm"])
    assert select(ALL, without_kinds=["multi", "stub"])
