"""From what a policy writes to one command of bash: a fenced block, or a function call in tags.

Every answer does exactly one thing. One that cannot be read is no error of ours: the policy is told what was wrong,
with an example, and may try again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["fenced", "xml_function"]

MAX_BYTES = 64 << 10  # of a command
_LANGUAGES = ("bash", "sh", "shell")
_SUBMIT = "submit"
_FENCE = re.compile(r" {0,3}(`{3,})[ \t]*([^\s`]*)[ \t]*")  # of a whole line
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*['\"\\]?([A-Za-z_]\w*)")
_OTHER_PARAMETER = re.compile(r"</parameter>\s*<parameter=([^>\n]{0,40})>")
_THOUGHT, _THOUGHT_END = "<think>", "</think>"
_FUNCTION = "<function="
_COMMAND = "<parameter=command>"
_END_PARAMETER, _END_FUNCTION = "</parameter>", "</function>"


@dataclass(frozen=True, kw_only=True)
class Command:
    """What bash is to run."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Submit:
    """The policy says that it is done."""


@dataclass(frozen=True, kw_only=True)
class FormatMistake:
    """An answer that does not say what is to be done."""

    reason: str  # a sentence without its full stop


Action = Command | Submit | FormatMistake


def read_action(text: str, form: Form) -> Action:
    """What an answer says; thoughts in `<think>…</think>` before it do not count."""
    if _THOUGHT in text and _THOUGHT_END not in text:
        return FormatMistake(reason="your thoughts have no end, so nothing was done")
    text = text.rpartition(_THOUGHT_END)[2].replace("\r\n", "\n")
    return _sound(_fenced(text) if form == "fenced" else _function(text))


def write_command(command: str, form: Form) -> str:
    """An answer that `read_action` reads as this command."""
    if form == "xml_function":
        return f"{_FUNCTION}bash>\n{_COMMAND}\n{command}\n{_END_PARAMETER}\n{_END_FUNCTION}"
    longest = max((len(run) for run in re.findall(r"^ {0,3}(`{3,})", command, re.MULTILINE)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}bash\n{command}\n{fence}"


def write_submit(form: Form) -> str:
    """An answer that `read_action` reads as the end."""
    return f"{_FUNCTION}{_SUBMIT}>\n{_END_FUNCTION}" if form == "xml_function" else f"```{_SUBMIT}\n```"


def how_to_answer(form: Form) -> str:
    """What a policy must know of the form, with an example of both answers."""
    wanted = "one function call" if form == "xml_function" else "one fenced block"
    return (
        f"Answer with exactly {wanted}. To run a command:\n\n{write_command('ls -la', form)}\n\n"
        f"When you are done:\n\n{write_submit(form)}"
    )


def _fenced(text: str) -> Action:
    if text.strip().lower() == _SUBMIT:
        return Submit()
    blocks, unclosed = _blocks(text)
    cut = next((word for _, body in blocks if (word := _cut_off(body, text))), "")
    if cut:
        told = f"a line of ``` ended the block before the line {cut[:40]!r} that its here-document waits for"
        return FormatMistake(reason=f"{told}; begin and end a block that holds such lines with ````")
    if unclosed:
        return FormatMistake(reason=f"the block that begins with {unclosed} is not closed by a line of ```")
    if not blocks:
        return FormatMistake(reason="no block that begins with ```bash was found")
    if len(blocks) > 1:
        return FormatMistake(reason=f"{len(blocks)} blocks were found, so that none was run")
    language, body = blocks[0]
    return Submit() if _SUBMIT in (language, body.strip()) else Command(text=body)


def _blocks(text: str) -> tuple[list[tuple[str, str]], str]:
    """Blocks that say what to do, as (language, body), and the opening line of one that is not closed.

    A block ends at a line of as many backquotes as it began with, or more. Those in other languages are talk.
    """
    found: list[tuple[str, str]] = []
    fence, language, body = "", "", []
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if not fence:
            if match:
                fence, language, body = match[1], match[2].lower(), []
        elif match and not match[2] and len(match[1]) >= len(fence):
            if language in (*_LANGUAGES, _SUBMIT):
                found.append((language, "\n".join(body)))
            fence = ""
        else:
            body.append(line)
    if fence and language == _SUBMIT and not "".join(body).strip():
        found.append((_SUBMIT, ""))  # nothing can be missing from it
    elif fence:
        return found, (fence[:8] + language[:16]).encode("ascii", "replace").decode()  # it is told to the policy
    return found, ""


def _cut_off(body: str, text: str) -> str:
    """The word that ends a here-document of a block, where it stands in the answer, but not in the block."""
    inside, everywhere = ({line.strip() for line in part.split("\n")} for part in (body, text))
    return next((word for word in _HEREDOC.findall(body) if word not in inside and word in everywhere), "")


def _function(text: str) -> Action:
    if text.strip().lower() == _SUBMIT:
        return Submit()
    calls = text.count(_FUNCTION)
    if calls == 0:
        return FormatMistake(reason=f"no {_FUNCTION}bash> was found")
    if calls > 1:
        return FormatMistake(reason=f"{calls} function calls were found, so that none was run")
    name, closed, rest = text.partition(_FUNCTION)[2].partition(">")
    inside, ended, _ = rest.rpartition(_END_FUNCTION)
    if not closed or not ended:
        return FormatMistake(reason=f"the function call has no {_END_FUNCTION}")
    if name == _SUBMIT:
        return Submit()
    if name != "bash":
        return FormatMistake(reason=f"there is no function {name[:40]!r}, only bash and {_SUBMIT}")
    _, begun, value = inside.partition(_COMMAND)
    value, ended, _ = value.rpartition(_END_PARAMETER)
    if not begun or not ended:
        return FormatMistake(reason=f"the call of bash has no {_COMMAND}…{_END_PARAMETER}")
    other = _OTHER_PARAMETER.search(value)
    if other:
        return FormatMistake(reason=f"bash has one parameter, command, and {other[1]!r} was given as well")
    body = value.strip("\n")
    return Submit() if body.strip() == _SUBMIT else Command(text=body)


def _sound(action: Action) -> Action:
    """The action, or what keeps bash from running it."""
    if not isinstance(action, Command):
        return action
    if not action.text.strip():
        return FormatMistake(reason="the command is empty")
    if "\0" in action.text:
        return FormatMistake(reason="the command holds a NUL character, which bash cannot take")
    try:
        size = len(action.text.encode())
    except UnicodeEncodeError:
        return FormatMistake(reason="the command is no Unicode text")
    if size > MAX_BYTES:
        return FormatMistake(reason=f"the command has {size} bytes, more than the {MAX_BYTES} that are allowed")
    return action
