"""Timelines: what overlaps in a real batch overlaps in the file, and a run that wants none has none."""

from __future__ import annotations

import json

import tiny
from faulty_env import faulty_task

from jaxmtrl.rollout.collect import Player
from jaxmtrl.rollout.plays import seeded_plays
from jaxmtrl.rollout.pool import MultiprocessPool
from jaxmtrl.rollout.timeline import LEARNER, NO_TIMELINE, SAMPLER, Timeline
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import byte_tokenizer

WORKERS = 2


def tracks(path):
    """Spans of a file by the name of their track: (name, began, ended), times in s."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] == "X":
            began = event["ts"] / 1e6
            spans[names[event["tid"]]].append((event["name"], began, began + event["dur"] / 1e6))
    return spans


def test_a_file_holds_every_span_on_the_track_of_its_name(tmp_path):
    path = tmp_path / "timeline.json"
    timeline = Timeline(path)
    start = timeline._began
    timeline.add(SAMPLER, "decode", start + 1.0, start + 1.5)
    timeline.add("environments 10", "step", start + 1.0, start + 2.0)
    timeline.add("environments 2", "reset", start + 3.0, start + 2.0)  # clocks that disagree: no length
    timeline.close()
    spans = tracks(path)
    assert list(spans) == [SAMPLER, LEARNER, "weights", "environments 2", "environments 10"]
    assert spans[SAMPLER] == [("decode", 1.0, 1.5)]
    assert spans["environments 2"] == [("reset", 3.0, 3.0)]
    assert spans["environments 10"] == [("step", 1.0, 2.0)]


def test_it_is_bounded_and_keeps_the_latest(tmp_path):
    timeline = Timeline(tmp_path / "timeline.json", limit=3)
    for number in range(5):
        timeline.add(LEARNER, str(number), 0.0, 1.0)
    assert [span.name for span in timeline.spans] == ["2", "3", "4"]


def test_what_raises_has_taken_time_too(tmp_path):
    timeline = Timeline(tmp_path / "timeline.json")
    try:
        with timeline.span(LEARNER, "update"):
            raise ValueError
    except ValueError:
        pass
    assert [span.name for span in timeline.spans] == ["update"]


def test_without_a_path_nothing_is_kept_and_nothing_written():
    with NO_TIMELINE.span(SAMPLER, "decode"):
        NO_TIMELINE.add(LEARNER, "update", 0.0, 1.0)
    NO_TIMELINE.close()
    assert NO_TIMELINE.spans == []


def play(timeline, tasks, options, *, step_timeout_s=20.0):
    """One batch of `faulty_env` on the tiny engine; returns its episodes."""
    with MultiprocessPool(
        "faulty_env:make",
        options,
        workers=WORKERS,
        step_timeout_s=step_timeout_s,
        reset_timeout_s=20.0,
        recycle_after=0,
    ) as pool:
        player = Player(
            tiny.engine(),
            pool,
            tokenizer=byte_tokenizer(),
            template=chatml(byte_tokenizer()),
            system_prompt="",
            open_episodes=6,
            max_action_tokens=tiny.SAMPLING.max_action_tokens,
            max_failed_share=1.0,
            timeline=timeline,
        )
        return player.play(seeded_plays(tasks, group_size=1, seed=(0,)), temperature=1.0)


def test_environments_step_while_the_sampler_decodes(tmp_path):
    path = tmp_path / "timeline.json"
    timeline = Timeline(path)
    episodes = play(timeline, [faulty_task("none", seed=seed) for seed in range(6)], {"step_seconds": 0.02})
    timeline.close()
    spans = tracks(path)
    environments = [spans[f"environments {number}"] for number in range(WORKERS)]
    # Every reset, and every step that was played, once; a worker does one thing at a time.
    names = [name for track in environments for name, _, _ in track]
    assert names.count("reset") == len(episodes)
    assert names.count("step") == sum(len(episode.turns) for episode in episodes)
    for track in [*environments, spans[SAMPLER]]:
        ordered = sorted(track, key=lambda span: span[1])
        assert all(one[2] <= other[1] + 1e-6 for one, other in zip(ordered, ordered[1:]))
    assert all(ended >= began >= 0 for track in spans.values() for _, began, ended in track)
    decoding = [span for span in spans[SAMPLER] if span[0] == "prefill and decode"]
    together = [
        (step, decode)
        for track in environments
        for step in track
        for decode in decoding
        if step[1] < decode[2] and decode[1] < step[2]
    ]
    assert together, "no environment was at work while the sampler was"


def test_a_step_that_hangs_is_seen_as_long_as_its_deadline(tmp_path):
    timeline = Timeline(tmp_path / "timeline.json")
    (episode,) = play(timeline, [faulty_task("hang", 1)], {}, step_timeout_s=0.5)
    assert episode.failed
    (failure,) = [span for span in timeline.spans if span.name == "failure"]
    assert failure.track.startswith("environments") and 0.5 <= failure.ended - failure.began < 2.0
