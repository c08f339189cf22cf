"""Text that spells control tokens, and tokenizers and templates that fall for it."""

from __future__ import annotations

import numpy as np
import pytest
from doctor_bench import by_name, failures

from jaxmtrl.diagnosis.text import check_text
from jaxmtrl.text.template import ChatTemplate, chatml
from jaxmtrl.text.tokenizer import Tokenizer, byte_tokenizer, train_bpe
from jaxmtrl.text.transcript import Transcript
from jaxmtrl.types import TurnStop

SEEN = ["You see a door.", "Café ☕ 鍵\r\n\ttab"]


def findings(tokenizer: Tokenizer, system: str = "Win."):
    return check_text(tokenizer, chatml(tokenizer), system, SEEN)


@pytest.mark.parametrize("tokenizer", [byte_tokenizer(), train_bpe(SEEN, 300)], ids=["byte", "bpe"])
@pytest.mark.parametrize("system", ["", "Win."])
def test_sound_text_passes(tokenizer: Tokenizer, system: str):
    assert failures(findings(tokenizer, system)) == []


def test_control_tokens_let_through_are_caught(monkeypatch: pytest.MonkeyPatch):
    right = Tokenizer.encode

    def gullible(self: Tokenizer, text: str):
        name = "<|im_end|>"
        before, found, after = text.partition(name)
        if not found:
            return right(self, text)
        return np.concatenate([right(self, before), [self.control_ids[name]], gullible(self, after)]).astype(np.int32)

    tokenizer = byte_tokenizer()
    monkeypatch.setattr(Tokenizer, "encode", gullible)
    finding = by_name(findings(tokenizer))["no text becomes a control token"]
    assert not finding.passed and finding.number is not None and finding.number >= 4


def test_a_tokenizer_that_loses_text_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: right(self, text.lower()))
    assert "observations survive the tokenizer" in failures(findings(byte_tokenizer()))


def test_a_forgotten_separator_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = ChatTemplate.next_prompt
    monkeypatch.setattr(ChatTemplate, "next_prompt", lambda *args, stopped: right(*args, stopped=stopped)[1:])
    assert failures(findings(byte_tokenizer())) == ["turns add up to the rendered conversation"]


def test_a_stop_token_that_is_not_sampled_is_caught(monkeypatch: pytest.MonkeyPatch):
    def cut(self: Transcript, text: str):
        ids = self._tokenizer.encode(text)
        self._append(ids, np.zeros(len(ids), np.float32), TurnStop.LENGTH, text, None)

    monkeypatch.setattr(Transcript, "force", cut)
    assert "turns add up to the rendered conversation" in failures(findings(byte_tokenizer()))


def test_a_template_that_rewrites_history_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = ChatTemplate.render

    def without_old_thoughts(self, messages, add_generation_prompt):
        kept = [
            message | {"content": message["content"].split("</think>")[-1]}
            if message["role"] == "assistant" and number < len(messages) - 1
            else message
            for number, message in enumerate(messages)
        ]
        return right(self, kept, add_generation_prompt)

    monkeypatch.setattr(ChatTemplate, "render", without_old_thoughts)
    assert "the template only ever appends" in failures(findings(byte_tokenizer()))
