"""The runner: order, jobs, failures, interruptions. Its children are small programs that stand in for training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from jaxmtrl.studies import run as run_module
from jaxmtrl.studies.grid import Cell, Run, Smoke, Study, runs_of
from jaxmtrl.studies.run import log_of, run_all, train_commands

ROOT = Path(__file__).parents[2]
WIN = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.mkdir(parents=True); (p / 'result.json').write_text('{}')"
LOSE = "import sys; print('a long story'); print('error: rl.iterations is wrong'); sys.exit(2)"


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program, *map(str, arguments)]


def runs(tmp_path: Path, **cells: Cell) -> list[Run]:
    smoke = Smoke(cells=list(cells))
    study = Study(name="s", about="x", base="b", minutes_per_run=1, smoke=smoke, cells=cells)
    return runs_of(study, Path("b"), tmp_path, smoke=True)


def test_every_run_is_trained_once_and_those_that_are_done_are_not(tmp_path):
    made = runs(tmp_path, a=Cell(), b=Cell(), c=Cell())
    asked, said = [], []

    def commands(run: Run) -> list[list[str]]:
        asked.append(run.cell)
        return [python(WIN, run.folder)]

    assert run_all(made, done=made[1:2], jobs=1, say=said.append, commands_of=commands) == {}
    assert asked == ["a", "c"]
    assert "[3/3 done] c_s0 took" in said[-1]


def test_a_run_that_fails_is_reported_and_does_not_stop_the_others(tmp_path):
    made = runs(tmp_path, a=Cell(), b=Cell(), c=Cell(after="b"), d=Cell())
    said: list[str] = []
    failed = run_all(
        made,
        done=[],
        jobs=1,
        say=said.append,
        commands_of=lambda run: [python(LOSE if run.cell == "b" else WIN, run.folder)],
    )
    assert {run.cell: why.splitlines()[0][:24] for run, why in failed.items()} == {
        "b": "exit code 2; the same co",
        "c": "was not started, since b",
    }
    assert failed[made[1]].endswith("    a long story\n    error: rl.iterations is wrong")
    assert (tmp_path / "d_s0" / "result.json").exists() and not (tmp_path / "c_s0").exists()


def test_a_child_that_was_killed_says_so(tmp_path):
    made = runs(tmp_path, a=Cell())
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    failed = run_all(made, done=[], jobs=1, say=lambda line: None, commands_of=lambda run: [python(kill)])
    assert failed[made[0]].startswith("killed by SIGKILL")
    # the same command again: what has ended is not begun again, what was killed is
    assert not run_all(made, done=[], jobs=1, say=lambda line: None, commands_of=lambda run: [python(WIN, run.folder)])


def test_a_child_that_ends_well_without_a_result_has_failed(tmp_path):
    made = runs(tmp_path, a=Cell())
    failed = run_all(made, done=[], jobs=1, say=lambda line: None, commands_of=lambda run: [python("pass")])
    assert failed == {made[0]: "it ended without a result.json"}


def test_no_more_runs_are_side_by_side_than_jobs(tmp_path):
    """Each child waits until it sees another, so that two of three must meet, and notes how many it saw."""
    made = runs(tmp_path, a=Cell(), b=Cell(), c=Cell())
    meet = textwrap.dedent("""
        import pathlib, sys, time
        here = pathlib.Path(sys.argv[2]); mine = here / sys.argv[3]; mine.touch(); seen, until = 1, time.time() + 3
        while time.time() < until and seen < 2:
            seen = max(seen, len(list(here.iterdir()))); time.sleep(0.01)
        time.sleep(0.3); seen = max(seen, len(list(here.iterdir()))); mine.unlink()
        p = pathlib.Path(sys.argv[1]); p.mkdir(parents=True); (p / 'result.json').write_text(str(seen))
    """)
    (tmp_path / "here").mkdir()

    def commands(run: Run) -> list[list[str]]:
        return [python(meet, run.folder, tmp_path / "here", run.name)]

    assert not run_all(made, done=[], jobs=2, say=lambda line: None, commands_of=commands)
    seen = [int((run.folder / "result.json").read_text()) for run in made]
    assert max(seen) == 2


def test_commands_of_a_run_follow_each_other_and_the_first_that_fails_ends_it(tmp_path):
    made = runs(tmp_path, a=Cell(), b=Cell())
    note = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
    notes = tmp_path / "notes"
    failed = run_all(
        made,
        done=[],
        jobs=1,
        say=lambda line: None,
        commands_of=lambda run: [
            python(note, notes, f"{run.cell}1 "),
            python(LOSE) if run.cell == "a" else python(note, notes, "b2 "),
            python(WIN, run.folder),
        ],
    )
    assert notes.read_text() == "a1 b1 b2 " and [run.cell for run in failed] == ["a"]


def test_two_runs_do_not_export_one_policy_at_once(tmp_path):
    made = runs(tmp_path, a=Cell(), b=Cell(after="a"), c=Cell(after="a"))
    export = textwrap.dedent("""
        import os, sys, time
        os.mkdir(sys.argv[1] + ".lock"); time.sleep(0.2); os.rmdir(sys.argv[1] + ".lock"); os.makedirs(sys.argv[1])
    """)

    def commands(run: Run) -> list[list[str]]:
        before = [python(export, run.exported)] if run.exported and not run.exported.exists() else []
        return [*before, python(WIN, run.folder)]

    (tmp_path / "exported").mkdir()
    assert not run_all(made, done=[], jobs=3, say=lambda line: None, commands_of=commands)


def test_a_run_that_begins_with_another_exports_its_policy_once(tmp_path):
    made = runs(tmp_path, a=Cell(), b=Cell(after="a", policy="sft"))
    export, train = train_commands(made[1])
    assert export[1:] == [
        "-m", "jaxmtrl.study", "--export", str(tmp_path / "a_s0"), "--policy", "sft",
        "--to", str(tmp_path / "exported" / "a_s0_sft"),
    ]  # fmt: skip
    assert train[1:5] == ["-m", "jaxmtrl.train", "--config", "b"] and "run.seed=0" in train
    assert made[1].exported is not None
    made[1].exported.mkdir(parents=True)
    assert len(train_commands(made[1])) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_study_ends_its_children(tmp_path, number):
    program = f"""
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs these tests may ignore both
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.path.insert(0, {str(ROOT)!r})
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_study_run import python, runs
from jaxmtrl.studies.grid import Cell
from jaxmtrl.studies.run import run_all
child = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
try:
    run_all(runs(Path({str(tmp_path)!r}), a=Cell(), b=Cell()), done=[], jobs=2, say=print,
            commands_of=lambda run: [python(child, run.folder)])
except KeyboardInterrupt:
    sys.exit(130)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    notes = [tmp_path / "a_s0", tmp_path / "b_s0"]
    until = time.monotonic() + 60
    while not all(note.exists() and note.read_text() for note in notes) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(30) == 130
    for note in notes:
        with pytest.raises(ProcessLookupError):
            os.kill(int(note.read_text()), 0)


def test_a_child_that_will_not_stop_is_killed_with_all_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "_GRACE_S", 0.2)
    stubborn = textwrap.dedent("""
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        inner = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
        open(sys.argv[1], "w").write(f"{os.getpid()} {inner.pid}"); time.sleep(60)
    """)
    note = tmp_path / "a_s0"

    def interrupted(seconds: float) -> None:
        if note.exists() and note.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(run_module.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_all(
            runs(tmp_path, a=Cell()),
            done=[],
            jobs=1,
            say=lambda line: None,
            commands_of=lambda run: [python(stubborn, run.folder)],
        )
    child, inner = map(int, note.read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    until = time.monotonic() + 10
    while alive(inner) and time.monotonic() < until:
        pass
    assert not alive(inner)


def alive(process: int) -> bool:
    """Whether it runs; one that ended and that nobody has waited for does not."""
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def test_logs_of_two_tries_follow_each_other(tmp_path):
    made = runs(tmp_path, a=Cell())
    for word in ("first", "second"):
        run_all(
            made,
            done=[],
            jobs=1,
            say=lambda line: None,
            commands_of=lambda run, word=word: [python(f"print('{word}')")],
        )
    assert log_of(made[0]).read_text().split() == ["first", "second"]
