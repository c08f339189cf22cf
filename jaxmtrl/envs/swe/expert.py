"""How one plays who knows the repair: looks at the place, edits it, submits."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from jaxmtrl.envs.swe.actions import Form, write_command, write_submit
from jaxmtrl.envs.swe.edits import edit_command
from jaxmtrl.envs.swe.places import places
from jaxmtrl.envs.swe.sandbox.api import Base, FileChange
from jaxmtrl.envs.swe.screen import base_file

Way = Literal["direct", "looking", "told"]
_ROUND = 20  # lines shown of a function, and multiples of it: a number that can be guessed


def gold_actions(base: Base, gold: Sequence[FileChange], *, form: Form, way: Way) -> list[str] | None:
    """Answers that do the known repair.

    Args:
        base: as the policy meets it.
        gold: what the repair makes of which files.
        way: looking: shows the lines first, so that what is edited has been read; told: as one who was told by
            `places.hint` which they are.

    Returns:
        None where the repair is not of text, or there is none.
    """
    commands: list[str] = []
    for change in gold:
        try:
            before = (base_file(base, change.path) or b"").decode()
            after = (change.content or b"").decode()
        except UnicodeDecodeError:
            return None
        if change.content is None:
            commands.append(f"rm {shlex.quote(change.path)}")
        elif before != after:
            commands += [_look(change.path, before, after, way)] if way != "direct" and before else []
            commands.append(edit_command(change.path, before or None, after))
    return [*(write_command(command, form) for command in commands), write_submit(form)] if commands else None


def _look(path: str, before: str, after: str, way: Way) -> str:
    """A command that shows the places of a file that differ: functions by their names, else lines by their numbers."""
    found: dict[str, None] = {}
    for place in places(path, before, after):
        if place.function is not None and way == "looking":
            after_it = -(-(place.changed - place.function.lineno + 1) // _ROUND) * _ROUND
            found[f"grep -n -A {after_it} 'def {place.function.name}(' {shlex.quote(path)}"] = None
        elif way == "looking":
            found[f"cat -n {shlex.quote(path)} | sed -n '{place.first},{place.last}p'"] = None
        else:
            found[f"sed -n '{place.first},{place.last}p' {shlex.quote(path)}"] = None
    return "\n".join(found)
