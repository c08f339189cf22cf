"""The text side of a model folder: where its pieces may stand, and tokenizers that do not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from jinja_templates import INST, LLAMA3, SMOLLM2, byte_backend

from jaxmtrl.errors import TokenizerError
from jaxmtrl.text.published import has_template, read, write_chatml
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import train_bpe

END, EOT, EOS = 258, 262, 263


def folder_of(path, *, adds_bos=True, **files):
    """A model folder; `files` are JSON contents, or texts, by name with "_" for the first "."."""
    byte_backend(adds_bos=adds_bos).save(str(path / "tokenizer.json"))
    files = {"config_json": {"vocab_size": 320, "eos_token_id": EOS}} | files
    for name, content in files.items():
        name = name.replace("_json", ".json").replace("_jinja", ".jinja")
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return path


SETTINGS = {"bos_token": "<|begin|>", "eos_token": {"content": "<|eot_id|>"}, "pad_token": "<|endoftext|>"}


def test_everything_in_its_usual_place(tmp_path):
    text = read(
        folder_of(
            tmp_path,
            tokenizer_config_json=SETTINGS | {"chat_template": SMOLLM2},
            generation_config_json={"eos_token_id": [EOS, 5]},
        )
    )
    assert text.stop_ids == {EOT, EOS, 5}
    assert text.template is not None and text.template.stop_ids == {EOT, EOS, 5, END}
    assert text.tokenizer.pad_id == EOS
    assert text.template.bos_id == 259


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template_jinja": LLAMA3, "tokenizer_config_json": SETTINGS | {"chat_template": SMOLLM2}},
        {"tokenizer_config_json": SETTINGS, "chat_template_json": {"chat_template": LLAMA3}},
        {
            "tokenizer_config_json": SETTINGS
            | {"chat_template": [{"name": "rag", "template": SMOLLM2}, {"name": "default", "template": LLAMA3}]}
        },
    ],
)
def test_where_a_chat_template_may_stand(tmp_path, files):
    template = read(folder_of(tmp_path, **files)).template
    assert template is not None and template.turn_end == EOT


def test_a_base_model_has_none(tmp_path):
    text = read(folder_of(tmp_path, tokenizer_config_json=SETTINGS))
    assert text.template is None and text.stop_ids == {EOS, EOT}


def test_pad_is_the_end_of_text_where_there_is_no_pad(tmp_path):
    names = {"eos_token": "<|endoftext|>", "bos_token": "<|begin|>"}
    folder = folder_of(tmp_path, special_tokens_map_json=names, chat_template_jinja=INST)
    assert read(folder).tokenizer.pad_id == EOS


def test_our_own_text_as_a_folder(tmp_path):
    """What `chatml` says by pieces, the written Jinja text says as a whole."""
    own = train_bpe(["You are in the hall."] * 20, 320)
    write_chatml(own, tmp_path)
    text = read(tmp_path)
    assert text.template is not None and text.stop_ids == {own.special_id("<|im_end|>")}
    assert text.tokenizer.pad_id == own.pad_id and has_template(tmp_path)
    pieces = chatml(own)
    np.testing.assert_array_equal(text.template.first_prompt("Win.", "Hall."), pieces.first_prompt("Win.", "Hall."))
    np.testing.assert_array_equal(
        text.template.next_prompt("Hall.", stopped=False), pieces.next_prompt("Hall.", stopped=False)
    )


def test_a_tokenizer_that_adds_no_bos(tmp_path):
    folder = folder_of(tmp_path, adds_bos=False, tokenizer_config_json=SETTINGS, chat_template_jinja=SMOLLM2)
    template = read(folder).template
    assert template is not None and template.bos_id is None


def test_a_tokenizer_that_does_not_match_the_model(tmp_path):
    folder = folder_of(tmp_path, tokenizer_config_json=SETTINGS, config_json={"vocab_size": 200})
    with pytest.raises(TokenizerError, match="264 entries and the model 200 rows"):
        read(folder)


def test_what_is_missing_or_broken(tmp_path):
    with pytest.raises(TokenizerError, match="names neither a pad_token nor an eos_token"):
        read(folder_of(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match="is no JSON"):
        read(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match="cannot read the tokenizer"):
        read(tmp_path)
