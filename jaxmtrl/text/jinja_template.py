"""Chat templates as models are published with them: a Jinja text that writes a conversation out.

The template is rendered with marks in place of messages, once for every place a message can stand in; what stands
around the marks frames every message from then on. So no message can change its frame, and a control token can come
from a frame alone: text between two control tokens of a frame is encoded together with the message it touches, as data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jinja2 import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jaxmtrl.errors import TokenizerError
from jaxmtrl.text.template import ChatTemplate, Message
from jaxmtrl.text.tokenizer import Tokenizer

_MARKS = {"system": "\ue000", "user": "\ue001", "assistant": "\ue002", "next": "\ue003"}  # private use: never written


@dataclass(frozen=True)
class Frame:
    """What a template writes before, between and after messages."""

    texts: tuple[str, ...]  # one more than messages
    trims: bool  # the template strips space around messages


@dataclass(frozen=True, kw_only=True, eq=False)
class JinjaTemplate(ChatTemplate):
    """A published chat template. Make one with `jinja_template`.

    The pieces it inherits are what its frames come to for an empty message; `bos` is what the tokenizer itself would
    put first, whether or not the template does.
    """

    jinja: Any  # the compiled template
    variables: Mapping[str, str]  # what it may ask for: bos_token, eos_token, ...
    stops: frozenset[int]
    alone: Frame  # before and after a first message of the user
    instructed: Frame | None  # the same after a system message; None: the template refuses one
    later: Frame  # after a turn end and up to a later message of the user, and after it

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an action: the template's turn end and what the model's files name."""
        return self.stops

    def first_prompt(self, system: str, observation: str) -> np.ndarray:
        """Everything before the first action, i32 [P].

        Without a `system` the template may write one of its own (Qwen2.5's and SmolLM2's do).

        Raises:
            TokenizerError: there is a `system`, and the template refuses one.
        """
        if not system:
            return self._fill(self.alone, observation)
        if self.instructed is None:
            raise TokenizerError(
                "the model's chat template refuses system messages; leave text.system_prompt empty, or take another "
                "template (text.template)."
            )
        return self._fill(self.instructed, system, observation)

    def next_prompt(self, observation: str, *, stopped: bool) -> np.ndarray:
        """Everything between two actions, i32 [P]; see `ChatTemplate.next_prompt`."""
        rest = self._fill(self.later, observation)
        return rest if stopped else np.concatenate([np.array([self.turn_end], np.int32), rest])

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> list[int]:
        """The ids of a whole conversation at once, control tokens in messages included: for `audit` alone."""
        text = _rendered(self.jinja, self.variables, messages, add_generation_prompt)
        return _ids(self.tokenizer, _pieces(self.tokenizer, text)).tolist()

    def _fill(self, frame: Frame, *messages: str) -> np.ndarray:
        pieces = _pieces(self.tokenizer, frame.texts[0])
        for message, text in zip(messages, frame.texts[1:], strict=True):
            pieces.append(message.strip() if frame.trims else message)
            pieces += _pieces(self.tokenizer, text)
        return _ids(self.tokenizer, pieces)


def jinja_template(
    source: str, tokenizer: Tokenizer, *, variables: Mapping[str, str], stops: frozenset[int], bos_id: int | None
) -> JinjaTemplate:
    """Reads the frames off a template.

    Args:
        source: the Jinja text.
        variables: names such as bos_token and their texts.
        stops: ids that the model's files name as ends of an answer; the template's own turn end is added.
        bos_id: what the tokenizer puts before a text when asked to, or None.

    Raises:
        TokenizerError: it is no Jinja, fails, does not show a message as it is, or ends answers by no control token.
    """
    try:
        jinja = _environment().from_string(source)
    except TemplateError as err:
        raise TokenizerError(f"the chat template cannot be read: {err}") from err

    def frame(roles: Sequence[str], *, prompt: bool = True) -> Frame:
        return _frame(jinja, variables, roles, prompt=prompt)

    try:
        instructed = frame(("system", "user"))
    except TokenizerError:
        instructed = None
    alone, dialogue = frame(("user",)), frame(("user", "assistant", "next"))
    turn_end, rest = _split_at_turn_end(tokenizer, dialogue.texts[2])
    closing = frame(("user", "assistant"), prompt=False).texts[2]

    def ids(text: str) -> np.ndarray:
        return _ids(tokenizer, _pieces(tokenizer, text))

    later = Frame((rest, dialogue.texts[3]), dialogue.trims)
    return JinjaTemplate(
        tokenizer=tokenizer,
        bos=np.array([] if bos_id is None else [bos_id], np.int32),
        system_open=ids(instructed.texts[0] if instructed else ""),
        user_open=ids(rest),
        assistant_open=ids(dialogue.texts[1]),
        turn_end=turn_end,
        separator=ids(_split_at_turn_end(tokenizer, closing)[1]),
        jinja=jinja,
        variables=dict(variables),
        stops=stops | {turn_end},
        alone=alone,
        instructed=instructed,
        later=later,
    )


def _frame(jinja: Any, variables: Mapping[str, str], roles: Sequence[str], *, prompt: bool) -> Frame:
    """The texts around messages of these roles, from a rendering with marks in their place."""
    marks = [_MARKS[role] for role in roles]
    messages: list[Message] = [
        {"role": "user" if role == "next" else role, "content": f"\t{mark}\t"} for role, mark in zip(roles, marks)
    ]
    text = _rendered(jinja, variables, messages, prompt)
    shown = [mark for mark in text if mark in marks]
    if shown != marks:
        raise TokenizerError(
            f"the chat template does not show the messages {', '.join(roles)} once each and in order, so prompts "
            "cannot be put together from it; take text.template: chatml, or another model."
        )
    trims = any(f"\t{mark}\t" not in text for mark in marks)
    around = "|".join(f"\t?{mark}\t?" for mark in marks)
    return Frame(tuple(re.split(around, text)), trims)


def _split_at_turn_end(tokenizer: Tokenizer, text: str) -> tuple[int, str]:
    """The first control token of what follows an answer, and the text after it."""
    found = re.search(_control_pattern(tokenizer), text)
    if found is None:
        raise TokenizerError(
            f"the chat template ends an answer by {text[:20]!r}, which holds no control token: the model could not "
            "say that it has ended. Take another template (text.template: chatml) or model."
        )
    return tokenizer.control_ids[found.group()], text[found.end() :]


def _pieces(tokenizer: Tokenizer, text: str) -> list[str | int]:
    """A frame's text cut into control tokens (ids) and what stands between them (texts)."""
    parts = re.split(f"({_control_pattern(tokenizer)})", text)
    return [tokenizer.control_ids[part] if n % 2 else part for n, part in enumerate(parts) if part]


def _ids(tokenizer: Tokenizer, pieces: Sequence[str | int]) -> np.ndarray:
    """Encodes texts between control tokens, each run of them as one, so that pieces meet as in running text."""
    runs: list[np.ndarray] = []
    text = ""
    for piece in [*pieces, -1]:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            runs.append(tokenizer.encode(text))
            text = ""
        if piece >= 0:
            runs.append(np.array([piece], np.int32))
    return np.concatenate(runs) if runs else np.zeros(0, np.int32)


def _control_pattern(tokenizer: Tokenizer) -> str:
    return "|".join(re.escape(name) for name in sorted(tokenizer.control_ids, key=len, reverse=True))


class _Generation(Extension):
    """`{% generation %}` marks answers for those who train on them; here it writes what stands in it."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja as `transformers` sets it up, so that templates written for it behave the same.

    `strftime_now` is left undefined on purpose: templates that know it put today's date in, others their own.
    """

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    return environment


def _rendered(jinja: Any, variables: Mapping[str, str], messages: Sequence[Message], prompt: bool) -> str:
    try:
        return jinja.render(
            messages=list(messages), tools=None, documents=None, add_generation_prompt=prompt, **variables
        )
    except Exception as err:  # a template is foreign code: anything may go wrong in it
        roles = ", ".join(message["role"] for message in messages)
        raise TokenizerError(f"the chat template fails on messages of {roles}: {err}") from err
