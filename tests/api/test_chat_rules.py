"""Rules against real grammars: what they let through, and that what they force is what the parser reads."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.api.chat_parser import ChatParser
from llamad.api.chat_rules import Demands, chat_rules
from llamad.api.message import read_message
from llamad.api.notation import Spelling
from llamad.api.tools import Tool
from llamad.engine.guidance import Guide, Matcher
from llamad.engine.vocabulary import Rules
from llamad.errors import RequestError
from tests.api.chat_answers import ANSWERS, Answer
from tests.api.rules_kit import (
    CITY,
    END,
    FAMILIES,
    IDS,
    TOOLS,
    follow,
    may_end,
    notation_of,
    rules,
    spelling,
    tokens,
)

NUMBERS = Rules("json_schema", '{"type": "array", "items": {"type": "integer"}}')


def thinking(answer: Answer) -> str:
    return "begun" if "think" in answer.begun else "free"


@pytest.mark.parametrize("control", [False, True], ids=["marks are text", "marks are tokens"])
@pytest.mark.parametrize(
    "answer",
    [each for each in ANSWERS if not each.loose],
    ids=lambda answer: f"{answer.family}: {answer.what}",
)
def test_what_a_family_writes_is_free_to_come(guide: Guide, answer: Answer, control: bool) -> None:
    spelled = spelling(answer.family, control)
    matcher = guide.compile(rules(spelled, thinking=thinking(answer)))
    ids = tokens(spelled, answer.text)
    taken = follow(matcher, ids)
    assert taken == len(ids), f"stopped at {ids[taken:][:40]}"
    assert may_end(matcher)


def _spoiled() -> Iterator[tuple[Answer, str]]:
    """Answers with one word of a call changed. What llama-3 says of `now` comes after a call, where it may be text."""
    for answer in ANSWERS:
        for right, wrong in (("weather", "weathor"), ("city", "town"), ("now", "not")):
            called = answer.calls and not answer.loose and right in answer.text
            if called and (answer.family, right) != ("llama-3", "now"):
                yield answer, answer.text.replace(right, wrong)


@pytest.mark.parametrize("control", [False, True], ids=["marks are text", "marks are tokens"])
@pytest.mark.parametrize(
    ("answer", "wrong"),
    list(_spoiled()),
    ids=lambda each: f"{each.family}: {each.what}" if isinstance(each, Answer) else "spoiled",
)
def test_a_call_that_has_begun_is_one_of_a_tool_with_its_arguments(
    guide: Guide, answer: Answer, control: bool, wrong: str
) -> None:
    spelled = spelling(answer.family, control)
    matcher = guide.compile(rules(spelled, thinking=thinking(answer)))
    ids = tokens(spelled, wrong)
    assert follow(matcher, ids) < len(ids)


@pytest.mark.parametrize("control", [False, True], ids=["marks are text", "marks are tokens"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize(
    "text", ["Hello", 'a\n\nb {"x": [1]} <b>bold</b> [TOOL] Act: <', "{}", "<tool", "ü🦊"]
)
def test_text_is_free(guide: Guide, family: str, control: bool, text: str) -> None:
    spelled = spelling(family, control)
    matcher = guide.compile(rules(spelled))
    assert follow(matcher, list(text.encode())) == len(text.encode())
    assert may_end(matcher)


def wander(matcher: Matcher, spelled: Spelling, rng: random.Random, steps: int = 3000) -> str:
    """A text that the rules allow, drawn at random, with a liking for what closes."""
    names = {id: mark for mark, id in spelled.controls.items()}
    calls, thought = spelled.notation.calls, spelled.notation.thought
    assert calls
    assert thought
    quotes = calls.literals.quotes if calls.literals else ()
    closers = [thought.closes, *quotes, *calls.pair.replace("«key»", "«value»").split("«value»")[1:]]
    data = bytearray()

    def write(ids: Sequence[int]) -> None:
        for id in ids:
            if not matcher.take(id):
                return
            data.extend(names[id].encode() if id in names else bytes([id]))

    for _ in range(steps):
        if matcher.complete:
            break
        every = [int(id) for id in matcher.allowed(np.zeros(1), 0)]
        allowed = [id for id in every if id >= END or 32 <= id < 127 or id == 10] or every
        if END in allowed:
            break
        if rng.random() < 0.2:
            write(tokens(spelled, rng.choice(closers)))
            continue
        closing = [id for id in allowed if id >= END or chr(id) in '"}],:</']
        write([rng.choice(closing if closing and rng.random() < 0.5 else allowed)])
    else:
        raise AssertionError(f"no end: {data[:200]!r}")
    return data.decode(errors="replace")


@pytest.mark.parametrize("control", [False, True], ids=["marks are text", "marks are tokens"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_is_required_is_what_the_parser_reads(guide: Guide, family: str, control: bool) -> None:
    spelled = spelling(family, control)
    required = rules(spelled, required=True, thinking="free")
    schemas = {tool.name: tool.schema for tool in TOOLS}
    begun = spelled.notation.thought.resumes if spelled.notation.thought else ""
    seen = set()
    for seed in range(8):
        text = wander(guide.compile(required), spelled, random.Random(seed))
        said = read_message(ChatParser(spelled.notation, TOOLS, begun=begun), text)
        assert said.calls, text
        assert said.content == "", text
        for call in said.calls:
            seen.add(call.name)
            jsonschema.validate(json.loads(call.arguments), schemas[call.name])
    assert len(seen) > 1


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_one_call_alone_where_calls_are_not_parallel(guide: Guide, family: str) -> None:
    spelled = spelling(family, True)
    begun = spelled.notation.thought.resumes if spelled.notation.thought else ""
    for seed in range(4):
        matcher = guide.compile(rules(spelled, required=True, parallel=False))
        said = read_message(
            ChatParser(spelled.notation, TOOLS, begun=begun), wander(matcher, spelled, random.Random(seed))
        )
        assert len(said.calls) == 1


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_an_answer_by_a_schema_comes_after_the_thought(guide: Guide, family: str) -> None:
    spelled = spelling(family, False)
    thought, (opens, closes) = spelled.notation.thought, spelled.notation.answer
    assert thought
    made = rules(spelled, tools=(), thinking="free", answer=NUMBERS)
    for text, whole in (
        (f"{thought.opens}hm{thought.closes}{thought.resumes}{opens}[1, 2]{closes}", True),
        (f"{opens}[1, 2]{closes}", True),
        (f'{opens}["a"]{closes}', False),
        ("Hello", False),
    ):
        ids = tokens(spelled, text)
        assert (follow(guide.compile(made), ids) == len(ids)) is whole


def test_an_answer_by_a_schema_may_be_a_call_instead(guide: Guide) -> None:
    spelled = spelling("hermes", False)
    made = rules(spelled, answer=NUMBERS)
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    for text, whole in ((call, True), ("[1]", True), ("Hello", False)):
        assert (follow(guide.compile(made), list(text.encode())) == len(text)) is whole


def test_no_thought_at_all_with_a_budget_of_none(guide: Guide) -> None:
    spelled = spelling("hermes", False)
    made = rules(spelled, tools=(), thinking="free", thoughtless=True)
    assert follow(guide.compile(made), list(b"<think>hm")) == len(b"<think>")
    text = b"<think>\n\n</think>\n\nHello"
    assert follow(guide.compile(made), list(text)) == len(text)


def test_without_demands_there_are_no_rules() -> None:
    assert chat_rules(spelling("hermes", False), Demands(thinking="free")) is None


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"enum": ["red", "green"]}, ["red", "green"], ["blue"]),
        ({"const": "x"}, ["x"], ["y"]),
        ({"type": "string", "maxLength": 3}, ["", "abc"], ["abcd"]),
        ({"type": "string", "pattern": "^[a-z]+/[0-9]$"}, ["ab/1"], ["ab/", "1"]),
        ({"type": "string", "pattern": "b"}, ["abc", "b"], ["ac"]),
        ({"type": "string", "format": "uri"}, ["anything"], []),
        ({"type": "boolean"}, ["true"], ["yes"]),
        ({"$ref": "#/$defs/size"}, ["5"], ["x"]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["x", "null"], []),
    ],
    ids=str,
)
def test_values_among_pairs_conform(guide: Guide, schema: dict, good: list[str], bad: list[str]) -> None:
    root = {
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "$defs": {"size": {"type": "integer"}},
    }
    spelled = spelling("glm-4.5", False)
    made = rules(spelled, tools=(Tool("f", "", root),), required=True)
    for values, whole in ((good, True), (bad, False)):
        for value in values:
            text = f"<tool_call>f\n<arg_key>v</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"
            matcher = guide.compile(made)
            assert (follow(matcher, list(text.encode())) == len(text) and may_end(matcher)) is whole, value


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    ("family", "inner"), [("deepseek-v3.2", "｜DSML｜"), ("minicpm-5", "<function"), ("minicpm-5", "<param")]
)
def test_a_mark_may_have_a_token_within(guide: Guide, family: str, inner: str, required: bool) -> None:
    spelled = Spelling(notation_of(family), {mark: IDS[mark] for mark in (inner, "<think>", "</think>")})
    for answer in ANSWERS:
        if answer.family == family and answer.calls and not answer.loose:
            free = thinking(answer) == "begun" or answer.content
            if required and free:
                continue
            matcher = guide.compile(rules(spelled, thinking=thinking(answer), required=required))
            ids = tokens(spelled, answer.text)
            assert follow(matcher, ids) == len(ids)
            assert may_end(matcher)
            wrong = tokens(spelled, answer.text.replace("weather", "weathor"))
            assert follow(guide.compile(rules(spelled, thinking=thinking(answer))), wrong) < len(wrong)


@pytest.mark.parametrize("control", [False, True], ids=["marks are text", "marks are tokens"])
@pytest.mark.parametrize("family", sorted(name for name, each in FAMILIES.items() if each.calls.ends_thought))
def test_a_call_may_end_a_thought_where_one_is_required_too(guide: Guide, family: str, control: bool) -> None:
    spelled = spelling(family, control)
    thought = spelled.notation.thought
    assert thought
    for answer in ANSWERS:
        if answer.family == family and "ends the thought" in answer.what:
            for begun, demands in (("", {"thinking": "begun"}), (thought.opens, {"thinking": "free"})):
                ids = tokens(spelled, begun + answer.text)
                matcher = guide.compile(rules(spelled, required=True, **demands))
                assert follow(matcher, ids) == len(ids)
                assert may_end(matcher)


@pytest.mark.parametrize("family", ["hermes", "qwen3-coder"])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"v": {"$ref": "#/$defs/nothing"}}, "required": ["v"]},
        {
            "type": "object",
            "properties": {"v": {"type": "integer", "minimum": 5, "maximum": 1}},
            "required": ["v"],
        },
    ],
    ids=["a reference to nothing", "an impossible number"],
)
def test_a_schema_that_cannot_be_honoured_is_refused(guide: Guide, family: str, schema: dict) -> None:
    with pytest.raises(RequestError) as caught:
        guide.compile(rules(spelling(family, False), tools=(Tool("f", "", schema),), required=True))
    assert caught.value.kind == "unsupported-schema"


def test_sixty_tools_with_long_descriptions_are_rules_like_any(guide: Guide) -> None:
    schema = CITY | {"description": "x" * 5000}
    many = tuple(Tool(f"tool_{index}", "y" * 5000, schema) for index in range(60))
    made = rules(spelling("hermes", False), tools=many)
    assert len(made.text) + sum(len(part.text) for _, part in made.parts) < 100_000
    text = '<tool_call>\n{"name": "tool_42", "arguments": {"city": "Rome"}}\n</tool_call>'
    assert follow(guide.compile(made), list(text.encode())) == len(text)


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 5, -1, 2.0, "string", "integer", "#/$defs/a", "^a[", "x«value»", [], {}]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "type",
                        "properties",
                        "required",
                        "enum",
                        "const",
                        "anyOf",
                        "oneOf",
                        "allOf",
                        "$ref",
                        "$defs",
                    ),
                    *(
                        "items",
                        "pattern",
                        "minLength",
                        "maxLength",
                        "minimum",
                        "maximum",
                        "format",
                        "not",
                        "if",
                    ),
                    *("additionalProperties", "description", "a", "«value»", "x-guidance"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(st.text(max_size=4), JUNK, max_size=3) | JUNK,
    st.booleans(),
)
def test_whatever_a_schema_is_it_is_followed_or_refused(
    guide: Guide, family: str, schema: Any, required: bool
) -> None:
    if not isinstance(schema, dict):
        schema = {"type": "object", "properties": {"v": schema}}
    spelled = spelling(family, False)
    with suppress(RequestError):
        guide.compile(rules(spelled, tools=(Tool("f", "", schema),), required=required))


def test_a_schema_has_no_options_that_make_it_mean_less(guide: Guide) -> None:
    lenient = {
        "x-guidance": {"lenient": True},
        "type": "object",
        "properties": {"v": {"not": {"type": "null"}}},
    }
    with pytest.raises(RequestError):
        guide.compile(rules(spelling("hermes", False), tools=(Tool("f", "", lenient),)))
