"""From a policy's text to one command: the part between tags where it thinks first, and what counts as a command.

Knows no environment; a game decides what its commands do.
"""

from __future__ import annotations

REFUSED = "That is not a command."
UNTAGGED = "No command was found; end with <action>the command</action>."
THINK = (  # of the option `think`
    "the command is what stands in the last <action>...</action> of an answer, the rest is thought; the system prompt "
    "should say so"
)
_OPEN, _CLOSE = "<action>", "</action>"
_MAX_CHARACTERS = 200


def tagged_action(text: str) -> str | None:
    """The text inside the last `<action>...</action>`, where all else is thought; None where no pair of tags is whole.

    A tag that is opened again before it is closed begins anew: "<action> or <action>look</action>" is "look".
    """
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, end) if end >= 0 else -1
    return text[start + len(_OPEN) : end].strip() if start >= 0 else None


def with_tags(command: str) -> str:
    """A command as `tagged_action` reads it."""
    return f"{_OPEN}{command}{_CLOSE}"


def one_command(text: str) -> str | None:
    """The text without white space around it; None if nothing is left, or several lines, or over 200 characters."""
    command = text.strip()
    return command if command and len(command) <= _MAX_CHARACTERS and len(command.splitlines()) == 1 else None
