"""An episode as one JSON line, and lines that are none."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.rollout.record import episode_record, read_episodes
from jaxmtrl.types import Episode, EpisodeStop, Turn, TurnStop


def turn(**changes) -> Turn:
    values = {
        "prompt_ids": np.array([1, 2], np.int32),
        "action_ids": np.array([103, 258], np.int32),
        "action_logprobs": np.array([-0.123456, -2.0], np.float32),
        "reward": np.float32(0.5),
        "stop": TurnStop.STOP_TOKEN,
        "observation": "Hall é \ud800",
        "action": "g",
        "metrics": {"invalid_action": np.float64(1.0)},
    }
    return Turn(**(values | changes))


def episode(*turns: Turn) -> Episode:
    return Episode(
        task_id="w2/7", group=3, index=1, turns=turns, stop=EpisodeStop.DONE, success=True, policy_version=np.int64(11)
    )


def nothing(number: int, mistake: str) -> None:
    raise AssertionError(f"line {number}: {mistake}")


def test_a_record_is_plain_json_and_complete():
    record = episode_record(episode(turn(), turn(stop=TurnStop.LENGTH)), step=12, stage="rl", split="train")
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    turns = record.pop("turns")
    assert record == {
        "stage": "rl", "step": 12, "split": "train", "task_id": "w2/7", "group": 3, "index": 1, "stop": "done",
        "success": True, "return": 1.0, "policy_version": 11, "error": "",
    }  # fmt: skip
    assert turns[0] == {
        "observation": "Hall é \ud800", "action": "g", "prompt_ids": [1, 2], "action_ids": [103, 258],
        "action_logprobs": [-0.1235, -2.0], "reward": 0.5, "stop": "stop_token", "metrics": {"invalid_action": 1.0},
    }  # fmt: skip
    assert turns[1]["stop"] == "length"


def test_numbers_that_are_not_finite_become_null():
    odd = turn(action_logprobs=np.array([-np.inf, np.nan]), reward=float("nan"), metrics={"time_s": float("inf")})
    record = episode_record(episode(odd), step=0, stage="rl", split="train")
    json.dumps(record, allow_nan=False)
    assert record["turns"][0]["action_logprobs"] == [None, None]
    assert record["turns"][0]["metrics"] == {"time_s": None}
    assert record["return"] is record["turns"][0]["reward"] is None


def test_records_are_read_back_from_file_or_run_folder(tmp_path):
    records = [episode_record(episode(turn()), step=step, stage="rl", split="train") for step in range(3)]
    path = tmp_path / "episodes.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert list(read_episodes(path, nothing)) == list(read_episodes(tmp_path, nothing)) == records


def test_lines_that_are_no_episode_are_reported_with_their_number(tmp_path):
    good = json.dumps(episode_record(episode(turn()), step=0, stage="rl", split="train"))
    path = tmp_path / "episodes.jsonl"
    lines = [
        good,
        good[:50],  # cut off by a crash
        "[]",
        good.replace('"success"', '"sucess"'),
        good.replace('"reward": 0.5', '"reward": "much"'),
        "",
        good,
    ]
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    mistakes = []
    assert len(list(read_episodes(path, lambda number, mistake: mistakes.append((number, mistake))))) == 2
    assert [number for number, _ in mistakes] == [2, 3, 4, 5, 8]
    assert [mistake.split(";")[0] for _, mistake in mistakes[1:4]] == [
        "not an episode: list instead of an object",
        "not an episode: success missing or of the wrong type",
        "not an episode: in turn 1, reward missing or of the wrong type",
    ]
    assert "not JSON" in mistakes[0][1] and "not JSON" in mistakes[4][1]


def test_a_missing_file_is_one_clear_error(tmp_path):
    with pytest.raises(JaxmtrlError, match=r"cannot read episodes from .*absent: No such file.*log\.episodes"):
        list(read_episodes(tmp_path / "absent", nothing))
    with pytest.raises(JaxmtrlError, match=r"episodes\.jsonl: No such file"):
        list(read_episodes(tmp_path, nothing))
