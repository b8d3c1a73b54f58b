"""The official client against a real daemon with a real model."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.harness import Llamad

pytestmark = pytest.mark.model

QUESTION = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture
def client(llamad: Llamad) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{llamad.url}/v1", api_key="unused", max_retries=0, timeout=120) as client:
        yield client


def test_lists_and_retrieves_models(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} == {"smol", "gemma"}
    assert client.models.retrieve("smol").id == "smol"


def test_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smol", messages=QUESTION, max_tokens=24, temperature=0, seed=1
    )
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 24


def test_a_stream_says_what_a_plain_answer_says(client: openai.OpenAI) -> None:
    wanted = {"model": "smol", "messages": QUESTION, "max_tokens": 24, "temperature": 0, "seed": 1}
    plain = client.chat.completions.create(**wanted)
    with client.chat.completions.create(
        **wanted, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == plain.choices[0].message.content
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert [usage.completion_tokens for usage in usages] == [plain.usage.completion_tokens]
    assert chunks[-1].usage


def test_completes(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="smol", prompt="One, two, three,", max_tokens=8, temperature=0)
    assert "four" in answer.choices[0].text


def test_an_alias_is_a_name_of_the_model(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smol-alias", messages=QUESTION, max_tokens=4)
    assert answer.model == "smol-alias"


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nobody", messages=QUESTION)
    assert caught.value.body["kind"] == "model-not-found"
    assert "'nobody'" in caught.value.body["message"]


def test_too_long_a_prompt_is_a_bad_request_with_both_numbers(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "count " * 4000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smol", messages=messages)
    assert "2048" in caught.value.body["message"] or "512" in caught.value.body["message"]
    assert caught.value.body["n_prompt_tokens"] > 4000


def test_a_mistyped_field_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="smol", messages=QUESTION, extra_body={"temperature": "warm"})
