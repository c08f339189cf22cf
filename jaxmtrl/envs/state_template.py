"""One way to write down a state, the same in every environment: a line each for room, items, what is carried, ways out,
goal and what the last action did.

An environment says what can be seen; this says how it reads. A policy that moves from one environment to another then
finds everything where it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

OBSERVATION = (  # of the option `observation`
    "text: the game's own words; state: a line each for [Room], [Items], [Inventory], [Exits], [Goal] and [Feedback], "
    "in every observation (slower for TextWorld)"
)
_PARTS = ("Room", "Items", "Inventory", "Exits", "Goal")
_FEEDBACK = "Feedback"
_STATE = re.compile("\n".join(rf"\[{part}\] .*" for part in _PARTS) + rf"(?:\n\[{_FEEDBACK}\] (.*))?")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What can be seen from where the agent is; nothing that is hidden."""

    room: str  # where the agent is
    items: Sequence[str] = ()  # what is there, with its state or place in brackets: "apple (table)", "box (closed)"
    inventory: Sequence[str] = ()  # what is carried
    exits: Sequence[str] = ()  # where one can go


def state_text(around: Surroundings, *, goal: str, feedback: str = "") -> str:
    """An observation by the template; line breaks inside a part become spaces, so that every part is one line.

    Args:
        goal: of the task.
        feedback: what the last action did; left out where it is empty, as at the start.
    """
    listed = [", ".join(things) or "nothing" for things in (around.items, around.inventory)]
    texts = (around.room, *listed, ", ".join(around.exits) or "none", goal)
    lines = [*zip(_PARTS, texts, strict=True), *([(_FEEDBACK, feedback)] if feedback.strip() else [])]
    return "\n".join(f"[{name}] {' '.join(text.split())}" for name, text in lines)


def feedback_of(seen: str) -> str | None:
    """The feedback in an observation by the template, "" where it has none; None of an observation in other words."""
    state = _STATE.match(seen)
    return None if state is None else state.group(1) or ""


def with_feedback(seen: str, feedback: str) -> str | None:
    """An observation by the template with other feedback, what stands below it kept; None of one in other words."""
    state = _STATE.match(seen)
    if state is None:
        return None
    end = state.end() if state.group(1) is None else state.start(1) - len(f"\n[{_FEEDBACK}] ")
    words = " ".join(feedback.split())
    return seen[:end] + (f"\n[{_FEEDBACK}] {words}" if words else "") + seen[state.end() :]
