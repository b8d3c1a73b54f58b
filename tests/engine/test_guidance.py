"""Schemas through llguidance on a vocabulary of bytes: what conforms passes, what cannot be honoured says why, nothing crashes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from llamad.engine.guidance import Guide
from llamad.engine.vocabulary import Rules
from llamad.errors import LlamadError, RequestError

END, CONTROL = 256, 257
GUIDE = Guide([bytes([byte]) for byte in range(256)] + [b"", b""], [END])
ROW = np.zeros(258, np.float32)


def compile_schema(schema: Any) -> Any:
    return GUIDE.compile(Rules("json_schema", schema if isinstance(schema, str) else json.dumps(schema)))


def takes(constraint: Any, text: str) -> bool:
    return all(constraint.take(byte) for byte in text.encode())


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "text",
    ['{"name":"Bo","age":4}', '{"name": "żółć \\u00e9", "age": -3}', '{\n  "name": "",\n  "age": 0\n}'],
)
def test_what_conforms_passes_and_then_nothing_more(text: str) -> None:
    constraint = compile_schema(PERSON)
    assert takes(constraint, text)
    assert constraint.complete


def test_what_does_not_conform_is_refused_and_changes_nothing() -> None:
    constraint = compile_schema(PERSON)
    assert takes(constraint, '{"name": "Bo", "age": 4')
    for token in (ord("x"), ord("."), END, CONTROL):
        assert not constraint.take(token)
    assert set(constraint.allowed(ROW, 0)) == {*map(ord, "0123456789} \n")}
    assert takes(constraint, "2}")


def test_the_end_is_allowed_where_more_could_follow() -> None:
    constraint = compile_schema({"type": "integer"})
    assert takes(constraint, "12")
    assert not constraint.complete
    assert END in constraint.allowed(ROW, 0)
    assert constraint.take(END)


def test_blanks_are_bounded() -> None:
    assert not takes(compile_schema(PERSON), '{   "name"')
    assert not takes(compile_schema(PERSON), "{" + "\n" * 3)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "objekt"),
        ({"type": "string", "pattern": "(["}, "regex"),
        ({"$ref": "#"}, "no answer can conform"),
        ({"$ref": "#/$defs/none"}, ""),
        ({"$ref": "http://localhost/x"}, "http://localhost/x"),
        ({"type": "number", "minimum": "x"}, "minimum"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "string"}}, "not"),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "minLength"),
        ({"enum": []}, ""),
        (False, "object"),
        ([], "object"),
        ({"oneOf": [{"type": "string"}, {"maxLength": 3}], "x-guidance": {"coerce_one_of": True}}, "oneOf"),
        ({"not": {}, "x-guidance": {"lenient": True}}, "not"),
        ("{", ""),
        ("nonsense", ""),
        ('{"items":' * 3000 + "{}" + "}" * 3000, "recursion"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_schema_that_cannot_be_honoured_says_why(schema: Any, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        compile_schema(schema)
    assert caught.value.status == 400
    assert caught.value.kind == "unsupported-schema"
    assert words in caught.value.message
    assert len(caught.value.message) < 500


def test_annotations_mean_nothing() -> None:
    described = {**PERSON, "description": "x", "title": "t", "default": {}, "examples": [1], "$comment": "c"}
    assert takes(compile_schema(described), '{"name": "Bo", "age": 4}')


def test_a_schema_may_refer_to_itself_where_there_is_a_way_out() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    constraint = compile_schema(tree)
    assert takes(constraint, '{"next": {"next": {}}}')
    assert constraint.complete


def test_rules_that_become_too_expensive_are_an_error_and_not_a_long_wait() -> None:
    constraint = GUIDE.compile(Rules("gbnf", 'root ::= "b" ((("a"{2000}){2000}){2000}){2000}'))

    def go_on() -> None:
        for token in b"baaa":
            constraint.take(token)
            constraint.allowed(ROW, 0)

    with pytest.raises(LlamadError, match="cannot follow the request's rules any further"):
        go_on()


def test_rules_with_too_many_parts_are_refused() -> None:
    words = " | ".join(f'"word number {number} is here"' for number in range(5000))
    with pytest.raises(RequestError, match="cannot honour the grammar: it has too many parts"):
        GUIDE.compile(Rules("gbnf", f"root ::= {words}"))


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(RequestError, match="kind 'xml'"):
        GUIDE.compile(Rules("xml", "<a/>"))
