"""Which verb a command has: the words of it that say what is done, as a list of known verbs spells them."""

from __future__ import annotations

from collections.abc import Collection


def plain(text: str) -> str:
    """A command in small letters with single spaces."""
    return " ".join(text.lower().split())


def verb_of(command: str, verbs: Collection[str]) -> str:
    """The longest known verb that a command begins with, whole words only; its first word where none is known.

        verbs go, go to, take: "go to desk 1" go to; "go north" go; "go tower" go; "take mug" take; "heat mug" heat

    Args:
        command: as `plain` writes it.
        verbs: of one word or more.
    """
    words = command.split(" ")
    for count in range(len(words), 0, -1):
        if (candidate := " ".join(words[:count])) in verbs:
            return candidate
    return words[0]
