"""What the printed episodes say, which are chosen, and what bad input does."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxmtrl.rollout.record import episode_record
from jaxmtrl.types import Episode, EpisodeStop, Turn, TurnStop

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "show_episodes.py"
spec = importlib.util.spec_from_file_location("show_episodes", SCRIPT)
assert spec and spec.loader
show_episodes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(show_episodes)


def line(task_id: str, stop: EpisodeStop, success: bool, stage: str = "rl", error: str = "") -> str:
    turn = Turn(
        prompt_ids=np.array([1]),
        action_ids=np.array([103, 111]),
        action_logprobs=np.array([-0.5, -1.0]),
        reward=0.25,
        stop=TurnStop.LENGTH,
        observation="A [bold]hall[/bold].\n\x1b[2JGone?",
        action="go north",
        metrics={"invalid_action": 1.0},
    )
    episode = Episode(
        task_id=task_id, group=0, index=1, turns=(turn,), stop=stop, success=success, policy_version=4, error=error
    )
    return json.dumps(episode_record(episode, step=7, stage=stage, split="train"))


@pytest.fixture
def run(tmp_path) -> Path:
    lines = [
        line("won-a", EpisodeStop.DONE, True),
        line("lost-b", EpisodeStop.DONE, False),
        line("cut-c", EpisodeStop.TRUNCATED, False, stage="evaluation"),
        line("failed-d", EpisodeStop.FAILED, False, error="TimeoutError: step took 20 s"),
    ]
    (tmp_path / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def shown(capsys, *arguments: str) -> list[str]:
    """The tasks printed."""
    assert show_episodes.main(arguments) == 0
    return [text.split(" | ")[3].split()[0] for text in capsys.readouterr().out.splitlines() if text.startswith("===")]


def test_an_episode_reads_like_a_play(run: Path, capsys):
    show_episodes.main([str(run), "--lost", "--last", "1"])
    assert capsys.readouterr().out.splitlines() == [
        "=== cut off | return 0.25 | 1 turns | cut-c play 1 | evaluation step 7 train | policy 4",
        "[1] A [bold]hall[/bold].",  # brackets are text
        "\\x1b[2JGone?",  # and a game cannot clear the screen
        "  > go north",
        "    reward 0.25, 2 tokens, log-prob -1.50, cut at the token cap, invalid_action 1",
        "",
    ]


def test_filters(run: Path, capsys):
    path = str(run)
    assert shown(capsys, path) == ["won-a", "lost-b", "cut-c", "failed-d"]
    assert shown(capsys, path, "--won") == ["won-a"]
    assert shown(capsys, path, "--lost") == ["lost-b", "cut-c"]  # a failed episode is not a lost one
    assert shown(capsys, path, "--failed") == ["failed-d"]
    assert shown(capsys, path, "--stage", "rl", "--last", "2") == ["lost-b", "failed-d"]
    assert shown(capsys, str(run / "episodes.jsonl"), "--lost", "--stage", "rl") == ["lost-b"]


def test_failures_say_why(run: Path, capsys):
    show_episodes.main([str(run), "--failed"])
    assert "error: TimeoutError: step took 20 s" in capsys.readouterr().out


def test_nothing_chosen_is_said(run: Path, capsys):
    assert show_episodes.main([str(run), "--stage", "sft"]) == 0
    assert capsys.readouterr() == ("", "none of 4 episodes is asked for.\n")


def test_bad_lines_are_named_and_the_rest_is_shown(run: Path, capsys):
    path = run / "episodes.jsonl"
    path.write_text(path.read_text().replace('"task_id": "lost-b"', '"task_id": 5') + '{"stage": "rl", "st')
    assert show_episodes.main([str(run)]) == 0
    out, err = capsys.readouterr()
    assert out.count("===") == 3
    assert [text.split(":")[0] for text in err.splitlines()] == ["line 2 skipped", "line 5 skipped"]


def test_a_missing_file_is_one_line(tmp_path, capsys):
    assert show_episodes.main([str(tmp_path / "absent")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("cannot read episodes from ") and err.count("\n") == 1


def test_bad_last_is_refused(run: Path, capsys):
    with pytest.raises(SystemExit):
        show_episodes.main([str(run), "--last", "0"])
    assert "must be a whole number of at least 1, got '0'" in capsys.readouterr().err


def test_a_reader_may_leave_early(run: Path):
    """`| head -1` closes the pipe: no traceback. And the script needs no jax."""
    path = run / "episodes.jsonl"
    path.write_text(path.read_text() * 500)
    command = f'"{sys.executable}" -X importtime "{SCRIPT}" "{run}" 2>err.txt | head -1'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=run, env=environment, check=True)
    assert done.stdout.startswith("=== won | ")
    err = (run / "err.txt").read_text()
    assert "Traceback" not in err and "Broken" not in err
    assert "jaxmtrl.rollout.record" in err and "| jax\n" not in err


def test_a_terminal_gets_color_and_no_markup(run: Path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    show_episodes.main([str(run), "--won"])
    out = capsys.readouterr().out
    assert "\x1b[1;32m=== won" in out
    assert "A [bold]hall[/bold]." in out and "\x1b[2J" not in out
