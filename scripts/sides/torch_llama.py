"""The decoder of the torch sides, with random weights."""

from __future__ import annotations

import torch
from serving import Shape
from transformers import LlamaConfig, LlamaForCausalLM


def make_llama(shape: Shape, longest: int) -> LlamaForCausalLM:
    """In f32, tied head, no special tokens; rows of up to `longest` tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.embed,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=longest,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).float()
