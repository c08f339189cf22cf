"""The text side of a model folder: its tokenizer, its chat template, and what ends an answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmtrl.errors import TokenizerError
from jaxmtrl.text import tokenizer as tokenizers
from jaxmtrl.text.jinja_template import JinjaTemplate, jinja_template
from jaxmtrl.text.tokenizer import TURN_END, Tokenizer

# Everything of a model folder that `PublishedText` reads; a run keeps a copy of these.
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "config.json",
)
CHATML = (  # `template.chatml` as a Jinja text
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedText:
    """What a model folder says of texts."""

    tokenizer: Tokenizer
    template: JinjaTemplate | None  # None: the folder has no chat template (a base model)
    stop_ids: frozenset[int]  # end an answer by the folder's files


def read(folder: Path) -> PublishedText:
    """Reads a folder's tokenizer and chat template.

    A model without a pad token pads with its end-of-text token: padding is told by lengths here, never by ids.

    Raises:
        TokenizerError: a file is missing or broken, or the tokenizer has more entries than the model has rows.
    """
    settings = _json(folder / "tokenizer_config.json")
    names = _special_names(_json(folder / "special_tokens_map.json") | settings)
    pad = names.get("pad_token") or names.get("eos_token")
    if pad is None:
        raise TokenizerError(f"{folder / 'tokenizer_config.json'} names neither a pad_token nor an eos_token.")
    tokenizer = tokenizers.load(folder, pad)
    config = _json(folder / "config.json")
    rows = config.get("vocab_size")
    if isinstance(rows, int) and tokenizer.vocab_size > rows:
        raise TokenizerError(
            f"the tokenizer in {folder} has {tokenizer.vocab_size} entries and the model {rows} rows: they do not "
            "belong together. Fetch both from one place."
        )
    stops = _ids(_json(folder / "generation_config.json").get("eos_token_id")) | _ids(config.get("eos_token_id"))
    if names.get("eos_token") in tokenizer.control_ids:
        stops |= {tokenizer.control_ids[names["eos_token"]]}
    source = _template_source(folder, settings)
    template = None
    if source is not None:
        template = jinja_template(source, tokenizer, variables=names, stops=frozenset(stops), bos_id=_bos_id(tokenizer))
    return PublishedText(tokenizer=tokenizer, template=template, stop_ids=frozenset(stops))


def write_chatml(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes a tokenizer of our own and the ChatML template as a model folder has them."""
    tokenizer.save(folder)
    names = {"bos_token": None, "eos_token": TURN_END, "pad_token": tokenizer.pad_token}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8")


def has_template(folder: Path) -> bool:
    """Whether a folder has a chat template."""
    return bool(_template_source(folder, _json(folder / "tokenizer_config.json")))


def _special_names(settings: dict[str, Any]) -> dict[str, str]:
    """The texts of the special tokens, each written plainly or as a mapping with its content."""
    found = {}
    for name in _NAMES:
        value = settings.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[name] = value
    return found


def _template_source(folder: Path, settings: dict[str, Any]) -> str | None:
    """The chat template: a file of its own, or in one of two JSON files; of several the one called default."""
    own = folder / "chat_template.jinja"
    if own.exists():
        return own.read_text(encoding="utf-8")
    said = settings.get("chat_template") or _json(folder / "chat_template.json").get("chat_template")
    if isinstance(said, list):
        named = {entry.get("name"): entry.get("template") for entry in said}
        said = named.get("default")
    return said


def _bos_id(tokenizer: Tokenizer) -> int | None:
    """The control token that the tokenizer puts before a text when it is asked to, by trial."""
    ids = tokenizer.backend.encode("text", add_special_tokens=True).ids
    return ids[0] if ids and ids[0] in tokenizer.control_ids.values() else None


def _ids(value: Any) -> set[int]:
    return set(value) if isinstance(value, list) else set() if value is None else {int(value)}


def _json(path: Path) -> dict[str, Any]:
    """A mapping from a JSON file; empty if there is none."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise TokenizerError(f"{path} is no JSON: {err}; fetch it again.") from err
    return content if isinstance(content, dict) else {}
