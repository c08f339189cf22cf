"""Of every kind of row: its repair is worth 1, nothing and a comment are worth 0."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from sandboxes import needs_bubblewrap
from swe_plays import play
from tiny_package import CODE, FILES, OTHER_TESTS, SECRET, TESTS, write_archive

from jaxmtrl.envs.swe import make
from jaxmtrl.envs.swe.actions import write_command, write_submit
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.loading import save_instances
from jaxmtrl.envs.swe.patches import make_patch

pytest_plugins = ["swe_fixtures"]
pytestmark = needs_bubblewrap()
CORE, TEST = "tiny/core.py", "tests/test_core.py"
FAULTY = CODE.replace(SECRET, "return value")
OLD_TESTS = "from tiny import first_long\n\ndef test_first_long(): assert first_long(['a', 'abc'], 3) == 'abc'\n"
ROW = SweInstance(
    id="",
    repo="",
    problem_statement="clamp does not clamp",
    fail_to_pass=(f"{TEST}::test_clamp[-1-0]", f"{TEST}::test_clamp[11-10]"),
    pass_to_pass=(f"{TEST}::test_clamp[5-5]", f"{TEST}::test_total", "tests/test_other.py::test_sum"),
    patch=make_patch({CORE: FAULTY}, {CORE: CODE}),
    test_patch=make_patch({TEST: OLD_TESTS}, {TEST: TESTS}),
    test_files=(TEST, "tests/test_other.py"),
)


def of_a_repository(folder: Path) -> SweInstance:
    """As SWE-Gym has them: a commit of a mirror, whose next one holds the repair."""
    work = folder / "work"
    files = {"tiny/__init__.py": FILES["tiny/__init__.py"], "tests/test_other.py": OTHER_TESTS, TEST: OLD_TESTS}
    for path, text in {**files, CORE: FAULTY}.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)

    def git(*arguments: str) -> str:
        settings = ["-c", "user.name=x", "-c", "user.email=x"]
        return subprocess.run(
            ["git", *settings, *arguments], cwd=work, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "fault")
    commit = git("rev-parse", "HEAD")
    (work / CORE).write_text(CODE)
    git("commit", "-qam", "cure")
    git("clone", "-q", "--mirror", str(work), str(folder / "mirrors" / "some__tiny.git"))
    return dataclasses.replace(
        ROW, id="some__tiny-1", repo="some/tiny", version="1.0", base=commit, source="swe-gym", image="docker.io/x"
    )


def of_a_release(folder: Path) -> SweInstance:
    """The code of one archive, with the tests of the next."""
    archive = write_archive(folder / "cache" / "archives", changed={CORE: FAULTY, TEST: OLD_TESTS})
    return dataclasses.replace(
        ROW,
        id="tiny-pkg-1.0__release-1.1",
        repo="pypi/tiny-pkg",
        version="1.0",
        base=hashlib.sha256(archive.read_bytes()).hexdigest(),
        source="release",
    )


@pytest.mark.parametrize("kind", [of_a_repository, of_a_release])
def test_gold_is_worth_1_and_nothing_and_junk_are_worth_0_of_every_kind_of_row(kind, tmp_path, venv):
    (tmp_path / "mirrors").mkdir()
    row = kind(tmp_path)
    save_instances(tmp_path / "rows.jsonl", [row])
    shutil.copytree(venv, tmp_path / "venvs" / row.repo.replace("/", "__"), symlinks=True)
    environment = make(
        {
            "rows": [str(tmp_path / "rows.jsonl")],
            "splits": {"train": {}},
            "quarantine": "",
            **{name: str(tmp_path / name) for name in ("cache", "mirrors", "venvs")},
        }
    )
    (task,) = environment.split("train").tasks
    junk, submit = write_command(f"echo '# fixed' >> {CORE}", "fenced"), write_submit("fenced")
    env = environment.make_env()
    try:
        nothing, comment = (play(env, task, actions)[1][-1] for actions in ([submit], [junk, submit]))
        gold = play(env, task, environment.expert_actions(task) or ())[1][-1]
    finally:
        env.close()
    assert [result.reward for result in (nothing, comment, gold)] == [0.0, 0.0, 1.0]
    assert [result.success for result in (nothing, comment, gold)] == [False, False, True]
    assert nothing.metrics["swe/no_change"] == 1.0
    assert comment.metrics["swe/study_ratio"] == 3 / 5  # the tests ran: those that passed before still do
