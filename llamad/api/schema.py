"""JSON schemas as clients send them, made ready for the engine. Pure.

Two things are said more clearly than the client did; everything else is left to the engine, which refuses what it cannot
honour.

* An object whose properties are listed gets no others, unless the schema speaks of them. A schema that says nothing
  allows them, but no client asks for properties that it has not named, and a small model that may invent some does not
  come to an end. llama-server reads schemas this way, too. It is done only where nothing is combined: parts that
  complete each other would otherwise exclude each other.
* What asks for nothing goes: formats that JSON Schema does not define (`int32`, `password`) are notes to people, and some
  words mean nothing with certain values or without others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from llamad.errors import RequestError

_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SINGLES = (
    *("items", "additionalItems", "contains", "additionalProperties", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties", "not", "if", "then", "else"),
)
# These look at the same object as what stands beside them, or at what it has left over.
_COMBINING = ("not", "if", "dependentSchemas", "dependencies", "unevaluatedProperties")
_REFERRING = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf")
_OPEN = ("additionalProperties", "patternProperties", "propertyNames", *_COMBINING, *_REFERRING)
FORMATS = frozenset(
    (
        *(
            "date-time",
            "date",
            "time",
            "duration",
            "email",
            "idn-email",
            "hostname",
            "idn-hostname",
            "ipv4",
            "ipv6",
        ),
        *("uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template", "json-pointer"),
        *("relative-json-pointer", "regex"),
    )
)
"""What JSON Schema 2020-12 defines."""

_WITHOUT_EFFECT = {
    "uniqueItems": False,
    "unevaluatedProperties": True,
    "unevaluatedItems": True,
    "propertyNames": True,
}
_NEEDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
_NOTES = frozenset(("title", "description", "default", "examples", "$comment", "deprecated", "readOnly"))
_COUNTS = tuple(
    f"{side}{what}" for side in ("min", "max") for what in ("Items", "Length", "Properties", "Contains")
)

Schema = Mapping[str, Any]


def schema_text(schema: Schema, *, notes: bool = True) -> str:
    """The schema's text for the engine, without notes to people if so wished. An empty one means any object.

    Raises RequestError for one nested too deep.
    """
    try:
        if not notes:
            schema = _rebuilt(schema, _without_notes)
        combined = any(_combines(each) for each in _all(schema))
        ready = _rebuilt(schema or {"type": "object"}, _plain if combined else _closed)
        return msgspec.json.encode(ready).decode()
    except RecursionError:
        raise RequestError(
            "cannot honour the schema: it is nested too deep", kind="unsupported-schema"
        ) from None


def _without_notes(schema: dict[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in schema.items() if word not in _NOTES}


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    schema = _plain(schema)
    properties = schema.get("properties")
    if not isinstance(properties, dict) or any(word in schema for word in _OPEN):
        return schema
    required, at_least = schema.get("required", []), schema.get("minProperties", 0)
    named = isinstance(required, list) and all(
        isinstance(name, str) and name in properties for name in required
    )
    if not named or not isinstance(at_least, int) or at_least > len(properties):
        return schema
    return schema | {"additionalProperties": False}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return {word: _count(word, value) for word, value in schema.items() if not _asks_nothing(schema, word)}


def _asks_nothing(schema: Schema, word: str) -> bool:
    value = schema[word]
    if word == "format":
        return isinstance(value, str) and value not in FORMATS
    if word in _WITHOUT_EFFECT:
        return value is _WITHOUT_EFFECT[word]
    if word == "if":
        return "then" not in schema and "else" not in schema
    return word in _NEEDS and _NEEDS[word] not in schema


def _count(word: str, value: Any) -> Any:
    """JSON does not tell 2 from 2.0, but who counts does."""
    return int(value) if word in _COUNTS and isinstance(value, float) and value.is_integer() else value


def _combines(schema: Schema) -> bool:
    """Do several parts of this schema speak of the same object?"""
    referring = [word for word in _REFERRING if word in schema]
    several = len(referring) > 1 or (bool(referring) and "properties" in schema)
    parts = schema.get("allOf")
    return (
        several or any(word in schema for word in _COMBINING) or (isinstance(parts, list) and len(parts) > 1)
    )


def _all(schema: Schema) -> Iterator[Schema]:
    """This schema and all below it."""
    yield schema
    for word, value in schema.items():
        if word in _MAPS and isinstance(value, dict):
            parts = list(value.values())
        elif word in _LISTS and isinstance(value, list):
            parts = value
        else:
            parts = [value] if word in _SINGLES else []
        for part in parts:
            if isinstance(part, dict):
                yield from _all(part)


def _rebuilt(schema: Schema, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A copy with every schema in it changed. Values that are no schemas, as in `enum`, stay as they are."""

    def part(value: Any) -> Any:
        return _rebuilt(value, change) if isinstance(value, dict) else value

    made: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _MAPS and isinstance(value, dict):
            made[word] = {name: part(each) for name, each in value.items()}
        elif word in _LISTS and isinstance(value, list):
            made[word] = [part(each) for each in value]
        else:
            made[word] = part(value) if word in _SINGLES else value
    return change(made)
