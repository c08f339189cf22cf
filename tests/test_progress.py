"""Plain lines are few and complete; a terminal gets a bar; tables line up."""

from __future__ import annotations

import io

import pytest

from jaxmtrl.progress import Progress, duration, plain_table


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_hold_fields_and_the_time_left():
    clock, stream = Clock(), io.StringIO()
    with Progress(console_every_s=0.0, stream=stream, terminal=False, clock=clock) as progress:
        progress.stage("rl", total=50)
        clock.now += 60.0
        progress.advance(12, success=0.41, tokens_per_s=3100.4, kl=None)
    # 12 steps took 60 s, so the other 38 take 190 s.
    assert stream.getvalue() == "rl 12/50  success 0.41  tokens/s 3100  ETA 3 min 10 s\n"


def test_a_resumed_stage_reckons_with_its_own_steps_only():
    clock, stream = Clock(), io.StringIO()
    progress = Progress(console_every_s=0.0, stream=stream, terminal=False, clock=clock)
    progress.stage("rl", total=20, done=10)
    clock.now += 8.0
    progress.advance()
    # One step took 8 s and nine are left.
    assert stream.getvalue() == "rl 11/20  ETA 1 min 12 s\n"


def test_plain_lines_keep_their_distance_but_first_and_last_are_there():
    clock, stream = Clock(), io.StringIO()
    progress = Progress(console_every_s=5.0, stream=stream, terminal=False, clock=clock)
    progress.stage("sft", total=10)
    for _ in range(10):
        clock.now += 1.0
        progress.advance()
    # At 1 s, then 5 s later at 6 s, and the last at 10 s.
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["1/10", "6/10", "10/10"]


def test_no_control_characters_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = Progress(console_every_s=0.0, stream=stream)
    progress.stage("rl", total=1)
    progress.message("[red]not markup[/red]")
    progress.advance()
    assert stream.getvalue() == "[red]not markup[/red]\nrl 1/1\n"


def test_a_terminal_gets_a_bar_and_a_ruled_table():
    stream = io.StringIO()
    with Progress(stream=stream, terminal=True) as progress:
        progress.stage("rl", total=2)
        progress.advance(1, success=0.5)
        progress.message("[kept]")
        progress.stage("evaluation [heldout]", total=1)
        progress.advance()
        progress.table("results", ["split", "rl"], [["heldout", 0.5]])
    text = stream.getvalue()
    assert "\x1b[" in text and "success 0.5" in text and "[kept]" in text
    assert "heldout" in text and "│" in text
    assert text.rindex("evaluation [heldout]") < text.index("results")  # the finished bar stays above


def test_plain_tables_line_up():
    text = plain_table("success", ["split", "untrained", "rl"], [["heldout", 0.05, "0.62 ± 0.09"], ["w8", None, 1]])
    assert text.splitlines() == [
        "success",
        "split    untrained           rl",
        "-------  ---------  -----------",
        "heldout       0.05  0.62 ± 0.09",
        "w8               -            1",
    ]


@pytest.mark.parametrize(("seconds", "words"), [(-1, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (7500, "2 h 5 min")])
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words
