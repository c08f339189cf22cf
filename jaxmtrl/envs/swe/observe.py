"""From the bytes that a command wrote to what the policy reads: clean text of a bounded length.

Text that looks like a control token of some model stays as it is; the border between text and tokens
(`text/transcript.py`) makes no control token of it. Every pattern here takes time linear in its input.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from jaxmtrl.envs.swe.sandbox.api import ExecResult

_LONGEST_LINE = 2000  # characters of a line that are shown
_CSI = r"\x1b\[[0-?]*[ -/]*[@-~]?"  # colours, cursor; what lacks its last letter goes as far as it came
_STRING = r"\x1b[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?"  # titles, links, device strings
_ESCAPE = re.compile(f"{_CSI}|{_STRING}|\x1b[ -/]*[0-~]?")
_OVERSTRUCK = re.compile("[^\n\x08]\x08")
_HIDDEN = (  # characters that cannot be seen, or turn what follows around
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_UNSEEN = re.compile(f"[{_HIDDEN}]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Runs that a tokenizer would take as one piece, and single characters; for counting only.
_PIECE = re.compile(r"[A-Za-z]+|[ \t]+|\n+|[!-~]|[^\x00-\x7f]", re.DOTALL)
_LETTERS_A_TOKEN = 4


def clean(data: bytes) -> str:
    """Bytes as text that says what a person would see: no escapes, no overwritten parts of lines, nothing hidden."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\x08" in text:
        text = _OVERSTRUCK.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    text = _CONTROL.sub("\ufffd", text.replace("\f", "\n"))
    return _UNSEEN.sub(lambda match: "".join(map(_named, match[0])), text)


def observation(
    result: ExecResult, *, head: int, tail: int, tokens: int = 0, output_kept: int = 0, seconds: float = 0.0
) -> str:
    """What the policy reads of a command: what it wrote, and how it ended if not well.

    Args:
        head, tail: characters shown of its beginning and its end.
        tokens: about as many at most; 0 for no such limit.
        output_kept: of the sandbox's limits; where bytes were left out, they were after the first half of it.
        seconds: the command's time limit, to be named where it was passed.
    """
    seam = output_kept // 2 if result.elided else len(result.output)
    begin, end = clean(result.output[:seam]), clean(result.output[seam:])
    shown = shorten(begin, end, head=head, tail=tail, elided=result.elided, tokens=tokens)
    parts = [shown.rstrip("\n"), _ending(result, seconds)]
    return "\n".join(part for part in parts if part)


def shorten(begin: str, end: str = "", *, head: int, tail: int, elided: int = 0, tokens: int = 0) -> str:
    """The beginning and the end of a text, what is between them counted instead of shown.

    Args:
        begin, end: the text; `elided` bytes that stood between them are gone already.
        head, tail: characters shown of either end.
        tokens: see `observation`.
    """
    begin, end = _narrow(begin), _narrow(end)
    whole = begin + end
    if not elided and len(whole) <= head + tail and (not tokens or count_tokens(whole) <= tokens):
        return whole
    first = (begin if elided else whole)[:head]
    last = _end(end if elided else whole[len(first) :], tail)
    if tokens:
        first = first[: _fitting(first, tokens * head // max(1, head + tail))]
        last = _end(last, _fitting(last[::-1], tokens * tail // max(1, head + tail)))
    left_out = len(whole) - len(first) - len(last)
    count = f"{left_out} characters" if not elided else f"about {left_out + elided} characters"
    return f"{first.rstrip(chr(10))}\n[… {count} left out …]\n{last.lstrip(chr(10))}"


def count_tokens(text: str) -> int:
    """About how many tokens a text is, rather too many than too few: no tokenizer is asked."""
    return sum(_cost(match[0]) for match in _PIECE.finditer(text))


def _cost(piece: str) -> int:
    if piece[0].isascii():
        return -(-len(piece) // _LETTERS_A_TOKEN) if piece.isalpha() else 1
    return 1 if piece <= "\uffff" and unicodedata.category(piece)[0] != "C" else 3


def _fitting(text: str, tokens: int) -> int:
    """Characters of the beginning of a text that are about so many tokens."""
    for match in _PIECE.finditer(text):
        tokens -= _cost(match[0])
        if tokens < 0:
            return match.start()
    return len(text)


@functools.cache
def _named(character: str) -> str:
    return f"<U+{ord(character):04X}>"


def _last_state(line: str) -> str:
    """What stands in a line that was written over again and again: the last state that is not blank."""
    for state in reversed(line.split("\r")):
        if state.strip():
            return state
    return ""


def _narrow(text: str) -> str:
    """Lines that are too long lose their middle."""
    if len(text) <= _LONGEST_LINE:
        return text
    return "\n".join(line if len(line) <= _LONGEST_LINE else _without_middle(line) for line in text.split("\n"))


def _without_middle(line: str) -> str:
    half = _LONGEST_LINE // 2
    return f"{line[:half]}[… {len(line) - 2 * half} characters …]{line[-half:]}"


def _end(text: str, count: int) -> str:
    return text[-count:] if count else ""


def _ending(result: ExecResult, seconds: float) -> str:
    """How a command ended, where that is worth a word."""
    if result.why == "timeout":
        return f"[timed out after {seconds or result.wall_s:g} s and was killed with all that it had started]"
    if result.why == "oom":
        return "[used too much memory and was killed]"
    if result.why == "output_flood":
        return "[wrote too much and was killed]"
    if result.why == "too_large":
        return "[the command is too long and was not run]"
    if result.exit_code:
        return f"[exit code {result.exit_code}]"
    return "" if result.output.strip() else "[no output]"
