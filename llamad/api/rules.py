"""What an answer must conform to: OpenAI's `response_format`, llama.cpp's `json_schema` and `grammar`."""

from __future__ import annotations

from typing import Any

from llamad.api.fields import Fields
from llamad.api.schema import schema_text
from llamad.engine.vocabulary import Rules
from llamad.errors import RequestError

_ANY_OBJECT: dict[str, Any] = {}
_FORMATS = ("text", "json_object", "json_schema")


def parse_rules(fields: Fields, default: Rules | None) -> Rules | None:
    """None: free text. Raises RequestError that names the field; whether rules can be honoured the engine finds out."""
    grammar = fields.text("grammar", "")
    schema = _schema_of_format(fields) or _schema(fields, "json_schema")
    if grammar and schema is not None:
        raise RequestError(
            "cannot follow both a grammar and a JSON schema", kind="bad-field", details={"param": "grammar"}
        )
    if grammar:
        return Rules("gbnf", grammar)
    if schema is not None:
        return schema
    return default


def _schema_of_format(fields: Fields) -> Rules | None:
    wanted = fields.nested("response_format")
    kind = wanted.text("type", "text")
    if kind not in _FORMATS:
        raise wanted.wrong("type", " or ".join(map(repr, _FORMATS)), kind)
    if kind == "text":
        return None
    if kind == "json_object":
        named = _schema(wanted, "schema") or _schema(fields, "json_schema")
    else:
        wrapper = wanted.nested("json_schema")
        # Every schema is followed strictly; the flag is only looked at.
        wrapper.flag("strict", True)
        named = _schema(wrapper, "schema") or _schema(wanted, "schema")
    return named or Rules("json_schema", schema_text(_ANY_OBJECT))


def _schema(fields: Fields, name: str) -> Rules | None:
    value = fields.raw(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise fields.wrong(name, "a JSON schema, which is an object", value)
    return Rules("json_schema", schema_text(value))
