"""OpenAI's responses by the official client, against a real daemon with a real model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests

from tests.conftest import wait_until
from tests.harness import Llamad

pytestmark = pytest.mark.model

QUESTION = "Name three colours."
SURE: dict[str, Any] = {"model": "smol", "temperature": 0, "extra_body": {"seed": 1}}


@pytest.fixture
def client(llamad: Llamad) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{llamad.url}/v1", api_key="unused", max_retries=0, timeout=120) as client:
        yield client


def test_a_response(client: openai.OpenAI) -> None:
    response = client.responses.create(input=QUESTION, instructions="Be short.", max_output_tokens=24, **SURE)
    assert response.output_text
    assert response.status in ("completed", "incomplete")
    assert (response.model, response.instructions, response.store) == ("smol", "Be short.", False)
    assert response.usage
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert 0 < response.usage.output_tokens <= 24


def test_a_stream_says_what_a_plain_response_says(client: openai.OpenAI) -> None:
    wanted = {"input": QUESTION, "max_output_tokens": 24, **SURE}
    plain = client.responses.create(**wanted)
    with client.responses.create(**wanted, stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == plain.output_text
    last = events[-1]
    assert last.type == f"response.{plain.status}"
    assert last.response.output_text == plain.output_text
    assert last.response.usage.output_tokens == plain.usage.output_tokens


def test_the_clients_own_accumulation(client: openai.OpenAI) -> None:
    wanted = {**SURE, "extra_body": {"seed": 1, "stop": ["."]}}
    with client.responses.stream(input=QUESTION, max_output_tokens=200, **wanted) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text
    assert final.status == "completed"


def test_an_answer_that_was_cut_says_so(client: openai.OpenAI) -> None:
    response = client.responses.create(input=QUESTION, max_output_tokens=2, **SURE)
    assert (response.status, response.usage.output_tokens) == ("incomplete", 2)
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_conversation_goes_on_with_what_came_back(client: openai.OpenAI) -> None:
    first = client.responses.create(input=QUESTION, max_output_tokens=16, **SURE)
    items: list[Any] = [{"role": "user", "content": QUESTION}, *first.output]
    second = client.responses.create(
        input=[*items, {"role": "user", "content": "And one more?"}], max_output_tokens=8, **SURE
    )
    assert second.output_text
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0


def test_an_answer_in_a_form(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    form: Any = {"format": {"type": "json_schema", "name": "colour", "schema": schema, "strict": True}}
    response = client.responses.create(input=QUESTION, text=form, max_output_tokens=32, **SURE)
    assert json.loads(response.output_text)["colour"] in ("red", "blue")


def test_tokens_are_counted(client: openai.OpenAI, llamad: Llamad) -> None:
    counted = client.responses.input_tokens.count(model="smol", input=QUESTION)
    response = client.responses.create(input=QUESTION, max_output_tokens=1, **SURE)
    assert counted.input_tokens == response.usage.input_tokens
    body = {"model": "smol", "messages": [{"role": "user", "content": QUESTION}]}
    assert llamad.post("/v1/chat/completions/input_tokens", body).json() == {
        "object": "response.input_tokens",
        "input_tokens": counted.input_tokens,
    }


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"previous_response_id": "resp_1"}, "whole conversation"),
        ({"store": True}, "stored"),
        ({"background": True}, "X-Conversation-Id"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "web_search"),
    ],
)
def test_what_needs_a_memory_is_refused(client: openai.OpenAI, fields: dict[str, Any], word: str) -> None:
    with pytest.raises(openai.BadRequestError, match=word) as caught:
        client.responses.create(input=QUESTION, **fields, **SURE)
    assert caught.value.param


def test_a_client_that_leaves_ends_the_generation(client: openai.OpenAI, llamad: Llamad) -> None:
    wanted = {**SURE, "extra_body": {"ignore_eos": True}, "max_output_tokens": 1500}
    with client.responses.create(input=QUESTION, stream=True, **wanted) as stream:
        for number, _ in enumerate(stream):
            if number == 8:
                break
    slots = f"{llamad.url}/slots?model=smol"
    assert wait_until(
        lambda: not any(slot["is_processing"] for slot in requests.get(slots, timeout=30).json()), 30
    )


# ---- tools

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
    },
    "strict": True,
}
TIME: Any = {
    "type": "function",
    "name": "time",
    "description": "Tells the time.",
    "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]},
}
ASKED = "What is the weather in Paris?"


def calls(response: openai.types.responses.Response) -> list[tuple[str, Any]]:
    return [
        (item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"
    ]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "time"}], ids=str)
def test_a_tool_is_called(client: openai.OpenAI, choice: Any) -> None:
    wanted = {
        "input": ASKED,
        "tools": [WEATHER, TIME],
        "tool_choice": choice,
        "max_output_tokens": 128,
        **SURE,
    }
    plain = client.responses.create(**wanted)
    ((name, arguments), *_) = calls(plain)
    assert set(arguments) == {"city" if name == "weather" else "zone"}
    if choice != "required":
        assert {name for name, _ in calls(plain)} == {"time"}
    with client.responses.stream(**wanted) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert calls(final) == calls(plain)
    text = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert text == "".join(item.arguments for item in final.output if item.type == "function_call")


def test_the_output_of_a_call_is_read(client: openai.OpenAI) -> None:
    wanted = {"tools": [WEATHER], "max_output_tokens": 96, **SURE}
    first = client.responses.create(input=ASKED, tool_choice="required", **wanted)
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "Sunny, 21 degrees."}
        for item in first.output
        if item.type == "function_call"
    ]
    assert outputs
    items: list[Any] = [{"role": "user", "content": ASKED}, *first.output, *outputs]
    second = client.responses.create(input=items, tool_choice="none", **wanted)
    assert second.output_text
    assert second.usage.input_tokens > first.usage.input_tokens


def test_a_request_with_hosted_tools_is_answered_without_them(client: openai.OpenAI, llamad: Llamad) -> None:
    tools: Any = [{"type": "web_search"}, TIME]
    wanted: Any = {"input": ASKED, "tools": tools, "max_output_tokens": 64, **SURE}
    raw = client.responses.with_raw_response.create(tool_choice="required", **wanted)
    assert raw.headers["X-Llamad-Left-Out"] == "web_search"
    response = raw.parse()
    assert [tool.type for tool in response.tools] == ["function"]
    assert {name for name, _ in calls(response)} == {"time"}
    with client.responses.with_streaming_response.create(stream=True, **wanted) as stream:
        assert stream.headers["X-Llamad-Left-Out"] == "web_search"
    assert llamad.log_of("smol").count("left out: web_search\n") == 1
