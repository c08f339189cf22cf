"""One way to write down a state, the same in every environment: a line each for room, items, what is carried, ways out,
goal and what the last action did.

An environment says what can be seen; this says how it reads. A policy that moves from one environment to another then
finds everything where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OBSERVATION = (  # of the option `observation`
    "text: the game's own words; state: a line each for [Room], [Items], [Inventory], [Exits], [Goal] and [Feedback], "
    "in every observation (slower for TextWorld)"
)


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
    lines = [
        ("Room", around.room),
        ("Items", ", ".join(around.items) or "nothing"),
        ("Inventory", ", ".join(around.inventory) or "nothing"),
        ("Exits", ", ".join(around.exits) or "none"),
        ("Goal", goal),
        *([("Feedback", feedback)] if feedback.strip() else []),
    ]
    return "\n".join(f"[{name}] {' '.join(text.split())}" for name, text in lines)
