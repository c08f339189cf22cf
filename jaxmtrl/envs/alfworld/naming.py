"""How things are called and how lists of them read: "mug 2", "a mug 2, and a plate 1"; and a game's wording.

The names are those of the official engine: a class and a number, where numbers fall as ids rise.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from jaxmtrl.errors import EnvironmentFailure

NOTHING_HAPPENS = "Nothing happens."
_TASK = re.compile(r"Your task is to: ((?:[^\"\\]|\\.)*)\.\"")


@dataclass(frozen=True, kw_only=True)
class Wording:
    """What the text grammars of the published data differ in."""

    moves: bool  # "move mug 1 to desk 1"; else "put mug 1 in/on desk 1"
    names_goal: bool  # "You arrive at desk 1."; else "You arrive at loc 13."
    helps: bool  # there is a command "help"


MODERN = Wording(moves=True, names_goal=True, helps=True)  # alfworld 0.4, json_2.1.2 and later
CLASSIC = Wording(moves=False, names_goal=False, helps=False)  # json_2.1.1

HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


def read_grammar(grammar: str) -> tuple[str, Wording]:
    """The task sentence, without its full stop, and the wording of a game file's text grammar.

    Raises:
        EnvironmentFailure: no task is in it, or it knows neither of the two commands that put things down.
    """
    task = _TASK.search(grammar)
    moves, puts = "move {o} to {r}" in grammar, "put {o} in/on {r}" in grammar
    if task is None or moves == puts:
        missing = '"Your task is to: ..."' if task is None else '"move {o} to {r}" or "put {o} in/on {r}"'
        raise EnvironmentFailure(f"The game's grammar does not say {missing}; the game file is damaged.")
    wording = Wording(
        moves=moves,
        names_goal="You arrive at {r.name}" in grammar,
        helps=re.search(r"^action help\b", grammar, re.MULTILINE) is not None,
    )
    try:
        return json.loads(f'"{task.group(1)}"'), wording
    except ValueError as err:
        raise EnvironmentFailure(
            f"The game's grammar has a task that is no text ({err}); the game file is damaged."
        ) from err


def name_things(ids: Sequence[str]) -> list[str]:
    """Names for the ids of everything in a game, agent and places too: "mug_bar__plus_01..." -> "mug 2".

    The ids of a class in ascending order get its numbers from the highest down. A basin is called after the thing that
    it is part of: "sink_bar_.._bar_sinkbasin" -> "sinkbasin 1".
    """
    classes = [_class(name) for name in ids]
    left = Counter(classes)
    names = {}
    for number in sorted(range(len(ids)), key=ids.__getitem__):
        kind = classes[number]
        if kind is None:
            names[number] = f"{ids[number]} "  # without a place, it has no number
        else:
            names[number] = f"{kind} {left[kind]}"
            left[kind] -= 1
    return [names[number] for number in range(len(ids))]


def _class(thing: str) -> str | None:
    kind, bar, _ = thing.partition("_bar_")
    return (kind + "basin" if "basin" in thing else kind) if bar else None


def listing(things: Sequence[str]) -> str:
    """ "nothing", "a", "a, and b", "a, b, and c"."""
    if not things:
        return "nothing"
    return ", and ".join((", ".join(things[:-1]), things[-1])) if len(things) > 1 else things[0]
