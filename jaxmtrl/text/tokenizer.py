"""Strings to token ids and back, such that no text can become a control token.

A thin frozen class over the `tokenizers` library; it knows nothing of turns or templates.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers

from jaxmtrl.errors import TokenizerError

PAD = "<|pad|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
CONTROL_TOKENS = (PAD, TURN_START, TURN_END)
FILE_NAME = "tokenizer.json"

# Words and punctuation runs carry the one space before them, every digit stands alone, line breaks and the rest of the
# spaces are pieces of their own. Merges stay within a piece, so that "<|im_end|>" (five pieces) cannot be learnt.
_PIECES = r" ?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|[\r\n]+|[^\S\r\n]+(?!\S)|[^\S\r\n]+"


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Encodes text as data and decodes ids for people; safe to use from many threads at once.

    The wrapped tokenizer is set up once here and never changed again: changing it while another thread encodes is what
    raises "Already borrowed". Make one with `byte_tokenizer`, `train_bpe` or `load`.

    Raises:
        TokenizerError: the pad token is not a control token, or the text of a control token encodes to its id.
    """

    backend: tokenizers.Tokenizer
    pad_token: str = PAD
    control_ids: Mapping[str, int] = field(init=False)  # every control token's name and id
    _control: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        added = self.backend.get_added_tokens_decoder()
        unknown = getattr(self.backend.model, "unk_token", None)  # special by name, but it stands for text
        names = {tok.content: id_ for id_, tok in added.items() if tok.special and tok.content != unknown}
        object.__setattr__(self, "control_ids", names)
        object.__setattr__(self, "_control", frozenset(self.control_ids.values()))
        self.backend.encode_special_tokens = True  # not kept by tokenizer.json nor by pickle: set on every way in
        self.backend.no_truncation()  # a tokenizer.json may carry either, and would cut or fill observations
        self.backend.no_padding()
        self.special_id(self.pad_token)
        for name in self.control_ids:
            self.encode(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_json, (self.backend.to_str(), self.pad_token)

    def encode(self, text: str) -> np.ndarray:
        """Token ids of `text`, i32 [n]; whatever it says, none of them is a control token and no BOS is added.

        Half a surrogate pair, which no UTF-8 can express, becomes U+FFFD.

        Raises:
            TokenizerError: the tokenizer's own merges build a control token out of plain text.
        """
        ids = self.backend.encode(_without_surrogates(text), add_special_tokens=False).ids
        if not self._control.isdisjoint(ids):
            name = next(name for name, id_ in self.control_ids.items() if id_ in ids)
            raise TokenizerError(
                f"plain text encodes to the control token {name!r} (text {text[:60]!r}): an observation could end "
                f"a turn. Use a tokenizer whose merges spell no control token (tokenizers {tokenizers.__version__})."
            )
        return np.array(ids, np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray, keep_special: bool = False) -> str:
        """The text of `ids` [n]; control tokens are left out unless `keep_special`, incomplete UTF-8 shows as U+FFFD.

        Ids outside the vocabulary (a model may have spare rows) give no text.
        """
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=not keep_special)

    @property
    def vocab_size(self) -> int:
        """Rows an embedding table needs: the largest id plus one."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def pad_id(self) -> int:
        return self.special_id(self.pad_token)

    def special_id(self, name: str) -> int:
        """Id of the control token called `name`.

        Raises:
            TokenizerError: there is none of that name, or it is in the vocabulary but not marked special.
        """
        if name in self.control_ids:
            return self.control_ids[name]
        plain = self.backend.token_to_id(name) is not None
        has = ", ".join(map(repr, self.control_ids)) or "none"
        raise TokenizerError(
            f"the tokenizer has no control token {name!r}"
            + (" (it is there, but as ordinary text: mark it special in tokenizer.json)" if plain else "")
            + f"; its control tokens are: {has}."
        )

    def token_bytes(self) -> list[bytes | None]:
        """The bytes that each id stands for in a text; None of control tokens and of ids that there are not.

        Raises:
            TokenizerError: its pieces are not of bytes, so that what they stand for depends on what is around them.
        """
        symbols = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
        added = self.backend.get_added_tokens_decoder()
        pieces: list[bytes | None] = [None] * self.vocab_size
        for text, id_ in self.backend.get_vocab(with_added_tokens=True).items():
            if id_ in self._control:
                continue
            if id_ in added:
                pieces[id_] = added[id_].content.encode("utf-8")
            elif all(symbol in symbols for symbol in text):
                pieces[id_] = bytes(symbols[symbol] for symbol in text)
            else:
                raise TokenizerError(f"the tokenizer's piece {text!r} is not made of bytes (byte-level BPE is)")
        return pieces

    def save(self, folder: str | Path) -> Path:
        """Writes `folder`/tokenizer.json, whole or not at all, and returns its path."""
        path = Path(folder) / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{FILE_NAME}.{os.getpid()}")
        unfinished.write_text(self.backend.to_str(pretty=True), encoding="utf-8")
        os.replace(unfinished, path)
        return path


def load(folder: str | Path, pad_token: str = PAD) -> Tokenizer:
    """Reads `folder`/tokenizer.json, ours or a published model's (whose pad is then named by `pad_token`).

    Raises:
        TokenizerError: no such file, not a tokenizer, or no control token `pad_token`.
    """
    path = Path(folder) / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as err:
        raise TokenizerError(
            f"cannot read the tokenizer {path}: {err.strerror}. Give the folder that holds it."
        ) from err
    try:
        return _from_json(text, pad_token)
    except TokenizerError as err:
        raise TokenizerError(f"{path}: {err}") from err


def byte_tokenizer() -> Tokenizer:
    """256 bytes, each its own value as id, then the control tokens: nothing to train, any text goes in."""
    vocab = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(_control_tokens())
    return Tokenizer(backend)


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level byte-pair pieces learnt from `texts`; the same texts always give the same tokenizer.

    Control tokens have ids 0, 1, 2, then come the 256 bytes, then merges of pairs seen at least twice. Little text
    gives fewer entries than asked for: size models by the result's `vocab_size`.
    Source: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909 (pairs); GPT-2 (bytes as the alphabet).

    Args:
        vocab_size: entries wanted, control tokens and bytes included; at least 259.

    Raises:
        TokenizerError: `vocab_size` is too small, or there is no text.
    """
    smallest = 256 + len(CONTROL_TOKENS)
    if vocab_size < smallest:
        raise TokenizerError(
            f"text.vocab_size must be at least {smallest} (256 bytes and control tokens), got {vocab_size}."
        )
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=_control_tokens(),
        initial_alphabet=list(_byte_symbols()),
        show_progress=False,
    )
    backend.train_from_iterator(_some_text(texts), trainer)
    return Tokenizer(backend)


def _from_json(text: str, pad_token: str) -> Tokenizer:
    try:
        backend = tokenizers.Tokenizer.from_str(text)
    except Exception as err:  # the library raises bare Exception for every kind of bad file
        raise TokenizerError(f"not a tokenizer that tokenizers {tokenizers.__version__} can read: {err}") from err
    return Tokenizer(backend, pad_token)


def _control_tokens() -> list[AddedToken]:
    return [AddedToken(name, special=True, normalized=False) for name in CONTROL_TOKENS]


def _some_text(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    for text in texts:
        empty = empty and not text
        yield _without_surrogates(text)
    if empty:
        raise TokenizerError("there is no text to train a tokenizer on; give some tasks, or use text.tokenizer: byte.")


def _without_surrogates(text: str) -> str:
    if text.isascii():
        return text
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def _byte_symbols() -> tuple[str, ...]:
    """The printable character by which byte-level pieces write each byte: itself, or one after U+0100."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))
