"""Anthropic's official client against a real daemon with a real model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
import requests

from tests.conftest import wait_until
from tests.harness import Llamad

pytestmark = pytest.mark.model

QUESTION: list[Any] = [{"role": "user", "content": "Name three colours."}]
# Not every version of the client has parameters for these.
SURE: dict[str, Any] = {"extra_body": {"temperature": 0, "seed": 1}}
STORY: list[Any] = [{"role": "user", "content": "Tell me a very long story about a cat."}]


@pytest.fixture
def client(llamad: Llamad) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=llamad.url, api_key="unused", max_retries=0, timeout=120) as client:
        yield client


def texts(message: anthropic.types.Message) -> list[str]:
    return [block.text for block in message.content if block.type == "text"]


def test_a_message(client: anthropic.Anthropic) -> None:
    message = client.messages.create(
        model="smol", max_tokens=24, messages=QUESTION, system="You answer in one line.", **SURE
    )
    assert (message.role, message.type, message.model) == ("assistant", "message", "smol")
    assert message.id.startswith("msg_")
    assert texts(message)[0]
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.stop_sequence is None
    assert 0 < message.usage.output_tokens <= 24
    assert message._request_id


def test_usage_tells_what_was_read_from_the_cache(client: anthropic.Anthropic) -> None:
    wanted: dict[str, Any] = {"model": "smol", "max_tokens": 4, "messages": STORY, **SURE}
    counted = client.messages.count_tokens(model="smol", messages=STORY).input_tokens
    client.messages.create(**wanted)
    usage = client.messages.create(**wanted).usage
    assert usage.cache_read_input_tokens
    assert usage.input_tokens + usage.cache_read_input_tokens == counted


def test_a_stream_says_what_a_plain_message_says(client: anthropic.Anthropic) -> None:
    wanted: dict[str, Any] = {"model": "smol", "max_tokens": 24, "messages": QUESTION, **SURE}
    plain = client.messages.create(**wanted)
    with client.messages.create(**wanted, stream=True) as stream:
        kinds = [event.type for event in stream]
    assert kinds[:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    with client.messages.stream(**wanted) as stream:
        started = next(event.message.usage for event in stream if event.type == "message_start")
        read, counted = started.cache_read_input_tokens, started.input_tokens
        streamed = stream.get_final_message()
    assert (read, counted) == (streamed.usage.cache_read_input_tokens, streamed.usage.input_tokens)
    assert texts(streamed) == texts(plain)
    assert streamed.stop_reason == plain.stop_reason
    assert streamed.usage.output_tokens == plain.usage.output_tokens
    assert streamed.usage.input_tokens + (streamed.usage.cache_read_input_tokens or 0) == (
        plain.usage.input_tokens + (plain.usage.cache_read_input_tokens or 0)
    )


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "Count from one to five."},
        {"role": "assistant", "content": "one, two, three,"},
    ]
    wanted: dict[str, Any] = {"model": "smol", "max_tokens": 32, "stop_sequences": ["zzz", "our"], **SURE}
    message = client.messages.create(messages=messages, **wanted)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "our")
    assert texts(message) == [" f"]
    with client.messages.stream(messages=messages, **wanted) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", "our")


def test_a_model_says_the_same_to_both_kinds_of_clients(client: anthropic.Anthropic, llamad: Llamad) -> None:
    message = client.messages.create(model="smol", max_tokens=16, messages=QUESTION, **SURE)
    chat = llamad.chat("smol", "Name three colours.", max_tokens=16).json()
    assert texts(message) == [chat["choices"][0]["message"]["content"]]


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    short = client.messages.count_tokens(model="smol", messages=QUESTION).input_tokens
    longer = client.messages.count_tokens(
        model="smol", messages=QUESTION, system=[{"type": "text", "text": "You are a poet. " * 8}]
    ).input_tokens
    assert 0 < short < longer


def test_a_client_that_leaves_ends_the_generation(client: anthropic.Anthropic, llamad: Llamad) -> None:
    wanted: dict[str, Any] = {"model": "smol", "max_tokens": 1500, "messages": STORY}
    with client.messages.stream(**wanted, extra_body={"ignore_eos": True}) as stream:
        for number, _ in enumerate(stream.text_stream):
            if number == 5:
                break
        assert busy_slots(llamad) == 1
    assert wait_until(lambda: not busy_slots(llamad), 30)


def busy_slots(llamad: Llamad) -> int:
    return sum(
        slot["is_processing"] for slot in requests.get(f"{llamad.url}/slots?model=smol", timeout=30).json()
    )


def test_a_conversation_goes_on_without_its_client(llamad: Llamad) -> None:
    body = {
        "model": "smol",
        "max_tokens": 16,
        "messages": QUESTION,
        "stream": True,
        "temperature": 0,
        "seed": 1,
    }
    headers = {"X-Conversation-Id": "anthropic-1"}
    with requests.post(
        f"{llamad.url}/v1/messages", json=body, headers=headers, stream=True, timeout=60
    ) as answer:
        first = next(answer.iter_content(64))
    replay = requests.get(f"{llamad.url}/v1/stream?conv_id=anthropic-1", timeout=60).content
    assert replay.startswith(first)
    assert replay.startswith(b"event: message_start\n")
    assert replay.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


def test_a_context_that_is_full_is_told(client: anthropic.Anthropic) -> None:
    long: list[Any] = [{"role": "user", "content": "count " * 960}]
    message = client.messages.create(
        model="gemma", max_tokens=2000, messages=long, extra_body={"ignore_eos": True, "temperature": 0}
    )
    assert message.stop_reason == "model_context_window_exceeded"


def test_lists_models(client: anthropic.Anthropic) -> None:
    assert {"smol", "gemma"} <= {model.id for model in client.models.list()}


# ---- errors, as the client's own classes


def told(error: anthropic.APIStatusError) -> dict[str, Any]:
    body: Any = error.body
    assert body["type"] == "error"
    return dict(body["error"])


def test_an_unknown_model_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="nobody", max_tokens=1, messages=QUESTION)
    error = told(caught.value)
    assert error["type"] == "not_found_error"
    assert error["kind"] == error["details"]["error_code"] == "model-not-found"
    assert "'nobody'" in error["message"]
    assert caught.value.request_id


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_a_bad_request_with_both_numbers(
    client: anthropic.Anthropic, stream: bool
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(
            model="smol", max_tokens=1, messages=[{"role": "user", "content": "count " * 4000}], stream=stream
        )
    error = told(caught.value)
    assert error["type"] == "invalid_request_error"
    assert error["n_prompt_tokens"] > 4000
    assert "prompt is too long" in error["message"]


def test_an_image_is_refused_by_name(client: anthropic.Anthropic) -> None:
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].content\[1\].type"):
        client.messages.create(
            model="smol",
            max_tokens=1,
            messages=[{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}],
        )


def test_a_route_that_is_not_there_has_the_shape_too(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.batches.retrieve("msgbatch_1")
    assert told(caught.value)["type"] == "not_found_error"


# ---- tools

WEATHER: Any = {
    "name": "weather",
    "description": "Tells the weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
    },
}
TIME: Any = {
    "name": "time",
    "description": "Tells the time.",
    "input_schema": {
        "type": "object",
        "properties": {"zone": {"enum": ["UTC", "CET"]}},
        "required": ["zone"],
    },
}
ASKED: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


def calls(message: anthropic.types.Message) -> list[anthropic.types.ToolUseBlock]:
    return [block for block in message.content if block.type == "tool_use"]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"type": "any"}, {"weather", "time"}),
        ({"type": "any", "disable_parallel_tool_use": True}, {"weather", "time"}),
        ({"type": "tool", "name": "time"}, {"time"}),
    ],
)
def test_a_tool_is_called(client: anthropic.Anthropic, choice: Any, names: set[str]) -> None:
    wanted: dict[str, Any] = {
        "model": "smol", "max_tokens": 128, "messages": ASKED, "tools": [WEATHER, TIME], "tool_choice": choice, **SURE
    }  # fmt: skip
    message = client.messages.create(**wanted)
    assert message.stop_reason == "tool_use"
    assert {call.name for call in calls(message)} <= names
    (call, *_) = calls(message)
    assert set(call.input) == {"city" if call.name == "weather" else "zone"}
    with client.messages.stream(**wanted) as stream:
        streamed = stream.get_final_message()
    assert [(call.name, call.input) for call in calls(streamed)] == [
        (call.name, call.input) for call in calls(message)
    ]
    assert streamed.stop_reason == "tool_use"


def test_the_result_of_a_call_is_read(client: anthropic.Anthropic) -> None:
    wanted: dict[str, Any] = {"model": "smol", "max_tokens": 128, "tools": [WEATHER], **SURE}
    first = client.messages.create(messages=ASKED, tool_choice={"type": "any"}, **wanted)
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny, 21 degrees."}
        for call in calls(first)
    ]
    messages: list[Any] = [
        *ASKED,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results},
    ]
    second = client.messages.create(messages=messages, tool_choice={"type": "none"}, **wanted)
    assert texts(second)
    counted = client.messages.count_tokens(model="smol", messages=messages, tools=[WEATHER]).input_tokens
    assert counted > client.messages.count_tokens(model="smol", messages=ASKED, tools=[WEATHER]).input_tokens


def test_a_request_with_tools_of_anthropics_servers_is_answered_without_them(
    client: anthropic.Anthropic,
) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    wanted: dict[str, Any] = {"model": "smol", "max_tokens": 8, "messages": ASKED, "tools": [search], **SURE}
    raw = client.messages.with_raw_response.create(**wanted)
    assert raw.headers["X-Llamad-Left-Out"] == "web_search_20250305"
    assert raw.parse().content
    with pytest.raises(anthropic.BadRequestError, match="runs no tools itself"):
        client.messages.create(tool_choice={"type": "tool", "name": "web_search"}, **wanted)
