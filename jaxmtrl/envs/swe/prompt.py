"""The words that a policy meets: its task, what it may do, and how its answers must look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxmtrl.envs.swe.actions import Form, FormatMistake, how_to_answer
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.sandbox.api import WORKDIR

_EDIT = """edit FILE <<'E'
<<<<
the lines to replace, exactly as they stand in the file
====
the lines that take their place
>>>>
E"""


@dataclass(frozen=True, kw_only=True)
class Wording:
    """What the words depend on."""

    form: Form
    level: Literal["a", "b", "c"]  # which statement of an instance that has several
    instructions: Literal["full", "short"]
    tests_hidden: bool
    command_s: float


def first_observation(instance: SweInstance, wording: Wording, turns: int, hint: str = "") -> str:
    """The task, where to look if that is told, and the rules."""
    what = f"The Python code in {WORKDIR} ({instance.repo}) has a fault."
    told = [hint] if hint else []
    parts = [
        what,
        statement(instance, wording.level),
        *told,
        *_rules(wording),
        how_to_answer(wording.form),
        _left(turns),
    ]
    return "\n\n".join(part.strip() for part in parts)


def statement(instance: SweInstance, level: str) -> str:
    """What is wrong, in the words of one level where the instance has them, else in its only ones."""
    levels = instance.extra.get("statements")
    return str(levels[level]) if isinstance(levels, dict) and level in levels else instance.problem_statement


def after_command(seen: str, turns: int) -> str:
    """What a command showed, and how many turns are left."""
    return f"{seen}\n{_left(turns)}"


def after_mistake(mistake: FormatMistake, form: Form, turns: int) -> str:
    """What was wrong with an answer, and how answers look."""
    return f"Nothing was run: {mistake.reason}.\n\n{how_to_answer(form)}\n\n{_left(turns)}"


def _left(turns: int) -> str:
    return "[last turn: submit now]" if turns == 1 else f"[{turns} turns left]"


def _rules(wording: Wording) -> list[str]:
    """What is judged, and what commands can do."""
    if wording.instructions == "short":
        return [f"Mend it, then submit. To change a file:\n\n{_EDIT}"]
    tests = "that you are not shown" if wording.tests_hidden else f"that lie in {WORKDIR} as well"
    return [
        f"Find the fault and mend it in the code. When you submit, tests {tests} are run on what you changed; changes "
        "to tests, to the settings of tools and to compiled files do not count.",
        f"Every command is run by bash, beginning in {WORKDIR}. Files that you change stay changed; the folder that "
        "you went to, variables and programs in the background end with the command. There is no network and nobody "
        f"to answer questions. A command may take {wording.command_s:g} seconds; of long output you see the beginning "
        "and the end.",
        f"To change lines of a file, use the command edit:\n\n{_EDIT}\n\nWith nothing before ==== it makes a new file.",
    ]
