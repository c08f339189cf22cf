"""How the messages of an episode become token ids, piece by piece, and whether a template can be trained on.

Every prompt is put together from ids, never from one big string, so control tokens come from here alone and text stays
data. Knows nothing of episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

import numpy as np

from jaxmtrl.text.tokenizer import TURN_END, TURN_START, Tokenizer


class Message(TypedDict):
    """One message as chat templates everywhere spell it."""

    role: str  # "system", "user" or "assistant"
    content: str


Render = Callable[[Sequence[Message], bool], Sequence[int]]  # (messages, add_generation_prompt) -> ids


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatTemplate:
    """A chat template as pieces of ids, each encoded once. Make one with `chatml`.

    An episode reads `first_prompt, action, next_prompt, action, ...`; because prompts only ever append, what was
    sampled stays a prefix of what is trained.
    """

    tokenizer: Tokenizer
    bos: np.ndarray  # i32, the beginning-of-sequence token or nothing; only ever at position 0
    system_open: np.ndarray  # i32, what precedes the text of a system message
    user_open: np.ndarray  # i32, the same of a user message
    assistant_open: np.ndarray  # i32, the same of an assistant message: the generation header
    turn_end: int  # ends every message; the policy samples it to end its action
    separator: np.ndarray  # i32, stands between a message's end and the next message; never sampled, never trained

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an action when they are sampled."""
        return frozenset({self.turn_end})

    @property
    def bos_id(self) -> int | None:
        """The BOS that the model was trained with, if any."""
        return int(self.bos[0]) if len(self.bos) else None

    def first_prompt(self, system: str, observation: str) -> np.ndarray:
        """Everything before the first action, i32 [P]; an empty `system` leaves the system message out."""
        opening = self._message(self.system_open, system) if system else _NOTHING
        return _join(self.bos, opening, self._message(self.user_open, observation), self.assistant_open)

    def next_prompt(self, observation: str, *, stopped: bool) -> np.ndarray:
        """Everything between two actions, i32 [P].

        Args:
            stopped: the action before ended with a sampled stop id. If the cap cut it, the turn end it lacks comes
                first here, so that it is context and not an action.
        """
        ending = _NOTHING if stopped else _ids(self.turn_end)
        return _join(ending, self.separator, self._message(self.user_open, observation), self.assistant_open)

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> list[int]:
        """The ids of a whole conversation at once: what `audit` compares, not what training uses."""
        opens = {"system": self.system_open, "user": self.user_open, "assistant": self.assistant_open}
        parts = [self._message(opens[message["role"]], message["content"]) for message in messages]
        header = self.assistant_open if add_generation_prompt else _NOTHING
        return _join(self.bos, *parts, header).tolist()

    def _message(self, opening: np.ndarray, text: str) -> np.ndarray:
        return _join(opening, self.tokenizer.encode(text), _ids(self.turn_end), self.separator)


def chatml(tokenizer: Tokenizer, bos_id: int | None = None) -> ChatTemplate:
    """The ChatML template, `<|im_start|>role\\ntext<|im_end|>\\n`; without a BOS unless `bos_id` gives one.

    Raises:
        TokenizerError: the tokenizer lacks `<|im_start|>` or `<|im_end|>`.
    """
    start, end = tokenizer.special_id(TURN_START), tokenizer.special_id(TURN_END)

    def opening(role: str) -> np.ndarray:
        return _join(_ids(start), tokenizer.encode(f"{role}\n"))

    return ChatTemplate(
        tokenizer=tokenizer,
        bos=_NOTHING if bos_id is None else _ids(bos_id),
        system_open=opening("system"),
        user_open=opening("user"),
        assistant_open=opening("assistant"),
        turn_end=end,
        separator=tokenizer.encode("\n"),
    )


@dataclass(frozen=True, kw_only=True)
class TemplateAudit:
    """What `audit` found out about a template."""

    first_difference: str  # where a later turn changes the history, in words; empty if it never does
    stop_ids: frozenset[int]  # end an action; empty if the template ends messages with no control token
    separator_ids: tuple[int, ...]  # follow the stop id before the next message
    bos_positions: tuple[int, ...]  # where the BOS stands in a three-turn conversation
    wants_bos: bool  # the model was trained with a BOS
    ending: str  # stop and separator as people read them

    @property
    def prefix_preserving(self) -> bool:
        """A turn more never changes the ids of the turns before."""
        return not self.first_difference

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that makes what is sampled differ from what the template would render; empty is good."""
        found = []
        if self.first_difference:
            found.append(f"REWRITES HISTORY: {self.first_difference}; training keeps the ids that were sampled")
        if not self.stop_ids:
            found.append("NO STOP TOKEN ends an assistant message")
        if self.wants_bos and self.bos_positions != (0,):
            where = ", ".join(map(str, self.bos_positions)) or "nowhere"
            found.append(f"BOS must stand once, at position 0; it stands at: {where}")
        return tuple(found)

    def describe(self) -> str:
        """One line for the console."""
        bos = "one BOS" if self.bos_positions == (0,) else f"{len(self.bos_positions) or 'no'} BOS"
        verdict = "; ".join(self.problems) or "prefix-preserving"
        return f"{verdict}; a turn ends with {self.ending}; {bos}"


# Thoughts in the answers, because templates that drop them from earlier turns are the common way to rewrite history.
_DIALOGUE: tuple[Message, ...] = (
    {"role": "user", "content": "You are in the hall."},
    {"role": "assistant", "content": "<think>\nNorth looks best.\n</think>\n\ngo north"},
    {"role": "user", "content": "A door bars the way."},
    {"role": "assistant", "content": "<think>\nDoors open.\n</think>\n\nopen door"},
    {"role": "user", "content": "It opens."},
)


def audit(render: Render, tokenizer: Tokenizer, bos_id: int | None = None) -> TemplateAudit:
    """Finds out by trial whether a template only ever appends, and how it ends and separates turns.

    Args:
        render: any template as a function (messages, add_generation_prompt) -> ids.
        tokenizer: names tokens and knows which are control tokens.
        bos_id: the BOS the model was trained with, or None.
    """
    views = [list(render(_DIALOGUE[:n], n % 2 == 1)) for n in range(1, len(_DIALOGUE) + 1)]
    differences = [_difference(before, after, tokenizer) for before, after in pairwise(views)]
    first = next((f"with message {n + 2}, {text}" for n, text in enumerate(differences) if text), "")
    closing = _closing(render)
    stop_at = next((n for n, id_ in enumerate(closing) if id_ in tokenizer.control_ids.values()), None)
    stop, separator = (closing[stop_at], closing[stop_at + 1 :]) if stop_at is not None else (None, closing)
    ending = [f"{tokenizer.decode([id_], keep_special=True)!r} ({id_})" for id_ in closing[stop_at or 0 :]]
    return TemplateAudit(
        first_difference=first,
        stop_ids=frozenset() if stop is None else frozenset({stop}),
        separator_ids=tuple(separator),
        bos_positions=tuple(n for n, id_ in enumerate(views[-1]) if id_ == bos_id),
        wants_bos=bos_id is not None,
        ending=" then ".join(ending) or "nothing",
    )


def _closing(render: Render) -> list[int]:
    """The ids after an assistant's text: what conversations with different last words have in common at their end."""
    ask: Message = {"role": "user", "content": "You are in the hall."}
    one, other = (list(render((ask, {"role": "assistant", "content": text}), False)) for text in ("go north", "eat 7"))
    length = next((n for n, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)) if a != b), 0)
    return one[len(one) - length :]


def _difference(before: Sequence[int], after: Sequence[int], tokenizer: Tokenizer) -> str:
    """Where `before` stops being a prefix of `after`, in words; empty if it is one."""
    for position, id_ in enumerate(before):
        if position >= len(after) or after[position] != id_:
            was = repr(tokenizer.decode([id_], keep_special=True))
            new = repr(tokenizer.decode([after[position]], keep_special=True)) if position < len(after) else "nothing"
            return f"token {position} changes from {was} to {new}"
    return ""


def _ids(*ids: int) -> np.ndarray:
    return np.array(ids, np.int32)


def _join(*pieces: np.ndarray) -> np.ndarray:
    return np.concatenate(pieces).astype(np.int32, copy=False)


_NOTHING = _ids()
