"""A judge whose server gives anything but a chat completion, or whose cache or key is not what it should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("openai")

from judge_server import JudgeServer
from moments import said

from jaxmtrl.errors import ConfigError, EnvironmentFailure
from jaxmtrl.rewards import judge as module
from jaxmtrl.rewards.judge import Judge, JudgeSettings, read_score, require_judge

TURNS = said("take key", "open door")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)
    made = JudgeServer()
    yield made
    made.close()


def settings(server: JudgeServer | None = None, **others) -> JudgeSettings:
    plain = {"url": server.url if server else "http://x/v1", "model": "m", "api_key_env": "", "instructions": ""}
    plain |= {"deadline_s": 10.0, "retries": 1, "max_tokens": 64, "cache": ""}
    return JudgeSettings(**{**plain, **others})


def completion(content: object) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]}).encode()


NO_COMPLETIONS = [
    *(
        b"",
        b"<html>hi</html>",
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b'{"choices": [',
        b"NaN",
        b"[1]",
        b"null",
        b'"x"',
        b"5",
    ),
    *(b"{}", b'{"choices": null}', b'{"choices": "hi"}', b'{"choices": 5}', b'{"choices": [5]}', b'{"choices": [{}]}'),
    *(b'{"choices": [{"message": null}]}', b'{"choices": [{"message": "hi"}]}', b'{"error": {"message": "busy"}}'),
    *(completion(content) for content in (5, ["score: 1"], {"score": 1}, None, "", "score: NaN")),
]


@pytest.mark.parametrize("body", NO_COMPLETIONS, ids=[repr(body[:24]) for body in NO_COMPLETIONS])
def test_an_answer_that_is_no_completion_is_asked_for_again(server, body):
    server.plan = [body]
    assert Judge(settings(server)).score(TURNS) == 0.75
    assert len(server.asked) == 2


def test_a_server_that_never_answers_with_a_completion_fails_the_episode(server):
    server.plan = [b"<html>hi</html>"] * 2
    with pytest.raises(EnvironmentFailure, match="gave no score within 10 s and 2 requests; the last one: an answer"):
        Judge(settings(server)).score(TURNS)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_what_may_pass_is_asked_again(server, status):
    server.plan = [status]
    assert Judge(settings(server)).score(TURNS) == 0.75


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_what_will_not_pass_is_not(server, status):
    server.plan = [status]
    with pytest.raises(EnvironmentFailure, match="refused the request: Error code: .*correct the section judge"):
        Judge(settings(server)).score(TURNS)
    assert len(server.asked) == 1


@pytest.mark.parametrize("answer", ["score: ٠.٥", "score: 0.٥", "score: １"])
def test_digits_of_other_scripts_are_no_score(answer):
    with pytest.raises(module._Again):
        read_score(answer)


def test_half_a_surrogate_pair_does_not_keep_an_episode_from_being_judged(server):
    assert Judge(settings(server)).score(said("take \ud800 key")) == 0.75
    assert "take ? key" in server.asked[0]["messages"][1]["content"]


@pytest.mark.parametrize("content", [b"[" * 100_000, b"", b"\xff", b'{"score": NaN}', b'{"score": true}'])
def test_a_damaged_score_in_the_cache_is_asked_for_anew(server, tmp_path, content):
    judge = Judge(settings(server, cache=str(tmp_path)))
    judge.score(TURNS)
    next(tmp_path.rglob("*.json")).write_bytes(content)
    assert judge.score(TURNS) == 0.75 and len(server.asked) == 2


def test_a_score_that_cannot_be_kept_is_still_a_score(server, tmp_path):
    judge = Judge(settings(server, cache=str(tmp_path)))
    judge.score(TURNS)
    kept = next(tmp_path.rglob("*.json"))
    kept.unlink()
    kept.mkdir()
    assert judge.score(TURNS) == 0.75
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_cache_where_nothing_can_be_kept_is_found_out_at_start_up(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="judge.cache: got .*/file/x, where nothing can be kept .*name another"):
        require_judge(settings(cache=str(Path(tmp_path / "file" / "x"))))


@pytest.mark.parametrize("key", ["a\nb", " sk-1", "sk-1\n", "schlüssel"])
def test_a_key_that_no_server_takes_is_found_out_at_start_up_and_not_shown(monkeypatch, key):
    monkeypatch.setenv("SOME_KEY", key)
    with pytest.raises(ConfigError, match="judge.api_key_env: got SOME_KEY, and that .* holds blanks") as caught:
        require_judge(settings(api_key_env="SOME_KEY"))
    assert key.strip() not in str(caught.value)


def test_a_key_that_a_worker_does_not_have_is_one_error_there_too(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(ConfigError, match="no such environment variable is set"):
        Judge(settings(api_key_env="SOME_KEY"))
