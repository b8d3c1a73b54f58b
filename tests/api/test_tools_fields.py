"""Tools, calls and their results in requests: what is read, in which form, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.api.conversation import Conversation, parse_conversation
from llamad.api.fields import Fields
from llamad.api.tools import TOOLS_MAX
from llamad.errors import RequestError

USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA},
}
TIME = {"type": "function", "function": {"name": "time", "strict": True}}


def conversation(**fields: Any) -> Conversation:
    return parse_conversation(Fields({"messages": [USER], **fields}))


def refusal(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        conversation(**fields)
    assert caught.value.status == 400
    return caught.value


def call(**function: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "weather", **function}}


def test_tools_are_what_templates_of_llama_server_see() -> None:
    toolbox = conversation(tools=[WEATHER, TIME]).toolbox
    assert toolbox.documents() == [
        WEATHER,
        {"type": "function", "function": {"name": "time", "description": "", "parameters": {}}},
    ]
    assert list(toolbox.documents()[0]["function"]) == ["name", "description", "parameters"]
    assert [tool.schema for tool in toolbox.tools] == [SCHEMA, {"type": "object", "properties": {}}]


@pytest.mark.parametrize(
    ("choice", "mode", "usable"),
    [
        (None, "auto", ["weather", "time"]),
        ("auto", "auto", ["weather", "time"]),
        ("none", "none", []),
        ("required", "required", ["weather", "time"]),
        ({"type": "function", "function": {"name": "time"}}, "required", ["time"]),
        ({"type": "function", "name": "time"}, "required", ["time"]),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TIME]}},
            "required",
            ["time"],
        ),
        ({"type": "allowed_tools", "allowed_tools": {"tools": [TIME]}}, "auto", ["time"]),
    ],
    ids=str,
)
def test_a_choice_says_what_may_and_must_be_called(choice: Any, mode: str, usable: list[str]) -> None:
    toolbox = conversation(tools=[WEATHER, TIME], tool_choice=choice).toolbox
    assert (toolbox.choice, [tool.name for tool in toolbox.usable]) == (mode, usable)
    assert len(toolbox.documents()) == 2


@pytest.mark.parametrize("value", [None, True, False])
def test_parallel_calls_may_be_left_open(value: bool | None) -> None:
    assert conversation(tools=[TIME], parallel_tool_calls=value).toolbox.parallel is value


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": {}}, ["'tools'", "an array"]),
        ({"tools": [1]}, ["'tools[0]'", "the number 1"]),
        ({"tools": [{"type": "web_search"}]}, ["'tools[0].type'", "web_search"]),
        ({"tools": [{"type": "function"}]}, ["'tools[0].function.name'"]),
        ({"tools": [{"type": "function", "function": 1}]}, ["'tools[0].function'", "an object"]),
        ({"tools": [{"type": "function", "function": {"name": "a\nb"}}]}, ["printable"]),
        ({"tools": [{"type": "function", "function": {"name": 'a"b'}}]}, ["quotes"]),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            ["'tools[0].function.parameters'", "a JSON schema"],
        ),
        ({"tools": [TIME, TIME]}, ["two tools", "'time'"]),
        ({"tools": [TIME] * (TOOLS_MAX + 1)}, [str(TOOLS_MAX)]),
        ({"tool_choice": "required"}, ["no tools"]),
        ({"tools": [TIME], "tool_choice": "any"}, ["'tool_choice'", "'required'"]),
        ({"tools": [TIME], "tool_choice": 1}, ["'tool_choice'"]),
        ({"tools": [TIME], "tool_choice": {"type": "custom"}}, ["'tool_choice.type'"]),
        (
            {"tools": [TIME], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            ["'x'", "'time'"],
        ),
        (
            {"tools": [TIME], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}},
            ["'tool_choice.allowed_tools.tools'"],
        ),
        ({"tools": [TIME], "parallel_tool_calls": "yes"}, ["'parallel_tool_calls'"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_wrong_tools_are_named(fields: dict[str, Any], words: list[str]) -> None:
    message = refusal(**fields).message
    for word in words:
        assert word in message


def test_calls_and_results_arrive_in_the_form_of_templates() -> None:
    calling = {"role": "assistant", "content": None, "tool_calls": [call(arguments='{"city": "Rome"}')]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "22", "name": "weather"}
    messages = conversation(messages=[USER, calling, result]).messages
    assert messages == (USER, calling | {"content": ""}, result)


def test_what_templates_do_not_know_is_left_out() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {}}], "id": 7}
    assert conversation(messages=[message]).messages == (
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": [1]}', '{"a": [1]}'),
        ({"a": [1]}, '{"a":[1]}'),
        ("", "{}"),
        (None, "{}"),
    ],
)
def test_arguments_are_the_text_of_an_object(arguments: Any, expected: str) -> None:
    calling = {"role": "assistant", "tool_calls": [call(arguments=arguments)]}
    result = {"role": "tool", "content": "x"}
    message = conversation(messages=[USER, calling, result]).messages[1]
    assert message["tool_calls"][0]["function"]["arguments"] == expected


@pytest.mark.parametrize(
    ("calling", "words"),
    [
        ({"tool_calls": {}}, ["'messages[1].tool_calls'", "an array"]),
        ({"tool_calls": [1]}, ["'messages[1].tool_calls[0]'"]),
        ({"tool_calls": [{"type": "custom"}]}, ["'messages[1].tool_calls[0].type'", "custom"]),
        ({"tool_calls": [{"function": {}}]}, ["'messages[1].tool_calls[0].function.name'"]),
        ({"tool_calls": [call(arguments="[1]")]}, ["function.arguments'", "JSON object"]),
        ({"tool_calls": [call(arguments="{")]}, ["function.arguments'", "JSON object"]),
        ({"tool_calls": [call(arguments=7)]}, ["function.arguments'", "the number 7"]),
        ({}, ["'messages[1].content'", "null"]),
        ({"content": "x", "name": 5}, ["'messages[1].name'"]),
    ],
    ids=str,
)
def test_wrong_calls_are_named(calling: dict[str, Any], words: list[str]) -> None:
    message = refusal(messages=[USER, {"role": "assistant", **calling}, USER]).message
    for word in words:
        assert word in message


def test_an_answer_that_calls_tools_cannot_be_gone_on_with() -> None:
    assert "results" in refusal(messages=[USER, {"role": "assistant", "tool_calls": [call()]}]).message


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_a_begun_answer_may_have_a_thought(name: str) -> None:
    begun = conversation(messages=[USER, {"role": "assistant", "content": "So", name: "hm"}])
    assert (begun.prefill, begun.thought, begun.messages) == ("So", "hm", (USER,))
