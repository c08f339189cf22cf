"""YAML as this package reads and writes it: a strict, small subset with line numbers in every complaint.

Differs from PyYAML's YAML 1.1 where that surprises people: `1e-4` is a number, only true and false are booleans
(`no`, `on` are text), `010` and `1:30` and dates are text, a repeated key is a mistake, anchors are refused.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_INT = re.compile(r"^[-+]?(0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^[-+]?((\d[\d_]*)?\.\d+([eE][-+]?\d+)?|\d[\d_]*\.([eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+)$"
    r"|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"
)
_BOOL = re.compile(r"^(true|True|TRUE|false|False|FALSE)$")
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_RESOLVERS = (
    ("tag:yaml.org,2002:bool", _BOOL, "tTfF"),
    ("tag:yaml.org,2002:int", _INT, "-+0123456789"),
    ("tag:yaml.org,2002:float", _FLOAT, "-+0123456789."),
)
_REPLACED = {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_DROPPED = _REPLACED | {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"}
_KNOWN_TAGS = _REPLACED | {f"tag:yaml.org,2002:{kind}" for kind in ("null", "str", "seq", "map")}


class YamlError(Exception):
    """The text is not YAML, or not the subset that is read here; says the line."""


class _Reader(yaml.SafeLoader):
    """Safe loader that collects repeated keys instead of letting the last one win."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _DROPPED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str):
        super().__init__(text)
        self.mistakes: list[str] = []

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.events.AliasEvent) or getattr(event, "anchor", None):
            raise YamlError(f"line {event.start_mark.line + 1}: anchors (& and *) are not read; write the value out")
        node: Any = super().compose_node(parent, index)
        if node.tag not in _KNOWN_TAGS:
            raise YamlError(
                f"line {node.start_mark.line + 1}: got the tag {node.tag}, wanted plain text, numbers, lists and "
                "mappings; remove the tag, or quote the text"
            )
        if isinstance(node, yaml.ScalarNode) and _NO_TEXT.search(node.value):
            self.mistakes.append(
                f"line {node.start_mark.line + 1}: a text holds a NUL character or half of a surrogate pair, which no "
                "file name and no tokenizer takes; write it without"
            )
            node.value = _NO_TEXT.sub("?", node.value)  # so that the rest can be looked at
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        first_lines: dict[str, int] = {}
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                got = getattr(key_node, "value", "") if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                self.mistakes.append(f"line {line}: got the key {got}, wanted text; put it in quotes")
            elif key_node.value in first_lines:
                self.mistakes.append(
                    f"line {line}: {key_node.value!r} is given twice, first on line {first_lines[key_node.value]}; "
                    "remove one of them"
                )
            else:
                first_lines[key_node.value] = line
        text = "tag:yaml.org,2002:str"
        node.value = [pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode) and pair[0].tag == text]
        return super().construct_mapping(node, deep=deep)


class _Writer(yaml.SafeDumper):
    """Safe dumper that quotes whatever either reader's rules would take for something else than text."""


def _text(writer: _Writer, text: str) -> yaml.ScalarNode:
    # Readers take these for line ends or drop them unless they are escaped, which only double quotes do.
    escaped = any(character in text for character in "\x85\u2028\u2029\ufeff")
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style='"' if escaped else None)


_Writer.add_representer(str, _text)

for _tag, _pattern, _first in _RESOLVERS:
    _Reader.add_implicit_resolver(_tag, _pattern, list(_first))
    _Writer.add_implicit_resolver(_tag, _pattern, list(_first))


def read_yaml(text: str) -> tuple[Any, list[str]]:
    """One YAML document as plain dicts, lists, text, numbers, booleans and None.

    Returns:
        The value, and the mistakes that did not stop the reading (repeated and non-text keys), each with its line.

    Raises:
        YamlError: a syntax error, a tag, an anchor, or more than one document.
    """
    try:
        reader = _Reader(text)
        try:
            value = reader.get_single_data()
        finally:
            reader.dispose()
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise YamlError(
            f"{where}not YAML ({err.problem or err.context}); check indentation, colons and quotes"
        ) from err
    except yaml.YAMLError as err:
        raise YamlError(f"not YAML ({str(err).splitlines()[0]}); save the file as plain UTF-8 text") from err
    except (ValueError, RecursionError) as err:
        raise YamlError(f"a value cannot be read ({err}); quote it if it is text") from err
    return value, reader.mistakes


def write_yaml(value: Any) -> str:
    """Plain dicts, lists and scalars as YAML that `read_yaml` reads back unchanged, keys in their given order."""
    return yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=110)
