"""Rules for arguments in notations that are not JSON, against real grammars."""

from __future__ import annotations

import pytest

from llamad.api.tools import Tool
from llamad.engine.guidance import Guide
from llamad.errors import RequestError
from tests.api.rules_kit import follow, may_end, rules, spelling, tokens

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"enum": ["red", 5]}, ['<|"|>red<|"|>', "5"], ["red", '<|"|>5<|"|>']),
        ({"type": "string", "maxLength": 2}, ['<|"|>ab<|"|>'], ['<|"|>abc<|"|>', "ab"]),
        ({"type": "string", "pattern": "^[a-z]+$"}, ['<|"|>ab<|"|>'], ['<|"|>a1<|"|>']),
        ({"type": "integer", "minimum": 3}, ["3"], ["2", "3.5"]),
        ({"type": ["boolean", "null"]}, ["true", "null"], ["0"]),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, ['<|"|><|"|>', "1.5"], ["true"]),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            ["[1]", "[1,2]"],
            ["[]", "[1,2,3]", '[<|"|>a<|"|>]'],
        ),
        ({"type": "array"}, ["[]", '[1,<|"|>a<|"|>,{b:[]}]'], ["{}"]),
        ({"type": "array", "items": {}, "maxItems": 0}, ["[]"], ["[1]"]),
        (
            {"properties": {"b": {"type": "integer"}, "a": {"type": "integer"}}, "required": ["b"]},
            ["{b:1}", "{a:2,b:1}"],
            ["{a:2}", "{b:1,a:2}", "{}", "{b:1,c:2}"],
        ),
        ({"type": "object"}, ["{}"], ["[]"]),
        ({"type": "object", "additionalProperties": True}, ["{}", '{x:<|"|>y<|"|>,z:{}}'], ["[]"]),
        ({"$ref": "#/$defs/tree"}, ["{}", "{kids:[{},{kids:[]}]}"], ["{kids:1}"]),
        (
            {"allOf": [{"type": "integer"}]},
            ["1"],
            ['<|"|>1<|"|>'],
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("control", [False, True], ids=["marks are text", "marks are tokens"])
def test_values_of_gemma_conform(
    guide: Guide, schema: dict, good: list[str], bad: list[str], control: bool
) -> None:
    kids = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    root = {
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "$defs": {"tree": {"type": "object", "properties": {"kids": kids}}},
    }
    spelled = spelling("gemma-4", control)
    made = rules(spelled, tools=(Tool("f", "", root),), required=True)
    for values, whole in ((good, True), (bad, False)):
        for value in values:
            ids = tokens(spelled, f"<|tool_call>call:f{{v:{value}}}<tool_call|>")
            matcher = guide.compile(made)
            assert (follow(matcher, ids) == len(ids) and may_end(matcher)) is whole, value


@pytest.mark.parametrize("word", ["not", "if", "patternProperties", "allOf"])
def test_what_cannot_be_said_in_gemmas_notation_is_refused(word: str) -> None:
    schema = {"type": "object", "properties": {"v": {word: [{}, {}]}}}
    with pytest.raises(RequestError, match=word):
        rules(spelling("gemma-4", True), tools=(Tool("f", "", schema),))


@pytest.mark.parametrize(
    ("value", "whole"),
    [('"a"', True), ("'a'", True), ("True", False), ("5", False), ("'a' 'b'", False)],
)
def test_values_of_lfm_conform(guide: Guide, value: str, whole: bool) -> None:
    spelled = spelling("lfm-2", True)
    schema = {"type": "object", "properties": {"v": TEXT}, "required": ["v"]}
    ids = tokens(spelled, f"<|tool_call_start|>[f(v={value})]<|tool_call_end|>")
    matcher = guide.compile(rules(spelled, tools=(Tool("f", "", schema),), required=True))
    assert (follow(matcher, ids) == len(ids) and may_end(matcher)) is whole


def test_a_schema_that_says_everything_many_times_is_read_once() -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(24):
        schema = {"type": ["object", "array"] * 8, "properties": {"v": schema}, "items": {"type": "string"}}
    made = rules(spelling("gemma-4", True), tools=(Tool("f", "", {"properties": {"v": schema}}),))
    assert len(made.text) < 100_000


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(80):
        schema = {"anyOf": [schema]}
    with pytest.raises(RequestError, match="nested too deep"):
        rules(spelling("gemma-4", True), tools=(Tool("f", "", {"properties": {"v": schema}}),))
