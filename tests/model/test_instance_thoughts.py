"""Thoughts in Anthropic's messages and OpenAI's responses, by their clients, of a template that has the model think; and
their end on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import requests

from tests.conftest import wait_until
from tests.model.test_instance_serving import TOKEN, Instance, loaded
from tests.model.test_instance_tools import PLAIN

pytestmark = pytest.mark.model

BUDGET = 6
QUESTION: list[Any] = [{"role": "user", "content": "Name three colours."}]
MESSAGE: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 24,
    "messages": QUESTION,
    "thinking": {"type": "enabled", "budget_tokens": BUDGET},
    "extra_body": {"temperature": 0, "seed": 1, "ignore_eos": True},
}
RESPONSE: dict[str, Any] = {
    "model": "tiny",
    "max_output_tokens": 24,
    "input": QUESTION,
    "temperature": 0,
    "extra_body": {"reasoning_budget_tokens": BUDGET, "seed": 1, "ignore_eos": True},
}


@pytest.fixture(scope="module")
def thinker(smollm2: Path) -> Iterator[Instance]:
    template = PLAIN.replace("SIGNS", "</think>") + "<think>"
    with loaded(smollm2, {"ctx-size": 1024, "parallel": 2, "chat-template": template}) as instance:
        yield instance


@pytest.fixture
def messages(thinker: Instance) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=thinker.url, auth_token=TOKEN, api_key=None, max_retries=0) as client:
        yield client.messages


@pytest.fixture
def responses(thinker: Instance) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{thinker.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client.responses


def test_a_message_begins_with_a_thought_within_its_budget(messages: Any) -> None:
    thought, text = messages.create(**MESSAGE).content
    assert (thought.type, text.type) == ("thinking", "text")
    assert thought.thinking
    assert text.text
    with messages.stream(**MESSAGE) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [thought.to_dict(), text.to_dict()]
    assert kinds.count("content_block_start") == 2
    assert "signature" in kinds


def test_a_thought_goes_back_with_the_conversation(messages: Any) -> None:
    first = messages.create(**MESSAGE)
    talk = [*QUESTION, {"role": "assistant", "content": first.content}, *QUESTION]
    assert messages.create(**MESSAGE | {"messages": talk}).content


def test_thoughts_are_left_out_where_they_are_not_wanted(messages: Any) -> None:
    shown = messages.create(**MESSAGE)
    hidden = messages.create(**MESSAGE | {"thinking": {**MESSAGE["thinking"], "display": "omitted"}})
    assert hidden.content[0].thinking == ""
    assert hidden.content[1:] == shown.content[1:]


def test_a_response_tells_its_reasoning_and_what_it_took(responses: Any) -> None:
    plain = responses.create(**RESPONSE)
    reasoning, message = plain.output
    assert (reasoning.type, message.type) == ("reasoning", "message")
    assert BUDGET <= plain.usage.output_tokens_details.reasoning_tokens < plain.usage.output_tokens
    events = list(responses.create(**RESPONSE, stream=True))
    text = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert text == reasoning.content[0].text
    last = events[-1].response
    assert [item.to_dict()["content"] for item in last.output] == [
        item.to_dict()["content"] for item in plain.output
    ]
    assert last.usage.output_tokens_details == plain.usage.output_tokens_details
    assert responses.create(**RESPONSE | {"input": [*QUESTION, *plain.output, *QUESTION]}).output


def control(thinker: Instance, id: str, action: str = "reasoning_end", status: int = 200) -> Any:
    return thinker.post("/v1/chat/completions/control", {"id": id, "action": action}, status)


def test_a_thought_ends_on_request_while_it_goes_on(thinker: Instance) -> None:
    """The answer follows in the same stream; a chat that did not ask for it cannot be ended so."""
    chat = {"messages": QUESTION, "stream": True, "max_tokens": 96, "temperature": 0, "ignore_eos": True}
    with streamed(thinker, chat | {"reasoning_control": True}) as answer:
        chunks = chunks_of(answer)
        id = next(chunks)["id"]
        assert thought_of(next(chunks))
        assert control(thinker, id) == {"success": True}
        rest = list(chunks)
    said = [delta for chunk in rest if (delta := chunk["choices"][0]["delta"].get("content"))]
    assert len(said) > 24
    assert len([chunk for chunk in rest if thought_of(chunk)]) < 48
    wait_until(lambda: not control(thinker, id)["success"])
    assert control(thinker, id)["message"] == "no active completion for this id"
    with streamed(thinker, chat) as answer:
        chunks = chunks_of(answer)
        id = next(chunks)["id"]
        assert control(thinker, id)["message"] == "reasoning control not enabled for this completion"


def test_the_thoughts_of_other_dialects_end_so_too(messages: Any, responses: Any, thinker: Instance) -> None:
    own = {"temperature": 0, "ignore_eos": True, "reasoning_control": True, "reasoning_budget_tokens": -1}
    asked = {"max_tokens": 96, "messages": QUESTION, "model": "tiny", "extra_body": own}
    with messages.create(**asked, stream=True) as stream:
        events = iter(stream)
        assert control(thinker, next(events).message.id) == {"success": True}
        assert "text" in [event.content_block.type for event in events if event.type == "content_block_start"]
    asked = {"max_output_tokens": 96, "input": QUESTION, "model": "tiny", "extra_body": own}
    with responses.create(**asked, stream=True) as stream:
        events = iter(stream)
        assert control(thinker, next(events).response.id) == {"success": True}
        assert "response.output_text.delta" in [event.type for event in events]


def test_an_order_that_says_not_what_or_whom_is_refused(thinker: Instance) -> None:
    assert control(thinker, "", status=400)["error"]["param"] == "id"
    assert control(thinker, "x", "sing", 400)["error"]["param"] == "action"


def streamed(thinker: Instance, chat: dict[str, Any]) -> requests.Response:
    url = thinker.url + "/v1/chat/completions"
    return requests.post(url, json=chat, headers=thinker.headers, stream=True, timeout=60)


def chunks_of(answer: Any) -> Iterator[Any]:
    for line in answer.iter_lines(chunk_size=1):
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


def thought_of(chunk: Any) -> str | None:
    thought: str | None = chunk["choices"][0]["delta"].get("reasoning_content")
    return thought
