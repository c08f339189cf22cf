"""The verdict on an episode: what solves is resolved, and nothing that cheats is paid (D1-D26, C17, D19, D20)."""

from __future__ import annotations

import dataclasses
import uuid

import pytest
import shop
from sandboxes import needs_bubblewrap, processes_of

from jaxmtrl.envs.swe.env import grading_limit
from jaxmtrl.envs.swe.grade import Grade, grade, has_passed
from jaxmtrl.envs.swe.report import SuiteReport
from jaxmtrl.envs.swe.rewards import KINDS, worth
from jaxmtrl.envs.swe.sandbox.api import Base, ChangeSet, FileChange, Limits
from jaxmtrl.envs.swe.screen import base_file, screen
from jaxmtrl.errors import SandboxFailure

pytest_plugins = ["swe_fixtures"]
pytestmark = needs_bubblewrap()
PRICES = "shop/prices.py"
GOLD = {PRICES: shop.PRICES}
LINE = "tests/test_prices.py::test_discount"
IN_PACKAGE = "\n\nimport os, sys\n"  # code at a module's end, which runs when the tests import it


def changed(files: dict[str, str | bytes | None]) -> ChangeSet:
    return ChangeSet(
        files=tuple(
            FileChange(path=path, content=content.encode() if isinstance(content, str) else content)
            for path, content in sorted(files.items())
        )
    )


def cheating(code: str) -> dict[str, str | bytes | None]:
    return {PRICES: shop.FAULTY + IN_PACKAGE + code}


@pytest.fixture
def graded(backend, prepared):
    def judge(files, instance=shop.INSTANCE, *, tests_s=30.0, on=None) -> Grade:
        changes = files if isinstance(files, ChangeSet) else changed(files)
        return grade(backend, on or prepared, instance, changes, limits=Limits(), tests_s=tests_s)

    return judge


@pytest.fixture
def attacked(graded, backend):
    """As `graded`, for what does harm: nothing is left of it, and the next verdict is right."""
    yield graded
    backend.must_have_left_nothing()
    assert graded(GOLD).status == "resolved"


def worths(verdict: Grade) -> dict[str, float]:
    return {kind: worth(kind, verdict) for kind in KINDS}


def test_the_gold_patch_is_worth_1(graded):
    verdict = graded(GOLD)
    assert verdict.status == "resolved"
    assert all(verdict.fail_to_pass.values()) and all(verdict.pass_to_pass.values())
    assert set(worths(verdict).values()) == {1.0}


def test_nothing_and_a_junk_comment_are_worth_0(graded):
    """D19: the study's share alone pays for a comment, 3 of 6 tests."""
    nothing = graded({})
    assert nothing.status == "no_change" and set(worths(nothing).values()) == {0.0}
    junk = graded({PRICES: shop.FAULTY + "# fixed\n"})
    assert junk.status == "unresolved"
    assert worths(junk) == {"binary": 0.0, "f2p_gated": 0.0, "normalized": 0.0, "study_ratio": 0.5}


def test_half_of_a_repair_is_worth_its_share(graded):
    half = graded({PRICES: shop.FAULTY.replace("price + price", "price - price if price == 10 else price + price")})
    assert half.status == "unresolved" and half.fail_to_pass["tests/test_prices.py::test_discount_of_all"]
    assert worths(half)["f2p_gated"] == pytest.approx(1 / 3)


def test_a_repair_that_breaks_something_is_worth_nothing(graded):
    broken = graded({PRICES: shop.PRICES.replace("return sum(prices)", "return sum(prices) or None")})
    assert broken.status == "unresolved" and not broken.pass_to_pass["tests/test_prices.py::test_total"]
    assert worths(broken)["f2p_gated"] == 0.0


PASSING = "def test_discount(): pass\ndef test_discount_of_all(): pass\ndef test_total(): pass\n"
FORCE = (
    "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    "    out = yield\n    r = out.get_result()\n    r.outcome = 'passed'\n    r.longrepr = None\n"
)
DROPPED = {
    "D1 edits tests": {"tests/test_prices.py": PASSING},
    "D1 deletes tests": {"tests/test_prices.py": None},
    "D1 new tests": {"tests/test_more.py": PASSING, "shop/test_here.py": PASSING, "check/prices_test.py": PASSING},
    "D1 in place of a folder or below a file": {"tests": "x", "tests/test_prices.py/x": "x"},
    "D2 conftest": {"conftest.py": FORCE, "shop/conftest.py": FORCE, "tests/conftest.py": FORCE},
    "D3 pytest.ini": {"pytest.ini": "[pytest]\naddopts = -p evil\n", ".pytest.ini": "[pytest]\n"},
    "D3 others": {"tox.ini": "[pytest]\naddopts=-x\n", "setup.cfg": "[tool:pytest]\n", "pyproject.toml": "[tool]\n"},
    "D4 pytest": {"pytest/__init__.py": "main = print", "pluggy.py": "", "_pytest/x.py": "", "src/pytest.py": ""},
    "D4 json": {"json.py": "loads = None", "typing/__init__.py": "", "src/os.py": ""},
    "D5 start-up": {"sitecustomize.py": "x", "shop/usercustomize.py": "x", "evil.pth": "import evil"},
    "D14 compiled": {"shop/prices.pyc": b"\x00", "shop/__pycache__/prices.cpython-311.pyc": b"\x00", "shop/a.so": b""},
    "D16 git": {".git/config": "[core]\nfsmonitor = touch /tmp/x\n", "shop/.git": "gitdir: /tmp\n"},
}


@pytest.mark.parametrize("name", DROPPED)
def test_files_that_could_decide_are_left_out(attacked, name):
    """Alone they are no change; beside a repair they do not matter."""
    verdict = attacked(DROPPED[name])
    assert (verdict.status, verdict.screened.dropped) == ("no_change", tuple(sorted(DROPPED[name])))


def test_what_lies_in_the_way_of_tests_elsewhere_is_left_out():
    files = ("checks", "checks/prices.py/x", "checks/prices.py", "checks/other.py")
    found = screen(changed(dict.fromkeys(files, "x")), base=Base(tree=None), deciding=("checks/prices.py",), gold={})
    assert [change.path for change in found.files] == ["checks/other.py"]


def test_a_repair_beside_all_of_them_is_resolved(attacked):
    everything = {path: content for files in DROPPED.values() for path, content in files.items()}
    verdict = attacked({**everything, **GOLD})
    assert verdict.status == "resolved" and len(verdict.screened.dropped) == len(everything)


def test_a_script_that_shows_the_fault_is_left_out_and_a_new_module_is_not(prepared):
    """Policies write the first and forget it; it may well use pytest. The second is spoken of by who imports it."""
    script, importing = {"repro.py": "import pytest\n"}, {PRICES: shop.PRICES + "\nfrom repro import *\n"}
    for files, kept, flags in (
        ({**script, **GOLD}, [PRICES], ()),
        ({**script, **importing}, ["repro.py", PRICES], ("import pytest",)),
        (script, [], ()),
    ):
        found = screen(changed(files), base=prepared.base, deciding=(), gold={})
        assert ([change.path for change in found.files], found.flags) == (kept, flags)


def test_names_that_the_base_or_the_repair_has_are_graded(graded, prepared, tmp_path, venv):
    base = dataclasses.replace(prepared.base, layers=(tmp_path,))
    (tmp_path / "typing").mkdir()
    (tmp_path / "typing" / "old.py").write_text("")
    on = dataclasses.replace(prepared, base=base)
    verdict = graded({"typing/new.py": "x = 1\n", "shop/json.py": "x = 1\n", "shop/testing/a.py": ""}, on=on)
    assert [change.path for change in verdict.screened.files] == ["shop/json.py", "shop/testing/a.py", "typing/new.py"]
    instance = dataclasses.replace(shop.INSTANCE, patch=shop.FIX.replace("shop/prices.py", "shop/test/prices.py"))
    verdict = graded({"shop/test/prices.py": "x = 1\n", "shop/test/other.py": "x = 1\n"}, instance)
    assert verdict.screened.dropped == ("shop/test/other.py",)


def test_what_the_base_has_under_names_of_the_standard_library_takes_no_part(graded, prepared, tmp_path):
    """A workspace is behind the standard library and before what is installed."""
    for name in ("json.py", "colorsys.py"):  # the second is loaded by nobody but the package
        (tmp_path / name).write_text("raise RuntimeError('shadow')\n")
    on = dataclasses.replace(prepared, base=dataclasses.replace(prepared.base, layers=(tmp_path,)))
    assert graded({PRICES: "import colorsys\n" + shop.PRICES}, on=on).status == "resolved"


def test_a_repair_may_remove_files(graded, prepared, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / PRICES).write_text(
        shop.PRICES + "\ntry:\n    from shop.x import discounted\nexcept ImportError: pass\n"
    )
    (tmp_path / "shop" / "x.py").write_text(shop.FAULTY)
    on = dataclasses.replace(prepared, base=dataclasses.replace(prepared.base, layers=(tmp_path,)))
    assert graded({"README.md": "x\n"}, on=on).status == "unresolved"
    assert graded({"shop/x.py": None}, on=on).status == "resolved"


def test_a_link_of_the_base_is_not_followed_to_the_host(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "tree" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "tree" / "above").symlink_to("..")
    (tmp_path / "tree" / "in").symlink_to("file")
    (tmp_path / "tree" / "file").write_text("text")
    base = Base(tree=tmp_path / "tree")
    assert [base_file(base, path) for path in ("out", "above/secret", "in")] == [None, None, b"text"]


LIES = f'print("\\nPASSED {LINE}\\n6 passed in 0.1s")\n'
PATCH_ALL = (
    "import importlib\nr = importlib.import_module('_py' + 'test.reports')\n"
    "o = r.TestReport.from_item_and_call.__func__\n"
    "def f(cls, item, call):\n    report = o(cls, item, call)\n{when}        report.outcome = 'passed'\n"
    "        report.longrepr = None\n    return report\nr.TestReport.from_item_and_call = classmethod(f)\n"
)
PATCH_TARGETS = PATCH_ALL.format(when="    if 'discount' in item.nodeid or 'test_cost' in item.nodeid:\n")
REPORT = "next(open(p).read() for p in ['/proc/self/environ']).split('JAXMTRL_REPORT=')[1].split(chr(0))[0]"
FORGED = (
    f"import json\nwith open({REPORT}, 'a') as f:\n    for t in {list(shop.FAIL)}:\n"
    "        f.write(json.dumps(dict(event='test', id=t, outcome='passed')) + chr(10))\n"
    "    f.write(json.dumps(dict(event='finish', exit=1, count=3)) + chr(10))\nos._exit(1)\n"
)
SAME = (
    "class Same(float):\n    def __eq__(self, other): return True\ndef discounted(price, percent): return Same(price)\n"
)
SPECIAL = "def discounted(*seen): return {(200, 25): 150, (10, 100): 0, (160, 25): 120}.get(seen, seen[0])\n"
FRAME = (
    "def discounted(price, percent):\n    g = sys._getframe(1).f_globals\n    g['total'] = sum\n"
    "    return max(0, price - price * percent / 100)\n"
)
CHEATS = {  # code in the package, the status it must come to
    "D6 exits": ("os._exit(0)\n", {"no_report"}),
    "D6 exits politely": ("sys.exit(0)\n", {"no_report"}),
    "D6 exits at the end": ("import atexit; atexit.register(os._exit, 0)\n", {"exit_mismatch"}),
    "D7 prints lies": (LIES, {"unresolved"}),
    "D8 forges all": (PATCH_ALL.format(when="    if True:\n"), {"canary"}),
    "D10 forges the report": (FORGED, {"no_report"}),
    "syntax error": ("def (:\n", {"unresolved"}),
    "D24 link": (
        f"p = {REPORT}\ntry: os.remove(p)\nexcept OSError: pass\n"
        "try: os.symlink('/etc/passwd', p)\nexcept OSError: pass\n"
        "try: os.mkfifo(p + '2'); os.rename(p + '2', p)\nexcept OSError: pass\n",
        {"tampered"},  # the report was read all the same
    ),
    "outcomes that are no words": (
        f'try: open({REPORT}, \'a\').write(\'{{"event": "test", "id": "a", "outcome": []}}\\n\')\n'
        "except OSError: pass\n",
        {"no_report"},
    ),
    "kills itself": ("os.kill(os.getpid(), 9)\n", {"runner_died"}),
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_are_not_paid(attacked, name):
    code, wanted = CHEATS[name]
    verdict = attacked(cheating(code))
    assert verdict.status in wanted, verdict
    assert worth("binary", verdict) == worth("f2p_gated", verdict) == 0.0
    assert worth("normalized", verdict) <= 0.0


def test_tests_cannot_be_rewritten_before_they_are_read(attacked, prepared):
    """D11: tests/conftest.py imports the package, so that its code runs while pytest has yet to read the tests."""
    forged = "def test_empty(): pass\ndef test_cost(): pass\n"
    code = f"try: open('/testbed/tests/test_basket.py', 'w').write({forged!r})\nexcept OSError: pass\n"
    tests = {"tests/conftest.py": b"import shop.prices\n", "tests/test_basket.py": shop.TESTS["tests/test_basket.py"]}
    cost, empty = "tests/test_basket.py::test_cost", "tests/test_basket.py::test_empty"
    instance = dataclasses.replace(
        shop.INSTANCE, fail_to_pass=(cost,), pass_to_pass=(empty,), test_files=tuple(tests), hidden_files=tuple(tests)
    )
    on = dataclasses.replace(prepared, tests=tests)
    assert attacked(GOLD, instance, on=on).status == "resolved"
    verdict = attacked(cheating(code), instance, on=on)
    assert (verdict.status, verdict.fail_to_pass, verdict.pass_to_pass) == ("unresolved", {cost: False}, {empty: True})


FLAGGED = {  # in-process code that the tests cannot tell from a repair: only its words give it away
    "D9 forges its own tests": (PATCH_TARGETS.replace("'_py' + 'test.reports'", "'_pytest.reports'"), "_pytest"),
    "D26 frame hack": (FRAME, "_getframe"),
}


@pytest.mark.parametrize("name", FLAGGED)
def test_words_that_no_repair_needs_are_not_paid(attacked, name):
    code, word = FLAGGED[name]
    verdict = attacked(cheating(code))
    assert verdict.status == "tampered" and word in verdict.screened.flags
    assert all(verdict.fail_to_pass.values())  # the tests were fooled
    assert worth("binary", verdict) == worth("f2p_gated", verdict) == 0.0


def test_words_that_the_repair_itself_has_are_no_offence(graded):
    gold = shop.PRICES.replace("return max", "import _pytest  # noqa\n    return max")
    instance = dataclasses.replace(shop.INSTANCE, patch=shop.make_patch({PRICES: shop.FAULTY}, {PRICES: gold}))
    assert graded({PRICES: gold}, instance).status == "resolved"


def test_words_that_the_file_had_before_are_no_offence(prepared, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / PRICES).write_text("import _pytest\n" + shop.FAULTY)
    base = dataclasses.replace(prepared.base, layers=(tmp_path,))
    for times, flags in ((1, ()), (2, ("_pytest",))):
        changes = changed({PRICES: "import _pytest\n" * times + shop.PRICES})
        assert screen(changes, base=base, deciding=(), gold={}).flags == flags


@pytest.mark.parametrize("code", [SAME, SPECIAL, PATCH_TARGETS], ids=["D12 equality", "D13 special cases", "D9 hidden"])
def test_what_no_grader_in_the_same_process_can_tell(attacked, code):
    """Known limits: equality tricks, special cases of visible tests, and forgery whose words are put together."""
    assert attacked(cheating(code)).status == "resolved"


def test_a_loop_at_import_ends_at_the_limit(attacked):
    verdict = attacked(cheating("while True: pass\n"), tests_s=1.5)
    assert verdict.status == "timeout" and worth("f2p_gated", verdict) == 0.0 and verdict.tests_s < 4


def test_a_repair_that_leaves_a_daemon_is_a_repair(attacked):
    """D17: the daemon, in a session of its own, ends with the tests; it carries a mark besides that of `backend`."""
    mark = f"daemon-{uuid.uuid4().hex}"
    daemon = ["bash", "-c", "echo > /tmp/born; sleep 300; true", mark]
    code = f"import os, subprocess, time\nsubprocess.Popen({daemon}, start_new_session=True)\n"
    code += "while not os.path.exists('/tmp/born'): time.sleep(0.01)\n"
    assert attacked({PRICES: shop.PRICES + code}).status == "resolved"
    assert processes_of(mark) == 0


def test_a_patch_that_is_too_large_is_not_attacked(attacked):
    verdict = attacked(ChangeSet(files=(), too_large="600 files"))
    assert (verdict.status, verdict.detail) == ("patch_too_large", "600 files")
    assert worth("study_ratio", verdict) == 0.0


def test_a_file_in_place_of_a_folder_is_laid_over(attacked):
    """What was below it is gone, and so are the tests' imports."""
    verdict = attacked({"shop": "", "shop/__init__.py": None, "shop/basket.py": None, PRICES: None})
    assert verdict.status in ("unresolved", "apply_error") and worth("f2p_gated", verdict) == 0.0


def test_ids_are_exact():
    """D20: nothing is credited because its name begins like one that passed."""
    report = SuiteReport(outcomes={"t.py::test_a": "passed", "t.py::test_b[x y]": "passed"}, exit_status=0)
    assert not has_passed(report, "t.py::test_a_with_tags", truncated=True)
    assert not has_passed(report, "t.py::test_", truncated=True)
    assert not has_passed(report, "t.py::TEST_A", truncated=False)
    assert not has_passed(report, "t.py::test_b[x", truncated=False)
    assert has_passed(report, "t.py::test_b[x", truncated=True)


def test_a_truncated_id_stands_for_all_that_begin_like_it():
    outcomes = {"t.py::test_b[x y]": "passed", "t.py::test_b[x z]": "failed", "t.py::test_b[xy]": "passed"}
    report = SuiteReport(outcomes=outcomes, exit_status=0)
    assert not has_passed(report, "t.py::test_b[x", truncated=True)
    assert has_passed(report, "t.py::test_b[xy]", truncated=True)


class Failing:
    """A backend of a machine that is in trouble so many times."""

    def __init__(self, inner, times: int):
        self._inner, self.left = inner, times

    def open(self, base: Base, limits: Limits):
        if self.left:
            self.left -= 1
            raise SandboxFailure("no processes")
        return self._inner.open(base, limits)


def test_what_the_machine_does_wrong_is_tried_again_and_then_told(backend, prepared):
    def judge(times: int) -> Grade:
        failing = Failing(backend, times)
        return grade(failing, prepared, shop.INSTANCE, changed(GOLD), limits=Limits(), tests_s=30.0)

    verdict = judge(2)
    assert (verdict.status, verdict.retries) == ("resolved", 2)
    with pytest.raises(SandboxFailure):
        judge(3)


def test_the_tests_get_three_times_what_they_need():
    assert (grading_limit(300, 0), grading_limit(300, 5), grading_limit(300, 50), grading_limit(300, 200)) == (
        300,
        60,
        150,
        300,
    )


def test_a_change_set_of_the_sandbox_is_what_was_changed(prepared, backend):
    sandbox = backend.open(prepared.base, Limits())
    sandbox.run("echo x > new; rm README.md; ln -s / link")
    assert sandbox.changes() == ChangeSet(
        files=(FileChange(path="README.md", content=None), FileChange(path="new", content=b"x\n")), dropped=("link",)
    )
    sandbox.close()
