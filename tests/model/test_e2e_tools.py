"""A tour of tools with the official client: through the port, whole and streamed, with its own helpers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.harness import Llamad

pytestmark = pytest.mark.model

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}
ASK: Any = {"role": "user", "content": "How is the weather in Rome?"}
WANTED: Any = {"model": "smol", "tools": [WEATHER], "max_tokens": 60, "temperature": 0}


@pytest.fixture
def client(llamad: Llamad) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{llamad.url}/v1", api_key="unused", max_retries=0, timeout=120) as client:
        yield client


def test_a_call_its_result_and_an_answer(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(messages=[ASK], tool_choice="required", **WANTED).choices[0]
    assert first.finish_reason == "tool_calls"
    assert first.message.tool_calls
    (call,) = first.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "sunny, 22 degrees"}
    history: Any = [ASK, first.message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(messages=history, tool_choice="none", **WANTED)
    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


def test_the_clients_stream_helper_puts_a_call_together(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(messages=[ASK], tool_choice=NAMED, **WANTED)
    assert plain.choices[0].message.tool_calls
    seen: list[str] = []
    with client.chat.completions.stream(messages=[ASK], tool_choice=NAMED, **WANTED) as stream:
        for event in stream:
            seen.append(event.type)
            if event.type == "tool_calls.function.arguments.done":
                assert event.parsed_arguments == json.loads(event.arguments)
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in seen
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls
    (call,), (whole,) = final.message.tool_calls, plain.choices[0].message.tool_calls
    assert whole.type == "function"
    assert (call.function.name, call.function.arguments) == (whole.function.name, whole.function.arguments)


def test_a_model_without_a_template_calls_too(client: openai.OpenAI) -> None:
    wanted = WANTED | {"model": "gemma"}
    choice = client.chat.completions.create(messages=[ASK], tool_choice="required", **wanted).choices[0]
    assert choice.finish_reason == "tool_calls"


def test_what_is_wrong_with_tools_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="two tools of the name 'get_weather'"):
        client.chat.completions.create(messages=[ASK], **(WANTED | {"tools": [WEATHER, WEATHER]}))
