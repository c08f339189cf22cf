"""The action space in tokens: which of them may be sampled where, so that no forbidden verb is ever begun.

The automaton of bytes (`actions/automaton.py`) becomes a table of tokens. Sampler and learner read the same table, by
the number of the state that a token was drawn in. Letters: N states, V vocab, A tokens of an action.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxmtrl.actions.automaton import FREE, Automaton, State
from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.errors import TokenizerError
from jaxmtrl.text.tokenizer import Tokenizer

_MOST_STATES = np.iinfo(np.int16).max
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
        TokenizerError: the tokenizer's pieces are not of bytes, or there are too many states.
    """
    pieces = tokenizer.token_bytes()
    silent = [id_ for id_ in range(rows) if id_ >= len(pieces) or not pieces[id_]]  # control tokens and spare rows
    tree = _tree(pieces)
    numbers: dict[Hashable, int] = {FREE: 0}
    table = [np.zeros(rows, np.int16)]
    roots = []
    for stage in range(len(space.stages)):
        automaton = Automaton.of(space.allowed(stage), space.known, think=think)
        roots.append(_add(automaton, tree, silent, frozenset(stop_ids), numbers, table))
    return ActionMask(np.stack(table), tuple(roots))


def _add(
    automaton: Automaton,
    tree: dict[int, Any],
    silent: Sequence[int],
    stop_ids: frozenset[int],
    numbers: dict[Hashable, int],
    table: list[np.ndarray],
) -> int:
    """Adds the rows of an automaton's states to the table; returns the number of its first one."""

    def number(state: State) -> int:
        # What follows a thought depends on what may be done at all; a verb half written says that by itself.
        key = (automaton.allowed, state) if automaton.think and state != FREE else state
        if key not in numbers:
            if len(numbers) > _MOST_STATES:
                raise TokenizerError("the verbs of actions.stages have too many states for a mask; name fewer")
            numbers[key] = len(numbers)
            waiting.append(state)
        return numbers[key]

    waiting: list[State] = []
    known: dict[tuple[int, State], list[tuple[int, State]]] = {}  # what follows a first byte, which states share
    root = number(automaton.start)
    while waiting:
        state = waiting.pop(0)
        row = np.full(len(table[0]), -1, np.int16)
        for byte, child in tree.items():
            after = automaton.after(state, byte)
            if after is None:
                continue
            if (byte, after) not in known:
                known[byte, after] = list(_walk(automaton, child, after))
            for id_, end in known[byte, after]:
                row[id_] = number(end)
        if automaton.thinks_in(state):
            row[list(silent)] = number(state)
        row[list(stop_ids)] = 0 if automaton.may_stop(state) else -1
        table.append(row)
    return root


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


def _tree(pieces: Sequence[bytes | None]) -> dict[int, Any]:
    """All tokens by their bytes, one byte a level."""
    tree: dict[int, Any] = {}
    for id_, piece in enumerate(pieces):
        if piece:
            node = tree
            for byte in piece:
                node = node.setdefault(byte, {})
            node.setdefault(_IDS, []).append(id_)
    return tree
