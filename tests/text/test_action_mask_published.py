"""The mask of actions over a tokenizer of the published kind, and under verbs that are hard on it."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers, trainers

from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.actions.verbs import plain, verb_of
from jaxmtrl.errors import TokenizerError
from jaxmtrl.text import action_mask as module
from jaxmtrl.text.action_mask import action_mask
from jaxmtrl.text.tokenizer import Tokenizer, _byte_symbols, _control_tokens, load


def published(folder) -> Tokenizer:
    """One as SmolLM2's and Qwen's: GPT-2's pieces, digits alone, its first ids special, some bytes lacking, and words
    added that are not special, one of them with a space in it and one that begins a tag."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>"]
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = tokenizers.decoders.ByteLevel()
    plain = [symbol for symbol in _byte_symbols() if symbol not in "ÀÁõö÷øùúûüýþÿ"]  # bytes that no UTF-8 has
    words = ["go to", "take", "put down", "don't", "tap", "<action>take", "</action>", "Go To", "the mug", "  "]
    backend.train_from_iterator(
        [f"{one}{gap}{other} 1\n" for one in words for other in words for gap in ("", " ")],
        trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=plain, show_progress=False),
    )
    backend.add_tokens([AddedToken("<tool_call>"), AddedToken("go to the"), AddedToken("<act"), AddedToken("   ")])
    backend.save(str(folder / "tokenizer.json"))
    return load(folder, "<|endoftext|>")


HOSTILE = {
    "prefixes of one another": ["g", "go", "go t", "go to", "go to the", "gone"],
    "of odd letters": ["don't", "x-ray", "o'", "take"],
    "very long": ["a" * 100, "b " * 60 + "b", "take"],
    "many": [f"{one}{two} {three}" for one in "abcdef" for two in "abcdef" for three in "abcdef"],
    "one letter": ["a"],
}


@pytest.fixture(scope="module")
def smol(tmp_path_factory) -> Tokenizer:
    return published(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def by_piece(smol) -> dict[bytes, int]:
    return {piece: id_ for id_, piece in enumerate(smol.token_bytes()) if piece}


def cut(by_piece: dict[bytes, int], text: bytes, rng: np.random.Generator) -> list[int]:
    """A way to cut a text into tokens, drawn among all there are."""
    ids: list[int] = []
    while text:
        heads = [text[:size] for size in range(1, 12) if text[:size] in by_piece]
        head = heads[rng.integers(len(heads))]
        ids.append(by_piece[head])
        text = text[len(head) :]
    return ids


def test_the_published_kind_has_what_makes_it_one(smol):
    pieces = smol.token_bytes()
    assert smol.pad_id == smol.special_id("<|endoftext|>") == 0 and pieces[0] is None
    assert {b"go to the", b"<tool_call>", b" to", b"<act"} <= set(pieces) and bytes([0xFF]) not in pieces


@pytest.mark.parametrize("think", [False, True])
@pytest.mark.parametrize("verbs", HOSTILE.values(), ids=HOSTILE)
def test_an_allowed_command_passes_however_it_is_cut_and_a_forbidden_one_never(smol, by_piece, verbs, think):
    stop, rng = smol.special_id("<|im_end|>"), np.random.default_rng(0)
    space = ActionSpace.of({"one": verbs[::2], "two": verbs[1::2]}, {})
    made = action_mask(space, smol, [stop], rows=smol.vocab_size + 3, think=think)
    assert made.allowed.any(axis=1).all()
    for verb in verbs[:8]:
        for text in (verb, f"{verb} mug 1", f"{verb} über"):
            said = f"well, <action>{text}</action>" if think else text
            for ids in (smol.encode(said).tolist(), *(cut(by_piece, said.encode(), rng) for _ in range(4))):
                assert smol.decode(ids) == said
                may = verb_of(text, space.known) in space.allowed(0)
                if may:
                    assert len(made.states(made.root(0), [*ids, stop])) == len(ids) + 1
                else:
                    with pytest.raises(TokenizerError, match="not allowed by the mask of actions"):
                        made.states(made.root(0), [*ids, stop])


@pytest.mark.parametrize("verbs", HOSTILE.values(), ids=HOSTILE)
def test_what_is_drawn_under_hostile_verbs_has_one_of_them(smol, verbs):
    stop, rng = smol.special_id("<|im_end|>"), np.random.default_rng(1)
    space = ActionSpace.of({"one": verbs[::2], "two": verbs[1::2]}, {})
    made = action_mask(space, smol, [stop], rows=smol.vocab_size, think=False)
    for stage in (0, 1) if len(verbs) > 1 else (0,):
        for _ in range(40):
            state, ids = made.root(stage), []
            while state and len(ids) < 300 and (not ids or ids[-1] != stop):
                ids.append(int(rng.choice(np.flatnonzero(made.allowed[state]))))
                state = int(made.table[state, ids[-1]])
            assert verb_of(plain(smol.decode(ids)), space.known) in space.allowed(stage)


def test_commands_given_twice_change_nothing(smol):
    once, twice = (ActionSpace.of({"one": verbs}, {}) for verbs in (["go", "take"], ["go", "take", "go"]))
    made = [action_mask(space, smol, [2], rows=smol.vocab_size, think=False).table for space in (once, twice)]
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize(("verbs", "said"), [([], "begins any verb"), (["heat", "zap"], "begins 'p'")])
def test_a_verb_that_no_token_spells_is_refused_and_not_left_to_the_sampler(verbs, said):
    """Where nothing may be sampled, every probability would be NaN."""
    backend = tokenizers.Tokenizer(models.BPE(vocab={sign: id_ for id_, sign in enumerate("heatz")}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(_control_tokens())
    tokenizer = Tokenizer(backend)
    space = ActionSpace.of({"one": verbs[-1:], "two": ["heat"]}, {})
    with pytest.raises(TokenizerError, match=f"no token of the tokenizer {said}.* name other verbs, or set"):
        action_mask(space, tokenizer, [tokenizer.special_id("<|im_end|>")], rows=tokenizer.vocab_size, think=False)


def test_a_table_that_would_not_fit_is_refused_before_it_is_made(monkeypatch, smol):
    monkeypatch.setattr(module, "_MOST_BYTES", 100 * 2 * smol.vocab_size)
    space = ActionSpace.of({"one": HOSTILE["very long"]}, {})
    with pytest.raises(TokenizerError, match=r"wants more than 101 states of \d+ tokens .* name fewer verbs or stages"):
        action_mask(space, smol, [2], rows=smol.vocab_size, think=False)
