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
        ({"tools": [{"type": "web_search"}]}, "web_search"),
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
