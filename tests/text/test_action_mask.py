"""The table of tokens says what the automaton of bytes says, for any way to cut a command into tokens."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from jaxmtrl.actions.automaton import Automaton
from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.actions.verbs import verb_of
from jaxmtrl.errors import TokenizerError
from jaxmtrl.text.action_mask import action_mask
from jaxmtrl.text.tokenizer import Tokenizer, _control_tokens, byte_tokenizer, train_bpe

SPACE = ActionSpace.of({"one": ["go", "take"], "two": ["go to", "tap"]}, {})
TEXTS = ["go to desk 1", "take mug 1 from desk 1", "tap lamp 1", "<action>go north</action>"] * 3
BPE = train_bpe(TEXTS, 320)
STOP = BPE.special_id("<|im_end|>")
ROWS = 330  # more than the tokenizer has


def mask(think: bool = False, tokenizer: Tokenizer = BPE, stop: int = STOP):
    return action_mask(SPACE, tokenizer, [stop], rows=ROWS, think=think)


MASKS = {think: mask(think) for think in (False, True)}


def walks(automaton: Automaton, text: bytes):
    state = automaton.start
    for byte in text:
        state = None if state is None else automaton.after(state, byte)
    return state


@pytest.mark.parametrize("tokenizer", [BPE, byte_tokenizer()])
def test_pieces_of_a_text_are_its_bytes(tokenizer):
    pieces = tokenizer.token_bytes()
    for text in ("go to desk 1", "Grüße ☃\n", "<|im_end|>"):
        assert b"".join(pieces[id_] or b"?" for id_ in tokenizer.encode(text)) == text.encode()
    assert pieces[tokenizer.pad_id] is None


@pytest.mark.parametrize("think", [False, True])
@pytest.mark.parametrize("stage", [0, 1])
@given(ids=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=6))
def test_tokens_are_let_through_as_their_bytes_are(stage, think, ids):
    made, pieces = MASKS[think], BPE.token_bytes()
    automaton = Automaton.of(SPACE.allowed(stage), SPACE.known, think=think)
    state, number = automaton.start, made.root(stage)
    for id_ in ids:
        piece = pieces[id_] if id_ < len(pieces) else None
        if id_ == STOP:
            assert (made.table[number, id_] >= 0) == automaton.may_stop(state)
            return
        if piece is None:  # control tokens and spare rows
            following = state if state == "free" or automaton.thinks_in(state) else None
        else:
            following = state
            for byte in piece:
                following = None if following is None else automaton.after(following, byte)
        assert (made.table[number, id_] >= 0) == (following is not None)
        if following is None:
            return
        state, number = following, int(made.table[number, id_])


@given(seed=st.integers(0, 500), stage=st.sampled_from([0, 1]))
def test_whatever_is_drawn_has_an_allowed_verb(seed, stage):
    made, rng = MASKS[False], np.random.default_rng(seed)
    state, ids = made.root(stage), []
    while state and len(ids) < 30 and STOP not in ids:
        ids.append(int(rng.choice(np.flatnonzero(made.allowed[state]))))
        state = made.table[state, ids[-1]]
    assert len(ids) < 30 and verb_of(BPE.decode(ids), SPACE.known) in SPACE.allowed(stage)


def test_every_state_allows_something_and_the_first_row_all():
    for made in MASKS.values():
        assert made.allowed.any(axis=1).all() and made.allowed[0].all() and not made.table[0].any()
        assert made.root(None) == 0 and made.root(0) != made.root(1)


def test_a_tokenizer_of_bytes_gives_the_same_commands():
    tokenizer = byte_tokenizer()
    made = mask(tokenizer=tokenizer, stop=tokenizer.special_id("<|im_end|>"))
    for text, stage, lets in [("go", 0, True), ("go to x", 0, False), ("go to x", 1, True), ("tap", 0, False)]:
        ids = [*tokenizer.encode(text), tokenizer.special_id("<|im_end|>")]
        if lets:
            assert len(made.states(made.root(stage), ids)) == len(ids)
        else:
            with pytest.raises(TokenizerError, match="not allowed by the mask of actions"):
                made.states(made.root(stage), ids)


def test_the_states_of_an_action_begin_at_its_root_and_end_free():
    made = MASKS[False]
    ids = BPE.encode("take mug 1")
    states = made.states(made.root(0), ids)
    assert states[0] == made.root(0) and states[-1] == 0 and states.dtype == np.int32
    assert made.states(0, BPE.encode("heat mug")).tolist() == [0] * len(BPE.encode("heat mug"))


def test_stages_share_what_is_alike():
    """After "t" stage one goes on to take; stage two to take or tap: only such states are counted twice."""
    alone = [action_mask(ActionSpace.of({"a": adds}, {}), BPE, [STOP], rows=ROWS, think=False) for adds in (["go"],)]
    again = action_mask(ActionSpace.of({"a": ["go"], "b": ["zap"]}, {}), BPE, [STOP], rows=ROWS, think=False)
    assert len(again.table) < 2 * len(alone[0].table) + 4


def test_pieces_that_are_no_bytes_are_refused():
    backend = tokenizers.Tokenizer(models.WordLevel({"▁go": 0, "▁to": 1}, unk_token="▁go"))
    backend.add_special_tokens(_control_tokens())
    with pytest.raises(TokenizerError, match="not made of bytes"):
        mask(tokenizer=Tokenizer(backend), stop=2)
