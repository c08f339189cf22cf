"""Which bytes may follow while a command is written, so that its verb is one of those allowed: a finite automaton.

Only commands as `verbs.plain` writes them are let through: small letters, no space before, single spaces. Once the verb
is written, anything may follow. While a longer verb that is forbidden may still come of it, that is anything but blanks
and capital letters by which `plain` would read that verb. Where the policy thinks first, it is free until `<action>`,
and after the command until the tag is opened again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

OPEN, CLOSE = b"<action>", b"</action>"
FREE = "free"  # the state in which nothing is forbidden
State = Hashable
_BLANKS = frozenset(b"\t\n\v\f\r\x1c\x1d\x1e\x1f")  # which `plain` reads as a space
_LEADS = frozenset(b"\xc2\xe1\xe2\xe3")  # with which all other blanks begin, and a sign for kelvin, a "k" to `plain`


@dataclass(frozen=True)
class _Verb:
    """In the middle of a verb."""

    alive: frozenset[tuple[bytes, bool]]  # what is left of each known verb that it may be, and whether that is allowed
    done: bool | None = None  # whether the longest verb that is already whole is allowed; None before there is one
    behind_space: bool = False  # whether the next byte begins a word

    @property
    def hopeful(self) -> bool:
        """Whether anything allowed can come of it."""
        return self.done is True or any(allowed for _, allowed in self.alive)

    @property
    def ended(self) -> bool:
        """Whether the command may end here."""
        return next((allowed for left, allowed in self.alive if not left), self.done) is True

    def hides(self, byte: int) -> bool:
        """Whether a byte that goes on with no verb as it stands may be read as going on with a forbidden one."""
        one = bytes([byte])
        heads = {left[:1] for left, allowed in self.alive if not allowed}
        if (one == b" " and self.behind_space) or byte in _BLANKS or byte in _LEADS:
            return (bool(heads) and self.behind_space) or not heads.isdisjoint((b"", b" ", b"k"))
        return one != one.lower() and one.lower() in heads


@dataclass(frozen=True)
class _Thought:
    """Free text, of which the last `matched` bytes may open a tag."""

    matched: int = 0


@dataclass(frozen=True)
class _Closing:
    """Right behind a verb that is the whole command: the tag is being closed."""

    matched: int


def to_come(state: State) -> list[str]:
    """What may be left of a verb that is being written, or of the tag behind it."""
    if isinstance(state, _Verb):
        return sorted(left.decode() for left, allowed in state.alive if allowed)
    return [CLOSE[state.matched :].decode()] if isinstance(state, _Closing) else []


@dataclass(frozen=True)
class Automaton:
    """Of one set of allowed verbs."""

    allowed: frozenset[str]
    known: frozenset[str]  # all verbs; a longer one that is not allowed forbids what a shorter one would allow
    think: bool

    @classmethod
    def of(cls, allowed: Collection[str], known: Collection[str], *, think: bool) -> Automaton:
        return cls(frozenset(allowed), frozenset(known) | frozenset(allowed), think)

    @property
    def start(self) -> State:
        """Before the first byte of an action."""
        return _Thought() if self.think else self._verb()

    @property
    def calm(self) -> State:
        """Free text in which no tag has been begun: it stays so until the tag's first byte."""
        return _Thought()

    def after(self, state: State, byte: int) -> State | None:
        """The state after one more byte; None where it is forbidden."""
        match state:
            case _Verb():
                return self._in_verb(state, byte)
            case _Thought(matched):
                return self._in_thought(matched, byte)
            case _Closing(matched):
                return None if CLOSE[matched] != byte else self._closed(matched + 1)
        return FREE

    def may_stop(self, state: State) -> bool:
        """Whether the action may end here; a thought may, as the environment has an answer to it."""
        return state.ended if isinstance(state, _Verb) else not isinstance(state, _Closing)

    def thinks_in(self, state: State) -> bool:
        """Whether `state` is free text, in which tokens without text change nothing."""
        return isinstance(state, _Thought)

    def _verb(self) -> _Verb:
        return _Verb(frozenset((verb.encode(), verb in self.allowed) for verb in self.known))

    def _in_verb(self, state: _Verb, byte: int) -> State | None:
        one = bytes([byte])
        if one != b" " and one.isspace():
            return None  # it would end the verb as a space does
        done = state.done
        whole = next((allowed for left, allowed in state.alive if not left), None)
        if self.think and one == CLOSE[:1] and state.ended:
            return _Closing(1)
        if one == b" " and whole is not None:
            done = whole
        alive = frozenset((left[1:], allowed) for left, allowed in state.alive if left[:1] == one)
        if not alive:
            return (_Thought() if self.think else FREE) if done and not state.hides(byte) else None
        after = _Verb(alive, done, one == b" ")
        return after if after.hopeful else None

    def _in_thought(self, matched: int, byte: int) -> State:
        """The tag has no "<" but its first byte, so that where it breaks off nothing but that can begin it anew."""
        kept = matched + 1 if byte == OPEN[matched] else int(byte == OPEN[0])
        return self._verb() if kept == len(OPEN) else _Thought(kept)

    def _closed(self, matched: int) -> State:
        return _Thought() if matched == len(CLOSE) else _Closing(matched)
