"""Keys, limits and variants with a real model and the official clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.conftest import wait_until
from tests.harness import Llamad

pytestmark = pytest.mark.model

QUESTION = [{"role": "user", "content": "Tell me a long story about a cat."}]
SHORT = 3
WAYS = ("plain", "stream", "hang-up", "message", "message-stream", "response", "response-stream")


@pytest.fixture(scope="module")
def locked(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llamad]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    text = "sk-free name=free\nsk-short name=short models=smol-short\n"
    keys.write_text(text + "".join(f"sk-{way} name={way} tpm=60\n" for way in WAYS))
    keys.chmod(0o600)
    presets = f"""version = 1
[smol]
model = {smollm2}
c = 1024
np = 2

[smol-short]
variant-of = smol
force.max_tokens = {SHORT}
default.temperature = 0
"""
    with Llamad(presets, "--api-key-file", str(keys)) as daemon:
        yield daemon


def client(daemon: Llamad, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{daemon.url}/v1", api_key=key, max_retries=0, timeout=120)


def messenger(daemon: Llamad, key: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=daemon.url, api_key=key, max_retries=0, timeout=120)


def ask(client: anthropic.Anthropic, model: str, stream: bool = False) -> Any:
    return client.messages.create(model=model, max_tokens=32, messages=QUESTION, stream=stream)


def test_keys_as_anthropics_client_says_them(locked: Llamad) -> None:
    with messenger(locked, "sk-short") as short:
        assert ask(short, "smol-short").usage.output_tokens == SHORT
        with pytest.raises(anthropic.PermissionDeniedError) as caught:
            ask(short, "smol")
    assert caught.value.body["error"]["type"] == "permission_error"
    with messenger(locked, "sk-nobody") as nobody, pytest.raises(anthropic.AuthenticationError) as refused:
        ask(nobody, "smol")
    assert refused.value.body["error"]["type"] == "authentication_error"
    with client(locked, "sk-short") as short:
        response = short.responses.create(model="smol-short", input="Hello!", max_output_tokens=64)
    assert response.usage.output_tokens == SHORT


def test_a_variant_answers_under_its_name_within_what_is_forced(locked: Llamad) -> None:
    with client(locked, "sk-short") as short:
        answers = [
            short.chat.completions.create(model="smol-short", messages=QUESTION, max_completion_tokens=64)
            for _ in range(2)
        ]
        assert [model.id for model in short.models.list()] == ["smol-short"]
        with pytest.raises(openai.PermissionDeniedError):
            short.chat.completions.create(model="smol", messages=QUESTION)
    for answer in answers:
        assert answer.model == "smol-short"
        assert answer.usage
        assert answer.usage.completion_tokens == SHORT
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    with client(locked, "sk-free") as free:
        answer = free.chat.completions.create(model="smol", messages=QUESTION, max_tokens=2 * SHORT)
        assert answer.usage
        assert answer.usage.completion_tokens > SHORT


@pytest.mark.parametrize("way", WAYS)
def test_tokens_per_minute_count_every_way_an_answer_ends(locked: Llamad, way: str) -> None:
    with client(locked, f"sk-{way}") as poor, messenger(locked, f"sk-{way}") as messages:
        if way.startswith("message"):
            list(ask(messages, "smol", stream=way.endswith("stream")))
        elif way.startswith("response"):
            wanted = {"model": "smol", "input": QUESTION[0]["content"], "max_output_tokens": 32}
            list(poor.responses.create(**wanted, stream=way.endswith("stream")))
        elif way == "plain":
            poor.chat.completions.create(model="smol", messages=QUESTION, max_tokens=64)
        else:
            stream = poor.chat.completions.create(model="smol", messages=QUESTION, max_tokens=64, stream=True)
            for number, _ in enumerate(stream):
                if way == "hang-up" and number == 60:
                    stream.close()
                    break
        assert wait_until(lambda: refusal(poor)) == "key-tokens"


def refusal(poor: openai.OpenAI) -> str:
    """The kind of a refusal, "" for none. A hang-up reaches the books a moment after the client."""
    try:
        poor.chat.completions.create(model="smol", messages=QUESTION, max_tokens=1)
    except openai.RateLimitError as error:
        return str(error.body["kind"])
    return ""
