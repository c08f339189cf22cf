"""Against `transformers`: prompts put together piece by piece are its rendering of the whole conversation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from jinja_templates import INST, LLAMA3, QWEN3, SMOLLM2, VARIABLES, byte_backend

from jaxmtrl.text.published import CHATML, read, write_chatml
from jaxmtrl.text.tokenizer import train_bpe

pytestmark = pytest.mark.parity

TURNS = [("You are in the hall.  \n", "go north"), (" A door: 12 locks!", "open door"), ("It opens.", "")]


def theirs(folder, messages, prompt: bool) -> list[int]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, tokenize=True)["input_ids"])


@pytest.mark.parametrize("system", ["", "Win."])
@pytest.mark.parametrize("source", [SMOLLM2, LLAMA3, QWEN3, INST])
def test_prompts_are_theirs(source: str, system: str, tmp_path):
    if system and source is INST:
        pytest.skip("the template refuses system messages")
    byte_backend(adds_bos=True).save(str(tmp_path / "tokenizer.json"))
    settings = VARIABLES | {"pad_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "chat_template.jinja").write_text(source)
    check(tmp_path, system, " " if source is INST else "")


def test_a_tokenizer_of_our_own(tmp_path):
    write_chatml(train_bpe(["You are in the hall. go north, open door"] * 20, 400), tmp_path)
    assert read(tmp_path).template is not None and CHATML
    check(tmp_path, "Win.", "")


def check(folder, system: str, before_answers: str) -> None:
    text = read(folder)
    assert text.template is not None
    messages = [{"role": "system", "content": system}] if system else []
    ledger: list[int] = []
    for number, (observation, action) in enumerate(TURNS):
        messages.append({"role": "user", "content": observation})
        first = text.template.first_prompt(system, observation)
        ledger += (text.template.next_prompt(observation, stopped=True) if number else first).tolist()
        assert ledger == theirs(folder, messages, True)
        messages.append({"role": "assistant", "content": action})
        ledger += [*text.tokenizer.encode(before_answers + action).tolist(), text.template.turn_end]
    assert np.array_equal(ledger + text.template.separator.tolist(), theirs(folder, messages, False))
