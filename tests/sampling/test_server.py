"""A server in the sampler's place, asked over real HTTP. The stub behind it plays with the same small network."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmtrl.errors import ServerError
from jaxmtrl.sampling.server import ServerEngine
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import byte_tokenizer
from jaxmtrl.types import TurnStop

TOKENIZER = byte_tokenizer()
TEMPLATE = chatml(TOKENIZER)
STOPS = sorted(TEMPLATE.stop_ids)
ROW = 128


@jax.jit
def _next(params, tokens, length):
    """Log-probs of the token after `length` tokens of a row."""
    net = tiny.network()
    positions, segments = jnp.arange(ROW)[None], jnp.zeros((1, ROW), jnp.int32)
    hidden = net.hidden(params, tokens[None], positions, segments)[0, length - 1]
    return jax.nn.log_softmax(net.logits(params, hidden))


def greedy(ids: list[int], cap: int) -> tuple[list[int], list[float]]:
    row, out, scores = np.zeros(ROW, np.int32), [], []
    row[: len(ids)] = ids
    for length in range(len(ids), len(ids) + cap):
        logprobs = np.asarray(_next(tiny.params(), row, length))
        token = int(logprobs.argmax())
        row[length] = token
        out.append(token)
        scores.append(float(logprobs[token]))
        if token in STOPS:
            break
    return out, scores


class Stub:
    """What a test wants of the server: which models, how it spells tokens, and what goes wrong."""

    def __init__(self) -> None:
        self.models = ["tiny"]
        self.spelling = "token_ids"  # | "tokens" | "none"
        self.keeps_stop = False  # the token that stopped it is left out
        self.shift = 0  # added to every id, as another vocabulary would
        self.says: list[int] = []  # in place of what the network would
        self.failures = 0  # answers with 503 so many times
        self.asked: list[dict] = []

    def complete(self, asked: dict) -> dict:
        self.asked.append(asked)
        ids, scores = greedy(asked["prompt"], asked["max_tokens"])
        if self.says:
            ids, scores = self.says, [-1.0] * len(self.says)
        stopped = ids[-1] in asked["stop_token_ids"]
        text = TOKENIZER.decode(np.asarray(ids, np.int32))
        if stopped and self.keeps_stop:
            ids, scores = ids[:-1], scores[:-1]
        ids = [(token + self.shift) % 256 if token < 256 else token for token in ids]
        tokens = [f"token_id:{token}" for token in ids] if self.spelling == "tokens" else ["?"] * len(ids)
        choice = {
            "index": 0,
            "text": text,
            "finish_reason": "stop" if stopped else "length",
            "logprobs": {"tokens": tokens, "token_logprobs": scores, "top_logprobs": None, "text_offset": []},
        }
        if self.spelling == "token_ids":
            choice["token_ids"] = ids
        return {"id": "1", "object": "text_completion", "created": 0, "model": "tiny", "choices": [choice]}


@pytest.fixture
def stub():
    state = Stub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def _answer(self, code: int, content: dict) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in state.models]
            self._answer(200, {"object": "list", "data": models})

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if state.failures:
                state.failures -= 1
                self._answer(503, {"error": {"message": "overloaded"}})
            else:
                self._answer(200, state.complete(asked))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield state
    server.shutdown()
    server.server_close()


def connect(url: str, **changes) -> ServerEngine:
    given = {"model": "", "slots": 3, "cache_length": 100, "max_action_tokens": 6, "retries": 1, "timeout_s": 20.0}
    probe = TEMPLATE.first_prompt("", "Hi.")
    return ServerEngine(url, probe=probe, decode=TOKENIZER.decode, stop_ids=STOPS, **(given | changes))


def play(engine, prompts: list[list[np.ndarray]]):
    """Every episode's actions, all open at once."""
    slots = {engine.open((number, 0), 0.0): number for number in range(len(prompts))}
    actions = [[] for _ in prompts]
    for slot, number in slots.items():
        engine.submit(slot, prompts[number][0])
    while engine.busy:
        for sampled in engine.step():
            number = slots[sampled.slot]
            actions[number].append(sampled)
            if len(actions[number]) < len(prompts[number]):
                engine.submit(sampled.slot, prompts[number][len(actions[number])])
    for slot in slots:
        engine.close(slot)
    return actions


@pytest.mark.parametrize(("spelling", "keeps_stop"), [("token_ids", False), ("tokens", True)])
def test_it_plays_as_the_engine_with_the_same_weights(stub, spelling, keeps_stop):
    """Three episodes of two turns, greedily: the same ids, stops and (where the server tells them) log-probs."""
    stub.spelling, stub.keeps_stop = spelling, keeps_stop
    rng = np.random.default_rng(1)
    prompts = [[rng.integers(0, 255, size).astype(np.int32) for size in (9 + 3 * n, 5)] for n in range(3)]
    served = connect(stub.url)
    theirs, ours = play(served, prompts), play(tiny.engine(), prompts)
    served.shut()
    assert served.free_slots == 3 and [len(actions) for actions in theirs] == [2, 2, 2]
    for mine, other in zip(sum(ours, []), sum(theirs, []), strict=True):
        np.testing.assert_array_equal(mine.ids, other.ids)
        assert mine.stop == other.stop
        known = ~np.isnan(other.logprobs)
        np.testing.assert_allclose(mine.logprobs[known], other.logprobs[known], atol=1e-4)
        assert known.sum() >= len(mine.ids) - 1
    last = stub.asked[-1]
    assert last["stop_token_ids"] == STOPS and last["return_token_ids"] and not last["skip_special_tokens"]
    assert len(last["prompt"]) > 9 + 5  # the whole episode, its first action too


def test_the_room_shrinks_by_prompts_and_actions(stub):
    engine = connect(stub.url, cache_length=20)
    slot = engine.open((0, 0), 0.0)
    engine.submit(slot, np.arange(17, dtype=np.int32))
    while engine.busy:
        for sampled in engine.step():
            assert len(sampled.ids) <= 4  # 20 - 17, and the last action token needs no column of its own
            assert sampled.stop is TurnStop.LENGTH or sampled.ids[-1] in STOPS
            assert engine.room(slot) == 20 - 17 - len(sampled.ids)
    engine.shut()


def test_an_overloaded_server_is_asked_again(stub):
    engine = connect(stub.url)
    stub.failures = 1
    assert len(play(engine, [[np.arange(5, dtype=np.int32)]])[0]) == 1
    stub.failures = 9
    with pytest.raises(ServerError, match="completion and gave none: .*overloaded"):
        play(engine, [[np.arange(5, dtype=np.int32)]])
    engine.shut()


def test_what_cannot_be_used_is_told_before_anything_is_played(stub):
    stub.spelling = "none"
    with pytest.raises(ServerError, match=r"no token ids back.*vLLM 0\.10\.2"):
        connect(stub.url)
    stub.spelling, stub.shift, stub.says = "token_ids", 1, list(b"hello")
    with pytest.raises(ServerError, match="other tokens than the run: ids that it wrote as 'hello' are 'ifmmp' here"):
        connect(stub.url)
    stub.shift, stub.models = 0, ["one", "two"]
    with pytest.raises(ServerError, match="the models one, two; name one"):
        connect(stub.url)
    connect(stub.url, model="two").shut()
    with pytest.raises(ServerError, match="its models and gave none"):
        connect("http://127.0.0.1:9/v1", retries=0)
