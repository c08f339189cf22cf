"""The action space in tokens: which of them may be sampled where, so that no forbidden verb is ever begun.

The automaton of bytes (`actions/automaton.py`) becomes a table of tokens. Sampler and learner read the same table, by
the number of the state that a token was drawn in. Letters: N states, V vocab, A tokens of an action.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxmtrl.actions.automaton import FREE, OPEN, Automaton, State, to_come
from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.errors import TokenizerError
from jaxmtrl.text.tokenizer import Tokenizer

_MOST_STATES = np.iinfo(np.int16).max
_MOST_BYTES = 1 << 30  # of the table, which the sampler's device holds, and the learner's half as much
_CURE = "or set actions.enforce to admissible or prompt"
_IDS = -1  # key of the ids of tokens that end at a node of the tree of tokens; other keys are bytes


@dataclass(frozen=True, eq=False)
class ActionMask:
    """Made by `action_mask`."""

    table: np.ndarray  # i16 [N, V], the state after each token; -1 where it may not be sampled; row 0 allows everything
    roots: tuple[int, ...]  # by stage: the state in which an action begins

    @cached_property
    def allowed(self) -> np.ndarray:
        """bool [N, V], what may be sampled in each state."""
        return self.table >= 0

    def root(self, stage: int | None) -> int:
        """The state in which an action of a stage begins; without a stage everything is allowed."""
        return 0 if stage is None else self.roots[stage]

    def states(self, root: int, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The state in which each token of an action was drawn, i32 [A].

        Raises:
            TokenizerError: one of them could not be.
        """
        found, state = [], root
        for id_ in ids:
            found.append(state)
            state = int(self.table[state, id_])
            if state < 0:
                raise TokenizerError(
                    f"token {int(id_)} of the action {[int(i) for i in ids]} is not allowed by the mask of actions: "
                    "its verb is not of the stage, or it is not written in small letters with single spaces"
                )
        return np.array(found, np.int32)


def action_mask(
    space: ActionSpace, tokenizer: Tokenizer, stop_ids: Collection[int], *, rows: int, think: bool
) -> ActionMask:
    """The mask of every stage.

    Args:
        rows: V, of the network's logits; at least the tokenizer's.
        think: commands stand between tags; the rest is free.

    Raises:
        TokenizerError: the tokenizer's pieces are not of bytes, or none spells a verb; or the table would be too large.
    """
    table = _Table(_Vocabulary(tokenizer.token_bytes(), rows, frozenset(stop_ids)))
    roots = [
        table.add(Automaton.of(space.allowed(stage), space.known, think=think)) for stage in range(len(space.stages))
    ]
    return ActionMask(np.stack(table.rows), tuple(roots))


class _Vocabulary:
    """The tokens by their bytes."""

    def __init__(self, pieces: Sequence[bytes | None], rows: int, stop_ids: frozenset[int]):
        self.rows, self.stops = rows, list(stop_ids)
        self.silent = [id_ for id_ in range(rows) if id_ >= len(pieces) or not pieces[id_]]  # control and spare ones
        self.tree = _tree(pieces, b"")
        self.tags = _tree(pieces, OPEN[:1])  # those in which a tag could begin
        self.by_first, self.calm = _by_first(pieces, lambda piece: True), _by_first(pieces, lambda p: OPEN[:1] not in p)


class _Table:
    """Grows by the states of one automaton after the other."""

    def __init__(self, vocabulary: _Vocabulary):
        self._vocabulary = vocabulary
        self._numbers: dict[Hashable, int] = {FREE: 0}
        self.rows = [np.zeros(vocabulary.rows, np.int16)]

    def add(self, automaton: Automaton) -> int:
        """Adds a row for every state that is not there yet; returns the number of the first state."""
        self._waiting: list[State] = []
        self._known: dict[tuple[int, State], list[tuple[np.ndarray, int]]] = {}  # states share what follows a byte
        root = self._number(automaton, automaton.start)
        while self._waiting:
            self.rows.append(self._row(automaton, self._waiting.pop(0)))
        return root

    def _number(self, automaton: Automaton, state: State) -> int:
        # What follows a thought depends on what may be done at all; a verb half written says that by itself.
        key = (automaton.allowed, state) if automaton.think and state != FREE else state
        if key not in self._numbers:
            if len(self._numbers) > _MOST_STATES or len(self._numbers) * self.rows[0].nbytes > _MOST_BYTES:
                raise TokenizerError(
                    f"the mask of actions.stages wants more than {len(self._numbers)} states of "
                    f"{self._vocabulary.rows} tokens (at most {_MOST_STATES} states and {_MOST_BYTES >> 20} MiB); name "
                    f"fewer verbs or stages, {_CURE}"
                )
            self._numbers[key] = len(self._numbers)
            self._waiting.append(state)
        return self._numbers[key]

    def _row(self, automaton: Automaton, state: State) -> np.ndarray:
        row = np.full(self._vocabulary.rows, -1, np.int16)
        for byte in self._vocabulary.tree:
            after = automaton.after(state, byte)
            if after is None:
                continue
            if (byte, after) not in self._known:
                self._known[byte, after] = self._following(automaton, byte, after)
            for ids, number in self._known[byte, after]:
                row[ids] = number
        if automaton.thinks_in(state):
            row[self._vocabulary.silent] = self._number(automaton, state)
        row[self._vocabulary.stops] = 0 if automaton.may_stop(state) else -1
        if row.max() < 0:
            wanted = " or ".join(map(repr, to_come(state))) or "any verb"
            raise TokenizerError(
                f"no token of the tokenizer begins {wanted}, which the mask of actions.stages wants at a place; name "
                f"other verbs, {_CURE}"
            )
        return row

    def _following(self, automaton: Automaton, byte: int, state: State) -> list[tuple[np.ndarray, int]]:
        """The tokens that begin with a byte, which led to `state`, by the number of the state that they end in."""
        vocabulary, ends = self._vocabulary, defaultdict[int, list[int]](list)
        if state == FREE:
            return [(vocabulary.by_first[byte], 0)]
        calm = state == automaton.calm
        for id_, end in _walk(automaton, (vocabulary.tags if calm else vocabulary.tree).get(byte, {}), state):
            ends[self._number(automaton, end)].append(id_)
        found = [(np.array(ids), number) for number, ids in ends.items()]
        return [(vocabulary.calm[byte], self._number(automaton, state)), *found] if calm else found


def _walk(automaton: Automaton, node: dict[int, Any], state: State) -> Iterator[tuple[int, State]]:
    """The tokens at and below a node that may be read from `state` on, with the state that each ends in."""
    stack = [(node, state)]
    while stack:
        node, state = stack.pop()
        for byte, child in node.items():
            if byte == _IDS:
                yield from ((id_, state) for id_ in child)
            elif (after := automaton.after(state, byte)) is not None:
                stack.append((child, after))


def _tree(pieces: Sequence[bytes | None], within: bytes) -> dict[int, Any]:
    """The tokens with `within` among their bytes, one byte a level."""
    tree: dict[int, Any] = {}
    for id_, piece in enumerate(pieces):
        if piece and within in piece:
            node = tree
            for byte in piece:
                node = node.setdefault(byte, {})
            node.setdefault(_IDS, []).append(id_)
    return tree


def _by_first(pieces: Sequence[bytes | None], chosen: Callable[[bytes], bool]) -> dict[int, np.ndarray]:
    """Ids of the chosen tokens by their first byte."""
    found: dict[int, list[int]] = {byte: [] for byte in range(256)}
    for id_, piece in enumerate(pieces):
        if piece and chosen(piece):
            found[piece[0]].append(id_)
    return {byte: np.array(ids, np.int64) for byte, ids in found.items()}
