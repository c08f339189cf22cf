"""Chat templates in the manner of published families, and a byte tokenizer with their control tokens."""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, processors

from jaxmtrl.text.tokenizer import Tokenizer, byte_tokenizer

# A system message of its own where there is none.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A BOS, no separator, and space around messages stripped.
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
# Thoughts are taken out of all answers but the last.
QWEN3 = (
    "{% for message in messages %}{% set text = message.content %}"
    "{% if message.role == 'assistant' and not loop.last and '</think>' in text %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Plain text between messages, and no system message.
INST = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}"
    "{{ raise_exception('only user and assistant') }}{% elif message.role == 'user' %}"
    "{{ '[INST] ' + message.content + ' [/INST]' }}{% else %}{{ ' ' + message.content + eos_token }}{% endif %}"
    "{% endfor %}"
)
NAMES = ("<|begin|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|endoftext|>")
VARIABLES = {"bos_token": "<|begin|>", "eos_token": "<|endoftext|>"}


def byte_backend(*, adds_bos: bool = False) -> tokenizers.Tokenizer:
    """256 bytes, ChatML's control tokens (256 to 258) and `NAMES` (259 to 263)."""
    backend = tokenizers.Tokenizer.from_str(byte_tokenizer().backend.to_str())
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in NAMES])
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 259)]
        )
    return backend


def tokenizer() -> Tokenizer:
    return Tokenizer(byte_backend(adds_bos=True))
