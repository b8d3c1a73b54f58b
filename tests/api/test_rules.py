"""Rules for answers: all the places where clients put a schema, and what is made of one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llamad.api.generation import Generation
from llamad.api.openai import parse_chat
from llamad.api.schema import schema_text
from llamad.engine.vocabulary import Rules
from llamad.errors import RequestError
from tests.api.test_parsing import USER, VOCABULARY, chat, refusal

NUMBER = {"type": "integer"}


def rules(**fields: Any) -> Any:
    """(kind, text or parsed schema), None for free text."""
    found = chat(**fields).generation.rules
    if found is None:
        return None
    return found.kind, json.loads(found.text) if found.kind == "json_schema" else found.text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"grammar": ""}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {}}, None),
        ({"grammar": 'root ::= "x"'}, ("gbnf", 'root ::= "x"')),
        ({"response_format": {"type": "text"}, "grammar": "root ::= x"}, ("gbnf", "root ::= x")),
        ({"json_schema": NUMBER}, ("json_schema", NUMBER)),
        ({"json_schema": {}}, ("json_schema", {"type": "object"})),
        ({"response_format": {"type": "json_object"}}, ("json_schema", {"type": "object"})),
        ({"response_format": {"type": "json_object", "schema": NUMBER}}, ("json_schema", NUMBER)),
        ({"response_format": {"type": "json_object"}, "json_schema": NUMBER}, ("json_schema", NUMBER)),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": NUMBER}}},
            ("json_schema", NUMBER),
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": NUMBER, "strict": True}}},
            ("json_schema", NUMBER),
        ),
        ({"response_format": {"type": "json_schema", "schema": NUMBER}}, ("json_schema", NUMBER)),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            ("json_schema", {"type": "object"}),
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_where_rules_are_found(fields: dict[str, Any], expected: Any) -> None:
    assert rules(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": 5}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"strict": "yes"}}},
            "response_format.json_schema.strict",
        ),
        ({"json_schema": [1]}, "json_schema"),
        ({"json_schema": False}, "json_schema"),
        ({"grammar": 5}, "grammar"),
        ({"grammar": "root ::= x", "json_schema": NUMBER}, "grammar"),
        ({"grammar": "root ::= x", "response_format": {"type": "json_object"}}, "grammar"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_read_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refusal(chat, **fields)
    assert error.body()["error"]["param"] == param


def test_a_models_own_rules_hold_where_a_request_has_none() -> None:
    own = Generation(rules=Rules("gbnf", "root ::= y"))
    assert parse_chat({"messages": [USER]}, own, VOCABULARY).generation.rules == own.rules
    other = parse_chat({"messages": [USER], "grammar": "root ::= x"}, own, VOCABULARY).generation.rules
    assert other == Rules("gbnf", "root ::= x")


def prepared(schema: dict[str, Any]) -> dict[str, Any]:
    return json.loads(schema_text(schema))


A = {"properties": {"a": NUMBER}}
CLOSED_A = {**A, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (A, CLOSED_A),
        ({"type": "object"}, {"type": "object"}),
        ({**A, "additionalProperties": True}, {**A, "additionalProperties": True}),
        ({**A, "patternProperties": {"^x": A}}, {**A, "patternProperties": {"^x": CLOSED_A}}),
        ({**A, "required": ["b"]}, {**A, "required": ["b"]}),
        ({**A, "required": ["a"]}, {**CLOSED_A, "required": ["a"]}),
        ({**A, "minProperties": 2}, {**A, "minProperties": 2}),
        ({"items": A, "$defs": {"x": A}}, {"items": CLOSED_A, "$defs": {"x": CLOSED_A}}),
        ({"prefixItems": [A], "items": False}, {"prefixItems": [CLOSED_A], "items": False}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED_A, {"type": "null"}]}),
        (
            {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": A}},
            {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": CLOSED_A}},
        ),
        ({"enum": [A], "const": A, "default": A}, {"enum": [A], "const": A, "default": A}),
        (
            {"properties": {"properties": {"type": "string"}}},
            {"properties": {"properties": {"type": "string"}}, "additionalProperties": False},
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_listed_properties_are_all_unless_the_schema_speaks_of_others(
    schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert prepared(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, {"properties": {"b": NUMBER}}]},
        {**A, "anyOf": [{"required": ["a"]}, {"properties": {"b": NUMBER}}]},
        {"properties": {"x": {"$ref": "#/$defs/x", "properties": {"b": NUMBER}}}, "$defs": {"x": A}},
        {**A, "if": A, "then": {"properties": {"b": NUMBER}}},
        {**A, "unevaluatedProperties": False},
        {**A, "not": {"properties": {"b": NUMBER}}},
    ],
    ids=str,
)
def test_parts_that_complete_each_other_stay_open(schema: dict[str, Any]) -> None:
    assert prepared(schema) == schema


def test_notes_in_place_of_formats_go_and_real_formats_stay() -> None:
    schema = {"anyOf": [{"type": "integer", "format": "int32"}, {"type": "string", "format": "date"}]}
    assert prepared(schema) == {"anyOf": [{"type": "integer"}, {"type": "string", "format": "date"}]}
    assert prepared({"properties": {"format": {"type": "string"}}, "additionalProperties": True}) == {
        "properties": {"format": {"type": "string"}},
        "additionalProperties": True,
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"uniqueItems": False, "unevaluatedItems": True, "propertyNames": True}, {}),
        ({"uniqueItems": True, "unevaluatedItems": False}, None),
        ({"if": {}}, {}),
        ({"then": {}, "else": {}}, {}),
        ({"if": {}, "then": {}}, None),
        ({"minContains": 2}, {}),
        ({"contains": {}, "maxContains": 2.0}, {"contains": {}, "maxContains": 2}),
        (
            {"maxItems": 2.0, "minLength": 1.0, "minimum": 2.0},
            {"maxItems": 2, "minLength": 1, "minimum": 2.0},
        ),
        ({"maxItems": 2.5}, None),
    ],
    ids=str,
)
def test_words_that_ask_for_nothing_go(schema: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert prepared({"items": schema})["items"] == (schema if expected is None else expected)


@pytest.mark.parametrize(
    "odd", [{"properties": 5}, {"allOf": 5}, {"items": [5]}, {"required": 5, **A}], ids=str
)
def test_nonsense_is_left_to_the_engine(odd: dict[str, Any]) -> None:
    assert prepared(odd) == odd


def test_a_schema_nested_beyond_reason_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(RequestError, match="nested too deep"):
        schema_text(schema)
