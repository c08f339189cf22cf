"""Whether a regular expression ends in time on what a policy may say: tried on hostile texts before a run begins.

Python's matcher tries ways one after the other, and some patterns have more ways through a short text than a run has
seconds (`(a+)+` on forty times "a" and then "!"); nothing stops it but the end of its process. So the trial is a
process of its own, and what it counts is processor time, of which a busy machine takes no more.
"""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys

from jaxmtrl.errors import ConfigError

_TEXT_S = 0.25  # of processor time, for one text; a harmless pattern takes a thousandth of it
_ALL_S = 120.0  # on the clock, for all of them
_LONGEST = 2000  # characters of a text
_WORDS, _REPEATED = 5, 40  # at most so many of either are combined
_KINDS = "aA0_- \n.é"  # one character of each kind that a pattern may ask for
_SIGNS = "\\()[]{}*+?^$|"  # of regular expressions
_WORD = re.compile(r"(?:\\[^\w\s]|[^\\()\[\]{}.*+?^$|])+")
_GROUP = re.compile(r"\(\?(?:P?<\w+>|<?[=!]|>|[a-zA-Z-]*[:)])")  # how one opens: (?:, (?P<name>, (?i), (?<=
_TRIAL = """
import json, re, signal, sys
pattern, texts, seconds = json.load(sys.stdin)
match = re.compile(pattern).fullmatch
for number, text in enumerate(texts):
    print(number, flush=True)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
    match(text)
"""


def require_quick(pattern: str, max_action_tokens: int) -> None:
    """Tries a pattern on texts that are made to be hard for it.

    What is harmless on all of them may still be slow on another; then the pool's deadline ends the episode as failed.

    Raises:
        ConfigError: one of them took a quarter of a second of processor time, or could not be tried.
    """
    texts = hostile_texts(pattern, min(4 * max_action_tokens, _LONGEST))
    command, question = [sys.executable, "-I", "-S", "-c", _TRIAL], json.dumps([pattern, texts, _TEXT_S])
    try:
        done = subprocess.run(command, input=question, capture_output=True, text=True, timeout=_ALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise _refused(pattern, f"takes more than {_ALL_S:g} s for {len(texts)} texts of {len(texts[0])}") from None
    if done.returncode == -signal.SIGPROF:
        text = texts[int(done.stdout.split()[-1])]
        raise _refused(pattern, f"takes more than {_TEXT_S:g} s for {len(text)} characters that begin {text[:40]!r}")
    if done.returncode:
        raise _refused(pattern, f"could not be tried (exit code {done.returncode}): {done.stderr.strip()[-200:]}")


def hostile_texts(pattern: str, length: int) -> list[str]:
    """Each says what the pattern may begin with, then one thing over and over, then perhaps what fits nothing.

    Made of the pattern's own words and characters, and of one character of each kind.
    """
    found = _WORD.findall(_GROUP.sub("(", pattern))
    words = list(dict.fromkeys(re.sub(r"\\(.)", r"\1", word) for word in found))[:_WORDS]
    characters = [sign for sign in dict.fromkeys(_KINDS + pattern) if sign not in _SIGNS]
    begins = ["", *words, *("".join(pair) for pair in itertools.permutations(words, 2))]
    repeated = [*words, *(f"{word} " for word in words), *characters][:_REPEATED]
    return [
        begin + one * max(1, (length - len(begin)) // len(one)) + end
        for begin in begins
        for one in repeated
        for end in ("\0", "")
    ]


def _refused(pattern: str, why: str) -> ConfigError:
    return ConfigError(
        "reward.format_pattern",
        [
            f"reward.format_pattern: got {pattern!r}, which {why}: there are too many ways to match it; let no repeat "
            "stand within or beside another over the same characters, or make it possessive (++ and *+)"
        ],
    )
