"""The JSON of calls' arguments: where it ends, what of a schema is a text, and text as JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'["\\]')
_REF_DEPTH_MAX = 32
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


class JsonEnd:
    """Finds the end of a JSON object or array in text that comes in pieces. It counts brackets and knows strings; what
    is between them it does not judge."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def ended(self) -> bool:
        """Has the last bracket been closed?"""
        return self._ended

    _ended = False

    def feed(self, text: str) -> int:
        """How many characters of the text belong to the value."""
        at = 0
        while at < len(text) and not self._ended:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_STRING_END if self._in_string else _STRUCTURE).search(text, at)
            if match is None:
                return len(text)
            at = match.end()
            self._turn(match[0])
        return at

    def _turn(self, char: str) -> None:
        if char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = not self._in_string
        else:
            self._depth += 1 if char in "{[" else -1
            self._ended = self._depth <= 0


def quoted(text: str) -> str:
    """Text as a JSON string."""
    return msgspec.json.encode(text).decode()


def as_json(text: str) -> str:
    """A value that should be JSON; what is none is a text."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return quoted(text)
    return text.strip()


def property_schema(schema: Mapping[str, Any], name: str) -> Any:
    """What the schema of an object says of one of its properties; None if nothing."""
    properties = schema.get("properties")
    return properties.get(name) if isinstance(properties, dict) else None


def may_be_text(schema: Any, root: Mapping[str, Any], depth: int = 0) -> bool | None:
    """Whether a value that conforms to `schema` may be a string; None where the schema does not say."""
    if not isinstance(schema, dict) or depth > _REF_DEPTH_MAX:
        return None
    kind = schema.get("type")
    if kind is not None:
        return "string" in kind if isinstance(kind, list) else kind == "string"
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return any(isinstance(value, str) for value in values) if isinstance(values, list) else None
    if isinstance(schema.get("$ref"), str):
        target = resolved(schema["$ref"], root)
        # What refers to nothing is no text, either: whoever has to honour it will say so.
        return False if target is None else may_be_text(target, root, depth + 1)
    parts = [schema[word] for word in _ALTERNATIVES if isinstance(schema.get(word), list)]
    found = [may_be_text(part, root, depth + 1) for several in parts for part in several]
    if any(found):
        return True
    return False if found and None not in found else None


def resolved(reference: str, root: Any) -> Any:
    """What a reference within a document points to; None if to nothing there."""
    if not reference.startswith("#"):
        return None
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(root, dict):
            return None
        root = root.get(step)
    return root
