"""Whatever is sent to a dialect is read or refused in a sentence: good requests with anything in the place of anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.api import messages, responses
from llamad.api.generation import Generation
from llamad.api.infill import parse_infill
from llamad.api.messages import parse_messages
from llamad.api.openai import parse_chat
from llamad.api.responses import parse_responses
from llamad.errors import RequestError
from tests.api.vocabulary_for_tests import ByteVocabulary

VOCABULARY = ByteVocabulary()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}
FUNCTION = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "S"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "text", "text": "x"},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sun"}]}
            ],
        },
    ],
    "tools": [TOOL],
    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    "stop_sequences": ["END"],
    "thinking": {"type": "enabled", "budget_tokens": 9, "display": "omitted"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "u"},
    "stream": True,
    "temperature": 0.5,
    "top_k": 3,
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "S",
    "input": [
        {"role": "developer", "content": "D"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ],
    "tools": [{"type": "function", **FUNCTION}],
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "weather"}],
    },
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "metadata": {"a": "b"},
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 9,
    "truncation": "disabled",
    "stream_options": {"include_obfuscation": False},
}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": "x",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
    "chat_template_kwargs": {"enable_thinking": True},
    "stop": ["END"],
    "logit_bias": {"5": 1.5},
}
INFILL: dict[str, Any] = {
    "input_prefix": ["a", 5],
    "input_suffix": "b",
    "input_extra": [{"text": "x", "filename": "y"}],
    "prompt": "p",
    "n_indent": 4,
    "t_max_prompt_ms": 5,
}
PARSERS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
    "messages": (MESSAGES, lambda body: parse_messages(body, Generation(), VOCABULARY)),
    "counted messages": (MESSAGES, messages.parse_counted),
    "responses": (RESPONSES, lambda body: parse_responses(body, Generation(), VOCABULARY)),
    "counted responses": (RESPONSES, responses.parse_counted),
    "chat": (CHAT, lambda body: parse_chat(body, Generation(), VOCABULARY)),
    "infill": (INFILL, lambda body: parse_infill(body, Generation(), VOCABULARY)),
}
WORDS = (
    "text",
    "tool_use",
    "message",
    "function",
    "user",
    "assistant",
    "auto",
    "type",
    "content",
    "role",
    "name",
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all that is in a document."""
    names = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for name, part in names for place in ((*path, name), *places(part, (*path, name)))]


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any, gone: bool) -> dict[str, Any]:
    """A copy with another value there, or none."""
    copied = copy.deepcopy(document)
    part: Any = copied
    for name in path[:-1]:
        part = part[name]
    if gone:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return copied


@pytest.mark.parametrize("name", PARSERS)
def test_a_good_request_is_read(name: str) -> None:
    document, parse = PARSERS[name]
    parse(copy.deepcopy(document))


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=150)
@given(data=st.data())
def test_anything_in_the_place_of_anything(name: str, data: st.DataObject) -> None:
    document, parse = PARSERS[name]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(places(document)))
        document = changed(document, path, data.draw(ANYTHING), data.draw(st.booleans()))
        if not document:
            break
    refusal = outcome(parse, msgspec.json.decode(msgspec.json.encode(document)))
    assert refusal is None or (refusal.status == 400 and refusal.message.startswith("cannot "))


def outcome(parse: Callable[[dict[str, Any]], Any], document: dict[str, Any]) -> RequestError | None:
    """The refusal, if it is one; anything else that is raised is a bug."""
    try:
        parse(document)
    except RequestError as error:
        return error
    return None
