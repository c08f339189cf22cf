"""How findings are told, to people and to programs."""

from __future__ import annotations

import io
import json

from jaxmtrl.diagnosis.examine import Diagnosis
from jaxmtrl.diagnosis.finding import below, guarded, none_of, not_used
from jaxmtrl.diagnosis.report import Report, as_json

GOOD = below("the gap is small", 2e-7, 1e-4, unit="nats", said="64 tokens", cure="do this")
BAD = none_of("nothing leaks", 3, what="columns", said="of 12", cure="mask them")
NAN = below("it is a number", float("nan"), 1e-4, said="it is not", cure="find the NaN")


def diagnosis(*findings) -> Diagnosis:
    return Diagnosis(findings=tuple(("loss", finding) for finding in findings), shrunk=("a 2 → 1",), seconds=3.21)


def told(*findings) -> list[str]:
    stream = io.StringIO()
    report = Report(stream)
    report.section("loss", findings)
    report.end(diagnosis(*findings))
    return stream.getvalue().splitlines()


def test_a_pass_is_one_line_with_number_and_bound():
    lines = told(GOOD)
    (line,) = [line for line in lines if line.startswith("ok")]
    assert line.split() == "ok the gap is small 2e-07 < 0.0001 nats 64 tokens".split()
    assert "all 1 checks passed in 3 s" in lines


def test_a_failure_brings_its_cure_and_the_last_line_names_it():
    lines = told(GOOD, BAD)
    at = next(number for number, line in enumerate(lines) if line.startswith("FAIL"))
    assert lines[at + 1 : at + 3] == ["      of 12", "      → mask them"]
    assert lines[-1] == "1 of 2 checks FAILED in 3 s: nothing leaks"


def test_nan_never_passes():
    assert not NAN.passed
    assert not none_of("x", float("nan"), said="", cure="").passed


def test_json_holds_everything_and_only_numbers_that_json_has():
    read = json.loads(as_json("my.yaml run.seed=1", diagnosis(GOOD, BAD, NAN, not_used("the KL", "kl_coef is 0"))))
    assert read["config"] == "my.yaml run.seed=1" and read["passed"] is False and read["shrunk"] == ["a 2 → 1"]
    assert [finding["passed"] for finding in read["findings"]] == [True, False, False, True]
    assert [finding["number"] for finding in read["findings"]] == [2e-7, 3.0, None, None]
    assert read["findings"][1]["section"] == "loss" and read["findings"][1]["cure"] == "mask them"


def test_what_a_check_raises_is_a_finding():
    def broken():
        raise ValueError("shapes differ:\n (2,) and (3,)")

    (finding,) = guarded("the check", broken)
    assert not finding.passed and finding.said == "raised ValueError: shapes differ: (2,) and (3,)"
