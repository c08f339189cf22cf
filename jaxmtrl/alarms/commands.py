"""What a policy says, counted: commands and their first words, of whatever environment.

Two entropies are told apart everywhere. Token entropy (`policy/sampled_entropy_nats`) is how undecided the policy is at
a token, given all before it. Command entropy is of what is said over a whole batch: how much one does not know of a
turn's command before it is read. A policy that always does the same in the same place, and something else elsewhere,
has no token entropy and much command entropy; one that babbles the same command everywhere has neither.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from jaxmtrl.envs.actions import tagged_action
from jaxmtrl.types import Episode, Turn

LONGEST_VERB = 32  # characters; the rest is cut off
MOST_VERBS = 512  # that are remembered as understood; games have tens


def command_of(turn: Turn) -> str:
    """A turn's command in small letters with single spaces: what stands between action tags, else all that was said."""
    tagged = tagged_action(turn.action)
    return " ".join((turn.action if tagged is None else tagged).lower().split())


def verb_of(command: str) -> str:
    """The first word of a command, cut to LONGEST_VERB; "" of an empty one."""
    return command.split(" ", 1)[0][:LONGEST_VERB]


def understood(turn: Turn) -> bool:
    """Whether the environment took the command for one; True where it does not say."""
    return turn.metrics.get("invalid_action", 0.0) == 0


def commands(episodes: Iterable[Episode]) -> Counter[str]:
    """How often each command was given, in played episodes."""
    return Counter(command_of(turn) for episode in episodes if not episode.failed for turn in episode.turns)


def verbs(said: Counter[str]) -> Counter[str]:
    """How often each verb was said, from how often each command was."""
    counts: Counter[str] = Counter()
    for command, times in said.items():
        counts[verb_of(command)] += times
    return counts


def verbs_understood(episodes: Iterable[Episode]) -> set[str]:
    """The verbs of commands that the environment took for one."""
    played = (episode for episode in episodes if not episode.failed)
    return {verb_of(command_of(turn)) for episode in played for turn in episode.turns if understood(turn)}


def with_verbs(known: Sequence[str], more: set[str]) -> tuple[str, ...]:
    """`known` with the new ones of `more` after them, in their order of letters, MOST_VERBS at most."""
    return (*known, *sorted(more - set(known)))[:MOST_VERBS]


def entropy(counts: Counter[str]) -> float:
    """-sum p ln p of the shares p of all counts, nats; 0 to ln(different ones); NaN of nothing.

    The plain estimate from a sample, which is somewhat too low; batches of one run are of about one size.
    """
    total = counts.total()
    if total == 0:
        return math.nan
    return max(0.0, -math.fsum(n / total * math.log(n / total) for n in counts.values() if n))


def repeats_in_vain(episode: Episode) -> tuple[int, int]:
    """Turns that did again what had been of no use, and turns of which that can be known.

    A turn counts if an earlier turn of the episode gave the same command in the same state and was answered the same,
    and this one earned nothing more. Where the environment does not name its states, command and answer decide. The
    answer to the last turn is not kept, so that nothing is known of it.
    """
    turns = episode.turns
    seen: set[tuple[str, str, str]] = set()
    vain = 0
    for turn, following in zip(turns, turns[1:]):
        what = (command_of(turn), turn.state, following.observation)
        vain += what in seen and turn.reward <= 0
        seen.add(what)
    return vain, max(0, len(turns) - 1)
